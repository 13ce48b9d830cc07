package service

import (
	"context"
	"strings"
	"testing"

	"cofferdam"
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
	s.Scope.Organization = "o-other"
	if err := s.notRunner("test", scope, "alice"); err != nil {
		t.Errorf("an account of that name elsewhere: %v", err)
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
