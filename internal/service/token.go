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

// shownLogin is a token with its text, or the error for which there is none.
func shownLogin(t identity.Token, text string, err error) (cofferdam.Login, error) {
	if err != nil {
		return cofferdam.Login{}, err
	}
	return cofferdam.Login{Schema: "cofferdam/login/v1", Token: shownToken(t), Text: text}, nil
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
	if err != nil {
		return nil, err
	}
	members, err := s.Accounts.Members(ctx, cofferdam.Scope{Organization: a.Caller.Organization})
	if err != nil {
		return nil, err
	}
	closed := map[string]bool{}
	for _, m := range members {
		closed[string(m.ID)] = !m.Disabled.IsZero()
	}
	var list []cofferdam.Token
	for _, t := range all {
		if mine(a, t) {
			shown := shownToken(t)
			shown.Closed = closed[t.Member]
			list = append(list, shown)
		}
	}
	return list, nil
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
	scope, err := reach(a, op, r.Level)
	if err != nil {
		return none, err
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
	return shownLogin(t, text, err)
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

// WorkloadKeys returns the public keys by which anybody checks the tokens of
// sessions, as a JWKS document. It is no secret and asks for nobody.
func (s *Service) WorkloadKeys() []byte {
	if s.Keys == nil {
		return []byte(`{"keys":[]}`)
	}
	return s.Keys()
}
