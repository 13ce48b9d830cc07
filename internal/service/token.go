package service

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"cofferdam"
	"cofferdam/identity"
)

func shownToken(t identity.Token) cofferdam.Token {
	return cofferdam.Token{
		Schema: t.Schema, ID: t.ID, Holder: t.Holder.String(), Project: t.Project, Role: string(t.Most), Verbs: t.Verbs, Login: t.Login, By: t.By.String(),
		Created: t.Created, Expires: t.Expires, Revoked: t.Revoked, Used: t.Used,
	}
}

// mine says which tokens a caller may see and revoke: their own, and as an owner
// those of the project, or of the whole organisation.
func mine(a Acting, t identity.Token) bool {
	scope := cofferdam.Scope{Organization: t.Organization, Project: t.Project}
	return t.Organization == a.Caller.Organization && (t.Member == a.Caller.Member || a.Caller.RoleIn(scope).Has(identity.Owner) && (t.Project == "" || t.Project == a.Scope.Project))
}

// ListTokens returns the caller's own tokens, and for an owner those of the
// project, the newest first and without their texts.
func (s *Service) ListTokens(ctx context.Context) ([]cofferdam.Token, error) {
	a, err := s.enter(ctx, "service.ListTokens")
	if err != nil {
		return nil, err
	}
	all, err := s.Accounts.Tokens(ctx, a.Caller.Organization)
	var list []cofferdam.Token
	for _, t := range all {
		if mine(a, t) {
			list = append(list, shownToken(t))
		}
	}
	return list, err
}

// CreateToken makes a token of the caller, or as an owner one of a service account.
// It gives no more than who asks has: a bounded token makes no wider one.
func (s *Service) CreateToken(ctx context.Context, r cofferdam.TokenRequest) (cofferdam.Login, error) {
	const op = "service.CreateToken"
	none := cofferdam.Login{}
	a, err := s.enter(ctx, op)
	if err != nil {
		return none, err
	}
	scope := a.Scope
	if r.Level == cofferdam.OfOrganization {
		scope.Project = ""
	} else if r.Level != "" && r.Level != cofferdam.OfProject {
		return none, invalid(op, "level", fmt.Sprintf("%.40q is neither project nor organization", r.Level), "name one of the two, or none for the project")
	}
	t, err := s.token(ctx, a, scope, r)
	if err != nil {
		return none, err
	}
	if math.IsNaN(r.Seconds) || r.Seconds < 0 || r.Seconds > identity.MaxLife.Seconds() {
		return none, invalid(op, "seconds", "a token is good for a minute to a year", "give the time in seconds, or none for 30 days")
	}
	about := digestOf("token", scope, r.Holder, r.Role, r.Verbs, r.Seconds)
	if _, err := s.present(ctx, a.Caller, r.Proof, about); err != nil {
		return none, err
	}
	t, text, err := s.Accounts.NewToken(ctx, a.Caller, t, time.Duration(r.Seconds*float64(time.Second)))
	if err != nil {
		return none, err
	}
	return cofferdam.Login{Schema: "cofferdam/login/v1", Token: shownToken(t), Text: text}, nil
}

// token is the one that r asks for, if the caller may give it.
func (s *Service) token(ctx context.Context, a Acting, scope cofferdam.Scope, r cofferdam.TokenRequest) (identity.Token, error) {
	const op = "service.CreateToken"
	t := identity.Token{Project: scope.Project, Holder: a.Caller.Principal, Member: a.Caller.Member, Most: identity.Role(r.Role), Verbs: r.Verbs}
	forbidden := func(reason string) error {
		return &cofferdam.Error{Op: op, Kind: cofferdam.Forbidden, Subject: "token", Reason: reason, Hint: "ask for less, or sign in with cofferdam login"}
	}
	for _, name := range r.Verbs {
		if !known(name) {
			return t, invalid(op, fmt.Sprintf("verb %.60q", name), "there is none", "they are NOUN.VERB as in task.run")
		}
		if a.Caller.Verbs != nil && !slices.Contains(a.Caller.Verbs, name) {
			return t, forbidden("your own token is not good for " + name)
		}
	}
	switch {
	case !t.Most.Known():
		return t, invalid(op, fmt.Sprintf("role %.40q", r.Role), "there is none", "it is viewer, author, reviewer, operator or owner")
	case a.Caller.Principal.Kind == cofferdam.TestPerson:
		return t, forbidden("a test person has no tokens")
	case a.Caller.Verbs != nil && len(r.Verbs) == 0:
		return t, forbidden("your own token is good for some verbs alone")
	case r.Holder == "" && !a.Caller.RoleIn(a.Scope).Has(t.Most), scope.Project == "" && a.Caller.Fixed != "":
		return t, forbidden(fmt.Sprintf("it would have more than you have here: you are %s", a.Caller.RoleIn(a.Scope)))
	case r.Holder == "":
		return t, nil
	case !a.Caller.RoleIn(scope).Has(identity.Owner):
		return t, forbidden("a token of somebody else is given by an owner")
	}
	m, err := s.Accounts.Member(ctx, scope, r.Holder)
	if err != nil {
		return t, err
	}
	if !m.Service {
		return t, forbidden("a person's tokens are their own")
	}
	t.Holder, t.Member = cofferdam.Principal{Kind: cofferdam.Service, Name: m.Name}, string(m.ID)
	return t, nil
}

// known says whether a token may name a verb.
func known(name string) bool {
	for _, v := range verbs {
		if v.name == name {
			return true
		}
	}
	return false
}

// RevokeToken ends a token of the caller's, or as an owner one of the project.
func (s *Service) RevokeToken(ctx context.Context, id string) error {
	const op = "service.RevokeToken"
	a, err := s.enter(ctx, op)
	if err != nil {
		return err
	}
	t, err := s.Accounts.Token(ctx, a.Caller.Organization, cofferdam.TokenID(id)) // a list has a bound
	switch {
	case err != nil && cofferdam.KindOf(err) != cofferdam.NotFound:
		return err
	case err == nil && mine(a, t):
		return s.Accounts.Revoke(ctx, a.Caller, t.ID)
	}
	return &cofferdam.Error{Op: op, Kind: cofferdam.NotFound, Subject: fmt.Sprintf("token %.80q", id), Reason: "there is none", Hint: "cofferdam admin token list shows yours"}
}

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
	if err != nil {
		return cofferdam.Login{}, err
	}
	return cofferdam.Login{Schema: "cofferdam/login/v1", Token: shownToken(t), Text: text}, nil
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
	if err != nil {
		return cofferdam.Login{}, err
	}
	return cofferdam.Login{Schema: "cofferdam/login/v1", Token: shownToken(t), Text: text}, nil
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
	if err != nil {
		return cofferdam.Login{}, err
	}
	return cofferdam.Login{Schema: "cofferdam/login/v1", Token: shownToken(t), Text: text}, nil
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

// WorkloadKeys returns the public keys by which anybody checks the tokens of
// sessions, as a JWKS document. It is no secret and asks for nobody.
func (s *Service) WorkloadKeys() []byte {
	if s.Keys == nil {
		return []byte(`{"keys":[]}`)
	}
	return s.Keys()
}
