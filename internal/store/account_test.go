package store

import (
	"slices"
	"strings"
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

// TestTokensGoWithTheRole: who leaves a project, and comes back, has no token of
// before there; who is still in another keeps those that are not for the one left.
func TestTokensGoWithTheRole(t *testing.T) {
	s, ctx := open(t), t.Context()
	scope, err := s.DefaultScope(ctx)
	if err != nil {
		t.Fatal(err)
	}
	other := cofferdam.ProjectID(cofferdam.NewID("p"))
	if err := s.AddProject(ctx, cofferdam.Project{Scope: cofferdam.Scope{Organization: scope.Organization, Project: other}, Name: "other", Created: time.Now()}); err != nil {
		t.Fatal(err)
	}
	owner := identity.Person{ID: cofferdam.PersonID(cofferdam.NewID("u")), Organization: scope.Organization, Name: "ann", Created: time.Now()}
	if err := s.AddPerson(ctx, owner, identity.Membership{Member: string(owner.ID), Role: identity.Owner}, nil); err != nil {
		t.Fatal(err)
	}
	p := identity.Person{ID: cofferdam.PersonID(cofferdam.NewID("u")), Organization: scope.Organization, Name: "robot", Service: true, Created: time.Now()}
	in := func(project cofferdam.ProjectID, role identity.Role) identity.Membership {
		return identity.Membership{Member: string(p.ID), Project: project, Role: role}
	}
	if err := s.AddPerson(ctx, p, in(scope.Project, identity.Author), nil); err != nil {
		t.Fatal(err)
	}
	set := func(project cofferdam.ProjectID, role identity.Role) {
		t.Helper()
		if err := s.SetMembership(ctx, scope.Organization, in(project, role)); err != nil {
			t.Fatal(err)
		}
	}
	set(other, identity.Author)
	tokens := map[string]cofferdam.TokenID{}
	for name, project := range map[string]cofferdam.ProjectID{"here": scope.Project, "there": other, "anywhere": ""} {
		k := identity.Token{ID: cofferdam.TokenID(cofferdam.NewID("k")), Organization: scope.Organization, Project: project, Member: string(p.ID), Expires: time.Now().Add(time.Hour), Created: time.Now()}
		k.Hash = strings.Repeat(string(k.ID[2:]), 2)
		if err := s.AddToken(ctx, k); err != nil {
			t.Fatal(err)
		}
		tokens[name] = k.ID
	}
	good := func(when string, want ...string) {
		t.Helper()
		for name, id := range tokens {
			k, err := s.Token(ctx, scope.Organization, id)
			if err != nil || k.Revoked.IsZero() != slices.Contains(want, name) {
				t.Errorf("%s, the token for %s: %+v %v", when, name, k.Revoked, err)
			}
		}
	}
	set(scope.Project, identity.Viewer)
	good("another role", "here", "there", "anywhere")
	set(scope.Project, "")
	set(scope.Project, identity.Author)
	good("left and back", "there", "anywhere")
	set(scope.Project, "")
	set(other, "")
	set(other, identity.Author)
	good("left all and back")
}

// TestOldTokensAreForgotten: what counts no more is kept for a while, and no longer.
func TestOldTokensAreForgotten(t *testing.T) {
	s, ctx := open(t), t.Context()
	scope, err := s.DefaultScope(ctx)
	if err != nil {
		t.Fatal(err)
	}
	p := identity.Person{ID: cofferdam.PersonID(cofferdam.NewID("u")), Organization: scope.Organization, Name: "ann", Created: time.Now()}
	if err := s.AddPerson(ctx, p, identity.Membership{Member: string(p.ID), Role: identity.Owner}, nil); err != nil {
		t.Fatal(err)
	}
	now, day := time.Now().UTC(), 24*time.Hour
	ids := map[cofferdam.TokenID]string{}
	for what, made := range map[string]struct{ created, expires, revoked time.Time }{
		"over long ago":       {now.Add(-200 * day), now.Add(-tokenKept - day), time.Time{}},
		"revoked long ago":    {now.Add(-200 * day), now.Add(day), now.Add(-tokenKept - day)},
		"over a while ago":    {now.Add(-200 * day), now.Add(-tokenKept + day), time.Time{}},
		"revoked a while ago": {now.Add(-200 * day), now.Add(day), now.Add(-tokenKept + day)},
		"good":                {now.Add(-200 * day), now.Add(day), time.Time{}},
	} {
		id := cofferdam.TokenID(cofferdam.NewID("k"))
		k := identity.Token{ID: id, Hash: strings.Repeat(string(id)[2:], 2), Organization: scope.Organization, Member: string(p.ID), Created: made.created, Expires: made.expires}
		if err := s.AddToken(ctx, k); err != nil {
			t.Fatal(err)
		}
		if !made.revoked.IsZero() {
			if err := s.RevokeToken(ctx, scope.Organization, id, made.revoked); err != nil {
				t.Fatal(err)
			}
		}
		ids[id] = what
	}
	id := cofferdam.TokenID(cofferdam.NewID("k"))
	if err := s.AddToken(ctx, identity.Token{ID: id, Hash: strings.Repeat(string(id)[2:], 2), Organization: scope.Organization, Member: string(p.ID), Created: now, Expires: now.Add(day)}); err != nil {
		t.Fatal(err)
	}
	left, err := s.Tokens(ctx, scope.Organization)
	if err != nil || len(left) != 4 {
		t.Errorf("%d are left, %v", len(left), err)
	}
	for _, k := range left {
		if strings.Contains(ids[k.ID], "long ago") {
			t.Errorf("one is left that is %s", ids[k.ID])
		}
	}
}
