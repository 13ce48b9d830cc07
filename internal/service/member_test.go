package service

import (
	"context"
	"strings"
	"testing"

	"cofferdam"
	"cofferdam/identity"
)

var tess = cofferdam.Principal{Kind: cofferdam.TestPerson, Name: "tess"}

// member makes an account of a person with a role in the project.
func member(t *testing.T, s *Service, name, role string) context.Context {
	t.Helper()
	if _, err := s.AddMember(as(tess), cofferdam.MemberRequest{Name: name, Role: role}); err != nil {
		t.Fatal(err)
	}
	return as(cofferdam.Principal{Kind: cofferdam.Person, Name: name})
}

// TestWhoRunsTheServerStays: no owner takes the server from who runs it, by whatever
// name they call them, nor makes the account before them; of another organisation's
// people of that name this says nothing.
func TestWhoRunsTheServerStays(t *testing.T) {
	s, _ := world(t)
	runner, err := s.Local(t.Context(), "alice")
	if err != nil {
		t.Fatal(err)
	}
	s.Runners = []string{"alice", "root"}
	member(t, s, "bob", "owner")
	for _, level := range []cofferdam.MemberLevel{"", cofferdam.OfOrganization} {
		for what, err := range map[string]error{
			"closed":          s.RemoveMember(as(tess), "alice", cofferdam.MemberRemoval{Level: level}),
			"closed by id":    s.RemoveMember(as(tess), runner.Member, cofferdam.MemberRemoval{Level: level}),
			"made less":       added(s.AddMember(as(tess), cofferdam.MemberRequest{Name: "alice", Role: "viewer", Level: level})),
			"made beforehand": added(s.AddMember(as(tess), cofferdam.MemberRequest{Name: "root", Role: "viewer", Level: level})),
		} {
			if cofferdam.KindOf(err) != cofferdam.Conflict || !strings.Contains(err.Error(), "who runs the server") {
				t.Errorf("%s, level %q: %v", what, level, err)
			}
		}
	}
	if again, err := s.Local(t.Context(), "alice"); err != nil || again.RoleIn(scope) != "owner" {
		t.Errorf("%+v, %v", again, err)
	}
	if err := s.RemoveMember(as(tess), "bob", cofferdam.MemberRemoval{Level: cofferdam.OfOrganization}); err != nil {
		t.Errorf("the twin, who runs nothing: %v", err)
	}
	member(t, s, "carl", "viewer")
	s.Runners = []string{"carl"} // the server is another user's now
	if err := added(s.AddMember(as(tess), cofferdam.MemberRequest{Name: "carl", Role: "owner", Level: cofferdam.OfOrganization})); err != nil {
		t.Errorf("who was less cannot become an owner: %v", err)
	}
	s.Scope.Organization = "o-other"
	if err := s.runnerStays(t.Context(), "test", scope, "alice", ""); err != nil {
		t.Errorf("an account of that name elsewhere: %v", err)
	}
}

