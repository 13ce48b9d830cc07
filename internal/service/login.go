package service

import (
	"context"

	"cofferdam"
	"cofferdam/identity"
)

// Logout ends the token that the request came with.
func (s *Service) Logout(ctx context.Context) error {
	const op = "service.Logout"
	a, err := s.enter(ctx, op)
	if err != nil {
		return err
	}
	if a.Caller.Token == "" {
		return invalid(op, "signing out", "you did not sign in: this machine says who you are", "there is nothing to end")
	}
	return s.Accounts.Revoke(ctx, a.Caller, a.Caller.Token)
}

// SignIn is for who is not known yet: it asks for no verb.
func (s *Service) SignIn(ctx context.Context, r cofferdam.LoginRequest) (cofferdam.Login, error) {
	if len(r.Name) > 300 || len(r.Organization) > 300 || len(r.Password) > identity.MaxPassword || len(r.Code) > 300 {
		return cofferdam.Login{}, invalid("service.SignIn", "request", "name, password or code is too long", "give what you chose")
	}
	t, text, err := s.Accounts.SignIn(ctx, r, s.Scope.Organization)
	return shownLogin(t, text, err)
}

// SignInProvider signs people in by an identity provider; package identity offers
// it. nil: there is none.
type SignInProvider interface {
	Begin(ctx context.Context, redirect string) (address, ticket string, err error)
	Finish(ctx context.Context, ticket, state, code string) (identity.Token, string, error)
	Bind(ctx context.Context, who identity.Caller, ticket, state, code string) error
	BeginDevice(ctx context.Context) (cofferdam.LoginDevice, error)
	FinishDevice(ctx context.Context, ticket string) (identity.Token, string, error)
}

func (s *Service) provider(op string) (SignInProvider, error) {
	if s.Provider == nil {
		return nil, &cofferdam.Error{Op: op, Kind: cofferdam.NotFound, Subject: "identity provider", Reason: "this server has none", Hint: "sign in with your password: cofferdam login NAME"}
	}
	return s.Provider, nil
}

// BeginSignIn begins one at the identity provider, for who is not known yet.
func (s *Service) BeginSignIn(ctx context.Context, redirect string) (cofferdam.LoginFlow, error) {
	p, err := s.provider("service.BeginSignIn")
	if err != nil {
		return cofferdam.LoginFlow{}, err
	}
	address, ticket, err := p.Begin(ctx, redirect)
	return cofferdam.LoginFlow{Schema: "cofferdam/login-flow/v1", Address: address, Ticket: ticket}, err
}

// FinishSignIn ends it with a token.
func (s *Service) FinishSignIn(ctx context.Context, r cofferdam.LoginFinish) (cofferdam.Login, error) {
	p, err := s.provider("service.FinishSignIn")
	if err != nil {
		return cofferdam.Login{}, err
	}
	t, text, err := p.Finish(ctx, r.Ticket, r.State, r.Code)
	return shownLogin(t, text, err)
}

// BeginDeviceSignIn begins one that ends in a browser of another machine.
func (s *Service) BeginDeviceSignIn(ctx context.Context) (cofferdam.LoginDevice, error) {
	p, err := s.provider("service.BeginDeviceSignIn")
	if err != nil {
		return cofferdam.LoginDevice{}, err
	}
	return p.BeginDevice(ctx)
}

// FinishDeviceSignIn ends it with a token, once somebody has given the code.
func (s *Service) FinishDeviceSignIn(ctx context.Context, ticket string) (cofferdam.Login, error) {
	p, err := s.provider("service.FinishDeviceSignIn")
	if err != nil {
		return cofferdam.Login{}, err
	}
	t, text, err := p.FinishDevice(ctx, ticket)
	return shownLogin(t, text, err)
}

// BindSignIn makes whom the provider names be the caller from now on. Who has
// something to prove by has to: a program that acts for them must not be able to
// let somebody else in.
func (s *Service) BindSignIn(ctx context.Context, r cofferdam.LoginFinish) error {
	const op = "service.BindSignIn"
	a, err := s.enter(ctx, op)
	if err != nil {
		return err
	}
	p, err := s.provider(op)
	if err != nil {
		return err
	}
	have, err := s.Prover.Factors(ctx, cofferdam.PersonID(a.Caller.Member))
	if err != nil {
		return err
	}
	if len(have) > 0 {
		if _, err := s.present(ctx, a.Caller, r.Proof, aboutFactor("bind", r.Ticket, r.State, r.Code)); err != nil {
			return err
		}
	}
	return p.Bind(ctx, a.Caller, r.Ticket, r.State, r.Code)
}
