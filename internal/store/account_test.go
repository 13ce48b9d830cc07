package store

import (
	"testing"
	"time"

	"cofferdam"
	"cofferdam/identity"
)

// TestAccountsAreWhole: an account whose role or invitation cannot be kept is not
// there, and its name is free. A server that was killed in between would else leave
// one that nobody can use, and for the first owner a server without any.
func TestAccountsAreWhole(t *testing.T) {
	s, ctx := open(t), t.Context()
	scope, err := s.DefaultScope(ctx)
	if err != nil {
		t.Fatal(err)
	}
	p := identity.Person{ID: cofferdam.PersonID(cofferdam.NewID("u")), Organization: scope.Organization, Name: "ann", Created: time.Now().UTC()}
	owner := identity.Membership{Member: string(p.ID), Role: identity.Owner}
	k := identity.Token{
		ID: cofferdam.TokenID(cofferdam.NewID("k")), Hash: "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", Organization: scope.Organization, Member: string(p.ID),
		Expires: time.Now().Add(time.Hour), Created: time.Now(),
	}
	short := k
	short.Hash = "aaaa"
	for name, c := range map[string]struct {
		m identity.Membership
		k *identity.Token
	}{
		"a role that is none":        {identity.Membership{Member: string(p.ID), Role: "root"}, nil},
		"a project of somebody else": {identity.Membership{Member: string(p.ID), Project: "p-other", Role: identity.Viewer}, &k},
		"somebody else's role":       {identity.Membership{Member: "u-other", Role: identity.Viewer}, &k},
		"a token that is none":       {owner, &short},
	} {
		if err := s.AddPerson(ctx, p, c.m, c.k); err == nil {
			t.Errorf("%s was taken", name)
		}
		if _, err := s.Person(ctx, scope.Organization, "ann"); cofferdam.KindOf(err) != cofferdam.NotFound {
			t.Errorf("%s left an account: %v", name, err)
		}
		if _, err := s.TokenByHash(ctx, k.Hash); cofferdam.KindOf(err) != cofferdam.NotFound {
			t.Errorf("%s left a token: %v", name, err)
		}
	}
	if err := s.AddPerson(ctx, p, owner, &k); err != nil {
		t.Fatal(err)
	}
	if roles, err := s.Memberships(ctx, string(p.ID)); err != nil || len(roles) != 1 || roles[0] != owner {
		t.Errorf("%+v %v", roles, err)
	}
	if got, err := s.Token(ctx, scope.Organization, k.ID); err != nil || got.Hash != k.Hash {
		t.Errorf("%+v %v", got, err)
	}
	for _, c := range []struct {
		o  cofferdam.OrganizationID
		id cofferdam.TokenID
	}{{"o-other", k.ID}, {scope.Organization, k.ID[:10]}, {scope.Organization, ""}} {
		if _, err := s.Token(ctx, c.o, c.id); cofferdam.KindOf(err) != cofferdam.NotFound {
			t.Errorf("%+v: %v", c, err)
		}
	}
	f := identity.Factor{ID: cofferdam.NewID("f"), Person: p.ID, Kind: identity.TOTP, Data: []byte("x"), Step: 7, Created: time.Now()}
	if err := s.AddFactor(ctx, f, 1); cofferdam.KindOf(err) != cofferdam.Conflict {
		t.Errorf("a second one that is the first: %v", err)
	}
	if err := s.AddFactor(ctx, f, 0); err != nil {
		t.Fatal(err)
	}
	f.ID = cofferdam.NewID("f")
	if err := s.AddFactor(ctx, f, 0); cofferdam.KindOf(err) != cofferdam.Conflict {
		t.Errorf("a first one that is the second: %v", err)
	}
	list, err := s.Factors(ctx, p.ID)
	if err != nil || len(list) != 1 {
		t.Fatalf("%+v %v", list, err)
	}
	for step, spent := range map[int64]bool{6: false, 7: false} {
		if err := s.SpendStep(ctx, list[0].ID, step); (err == nil) != spent {
			t.Errorf("step %d after the first code: %v", step, err)
		}
	}
}