// TestClosedAccountsAreReopened: an owner of the organisation opens a closed account, who
// proves that they are there; an owner of a project does not, and a program does not
// come back as an owner. What stands in the way is said before a proof is asked for,
// and a request without one is no guess at it.
func TestClosedAccountsAreReopened(t *testing.T) {
	s, _ := world(t)
	seen := &abouts{Prover: s.Prover}
	s.Prover = seen
	whole := func(p cofferdam.Principal, project cofferdam.ProjectID) context.Context {
		c := identity.Caller{Principal: p, Member: "m", Organization: scope.Organization, Memberships: []identity.Membership{{Member: "m", Project: project, Role: identity.Owner}}}
		return WithActing(context.Background(), Acting{Caller: c, Scope: scope})
	}
	ann, all := whole(alice, scope.Project), whole(alice, "")
	member(t, s, "bob", "author")
	if _, err := s.AddMember(as(tess), cofferdam.MemberRequest{Name: "ci", Service: true, Role: "author"}); err != nil {
		t.Fatal(err)
	}
	reopen := func(ctx context.Context, name, role, password string) (cofferdam.MemberAdded, error) {
		r := cofferdam.MemberReopening{Role: role}
		if password != "" {
			r.Proof = cofferdam.Proof{Kind: identity.Password, Password: password}
		}
		return s.ReopenMember(ctx, name, r)
	}
	refused := func(what string, kind cofferdam.Kind, text string, err error) {
		t.Helper()
		if err == nil || cofferdam.KindOf(err) != kind || !strings.Contains(err.Error()+cofferdam.HintOf(err), text) {
			t.Errorf("%s: %v", what, err)
		}
	}
	_, err := reopen(all, "bob", "author", "")
	refused("one that is open", cofferdam.Conflict, "it is open", err)
	for _, name := range []string{"bob", "ci"} {
		if err := s.RemoveMember(as(tess), name, cofferdam.MemberRemoval{Level: cofferdam.OfOrganization}); err != nil {
			t.Fatal(err)
		}
	}
	_, err = s.AddMember(all, cofferdam.MemberRequest{Name: "bob", Role: "author"})
	refused("a role of a closed one", cofferdam.Conflict, "admin user reopen bob", err)
	_, err = reopen(ann, "bob", "author", MemoryPassword)
	refused("an owner of the project", cofferdam.Forbidden, "not owner in all of it", err)
	_, err = reopen(all, "bob", "king", "")
	refused("no role", cofferdam.Invalid, "viewer, author", err)
	_, err = reopen(all, "ci", "owner", "")
	refused("a program that owns", cofferdam.Invalid, "operator or less", err)
	_, err = reopen(all, "nobody", "author", "")
	refused("nobody", cofferdam.NotFound, "there is none", err)
	_, err = reopen(all, "bob", "author", "")
	refused("without a proof", cofferdam.Forbidden, cofferdam.NoProof, err)
	if len(seen.list) != 0 {
		t.Errorf("%d proofs were tried that nobody gave", len(seen.list))
	}
	_, err = reopen(all, "bob", "author", "not it")
	refused("a wrong proof", cofferdam.Forbidden, "does not hold", err)
	if m, err := s.Accounts.Member(t.Context(), cofferdam.Scope{Organization: scope.Organization}, "bob"); err != nil || m.Disabled.IsZero() {
		t.Errorf("one of the refused opened it: %+v, %v", m, err)
	}
	back, err := reopen(all, "bob", "viewer", MemoryPassword)
	if err != nil || back.Invitation == "" || !back.Member.Disabled.IsZero() || len(back.Member.Roles) != 1 || back.Member.Roles[0].Role != "viewer" {
		t.Errorf("%+v, %v", back.Member, err)
	}
	if back, err = reopen(all, "ci", "author", MemoryPassword); err != nil || back.Invitation != "" {
		t.Errorf("a program: %+v, %v", back.Member, err)
	}
}

