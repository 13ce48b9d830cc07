package service

import (
	"math"
	"testing"

	"cofferdam"
)

func TestEnvironments(t *testing.T) {
	s, _ := world(t)
	if _, err := s.ListEnvironments(t.Context()); cofferdam.KindOf(err) != cofferdam.Unauthenticated {
		t.Errorf("nobody: %v", err)
	}
	agent := as(cofferdam.Principal{Kind: cofferdam.Agent, Name: "a"})
	if err := s.RemoveEnvironment(agent, "aaaa1111"); cofferdam.KindOf(err) != cofferdam.Forbidden {
		t.Errorf("an agent removes: %v", err)
	}
	if err := s.RollbackEnvironment(agent, "aaaa1111"); cofferdam.KindOf(err) != cofferdam.Forbidden {
		t.Errorf("an agent rolled one back: %v", err)
	}
	if _, err := s.PruneEnvironments(agent, cofferdam.PruneRequest{Age: 1}); cofferdam.KindOf(err) != cofferdam.Forbidden {
		t.Errorf("an agent prunes: %v", err)
	}
	ctx := as(cofferdam.Principal{Kind: cofferdam.Person, Name: "p"})
	if all, err := s.ListEnvironments(ctx); err != nil || len(all) != 2 {
		t.Errorf("%v %v", all, err)
	}
	for name, kind := range map[string]cofferdam.Kind{"aaaa": cofferdam.Invalid, "aaa": cofferdam.Invalid, "": cofferdam.Invalid, "bbbb": cofferdam.NotFound, "sha256:": cofferdam.Invalid} {
		if _, err := s.Environment(ctx, name); err == nil || cofferdam.KindOf(err) != kind {
			t.Errorf("%q: %v", name, err)
		}
	}
	if e, err := s.Environment(ctx, "sha256:aaaa2"); err != nil || e.Kind != "image" {
		t.Errorf("%+v %v", e, err)
	}
	for _, r := range []cofferdam.PruneRequest{{}, {Age: -1}, {Size: -1}, {Age: math.NaN()}, {Age: math.Inf(1)}} {
		if _, err := s.PruneEnvironments(ctx, r); cofferdam.KindOf(err) != cofferdam.Invalid || err == nil {
			t.Errorf("%+v: %v", r, err)
		}
	}
	if gone, err := s.PruneEnvironments(ctx, cofferdam.PruneRequest{Age: 1}); err != nil || len(gone) != 2 {
		t.Errorf("%v %v", gone, err)
	}
}