// TestTokensOfClosedAccounts: a list says of each token whether its holder's account is
// closed, so that none looks as if it counted.
func TestTokensOfClosedAccounts(t *testing.T) {
	s, _ := world(t)
	for _, name := range []string{"ci", "cd"} {
		if _, err := s.AddMember(as(tess), cofferdam.MemberRequest{Name: name, Service: true, Role: "author", Level: cofferdam.OfOrganization}); err != nil {
			t.Fatal(err)
		}
		proof := cofferdam.Proof{Kind: identity.Password, Password: MemoryPassword}
		if _, err := s.CreateToken(as(alice), cofferdam.TokenRequest{Holder: name, Role: "author", Level: cofferdam.OfOrganization, Proof: proof}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.RemoveMember(as(tess), "ci", cofferdam.MemberRemoval{Level: cofferdam.OfOrganization}); err != nil {
		t.Fatal(err)
	}
	list, err := s.ListTokens(as(alice))
	if err != nil || len(list) != 2 {
		t.Fatalf("%+v, %v", list, err)
	}
	for _, k := range list {
		if k.Closed != (k.Holder == "service:ci") {
			t.Errorf("%s: %v", k.Holder, k.Closed)
		}
	}
}

// TestWhoIsInSeveralProjectsIsToldWhich: a request that names none, of somebody who is
// in some of them, is refused with those alone that are theirs.
func TestWhoIsInSeveralProjectsIsToldWhich(t *testing.T) {
	s, _ := world(t)
	c := identity.Caller{Principal: alice, Member: "m", Organization: scope.Organization}
	for _, name := range []string{"web", "api", "hidden"} {
		p, err := s.AddProject(as(tess), cofferdam.ProjectRequest{Name: name})
		if err != nil {
			t.Fatal(err)
		}
		if name != "hidden" {
			c.Memberships = append(c.Memberships, identity.Membership{Member: "m", Project: p.Project, Role: identity.Author})
		}
	}
	_, err := s.In(t.Context(), c, "")
	if cofferdam.KindOf(err) != cofferdam.Invalid || err == nil || !strings.Contains(err.Error(), "you are in web, api,") || strings.Contains(err.Error(), "hidden") {
		t.Errorf("%v", err)
	}
	if a, err := s.In(t.Context(), c, "api"); err != nil || a.Scope.Project != c.Memberships[1].Project {
		t.Errorf("%+v, %v", a.Scope, err)
	}
	c.Memberships = c.Memberships[:1]
	if a, err := s.In(t.Context(), c, ""); err != nil || a.Scope.Project != c.Memberships[0].Project {
		t.Errorf("of one alone: %+v, %v", a.Scope, err)
	}
}

func added(_ cofferdam.MemberAdded, err error) error { return err }

// TestWhoLeftProposesNothing: what somebody proposed who has left is nobody's word; it
// can be turned down, and proposed by somebody else.
func TestWhoLeftProposesNothing(t *testing.T) {
	for name, level := range map[string]cofferdam.MemberLevel{"of the project": "", "of everything": cofferdam.OfOrganization} {
		s, _ := world(t)
		bob := member(t, s, "bob", "owner")
		p := propose(t, s, bob, "", "[egress]\nallow = [\"a.test\"]\n")
		if p.Left {
			t.Errorf("%s: %+v", name, p)
		}
		if err := s.RemoveMember(as(tess), "bob", cofferdam.MemberRemoval{Level: level}); err != nil {
			t.Fatal(err)
		}
		seen, err := s.Policy(as(tess), "", p.Version)
		if err != nil || !seen.Left {
			t.Errorf("%s: %+v, %v", name, seen, err)
		}
		if list, err := s.ListPolicies(as(tess), ""); err != nil || len(list) != 1 || !list[0].Left {
			t.Errorf("%s: the list has %+v, %v", name, list, err)
		}
		_, err = s.DecidePolicy(as(tess), p.Version, cofferdam.PolicyDecision{Hash: p.Hash, Take: true})
		if cofferdam.KindOf(err) != cofferdam.Conflict || !strings.Contains(err.Error(), "person:bob, who proposed it") {
			t.Errorf("%s: %v", name, err)
		}
		again := propose(t, s, as(tess), "", p.Text)
		take(t, s, as(tess), again)
		if _, err := s.DecidePolicy(as(tess), p.Version, cofferdam.PolicyDecision{Hash: p.Hash}); err == nil {
			t.Errorf("%s: turned down by what was seen before another counted", name)
		}
		if seen, err = s.Policy(as(tess), "", p.Version); err != nil {
			t.Fatal(err)
		}
		if _, err := s.DecidePolicy(as(tess), p.Version, cofferdam.PolicyDecision{Hash: seen.Hash}); err != nil {
			t.Errorf("%s: it cannot be turned down: %v", name, err)
		}
	}
}
