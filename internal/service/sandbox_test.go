package service

import (
	"context"
	"testing"
	"time"

	"cofferdam"
)

// TestSandboxes: who may do what with boxes and checkpoints, and what names stand for.
func TestSandboxes(t *testing.T) {
	s, m := world(t)
	made, err := s.CreateTask(as(alice), request())
	if err != nil {
		t.Fatal(err)
	}
	m.AddSession(cofferdam.Session{ID: "s-00000002", Task: made.ID, Attempt: 1, Phase: "proof"})
	acts := map[string]func(context.Context) error{
		"create":  func(ctx context.Context) error { _, err := s.CreateCheckpoint(ctx, "t-1", "x"); return err },
		"restore": func(ctx context.Context) error { _, err := s.RestoreSandbox(ctx, "t-1", "v0"); return err },
		"remove":  func(ctx context.Context) error { return s.RemoveCheckpoint(ctx, "t-1", "v0") },
	}
	reads := map[string]func(context.Context) error{
		"list":        func(ctx context.Context) error { _, err := s.ListSandboxes(ctx); return err },
		"view":        func(ctx context.Context) error { _, err := s.Sandbox(ctx, "t-1"); return err },
		"checkpoints": func(ctx context.Context) error { _, err := s.ListCheckpoints(ctx, "t-1"); return err },
		"checkpoint":  func(ctx context.Context) error { _, err := s.Checkpoint(ctx, "t-1", "v0"); return err },
		"diff":        func(ctx context.Context) error { _, err := s.DiffCheckpoint(ctx, "t-1", "v0", ""); return err },
	}
	for name, act := range acts {
		if err := act(t.Context()); cofferdam.KindOf(err) != cofferdam.Unauthenticated {
			t.Errorf("%s by nobody: %v", name, err)
		}
		for _, kind := range []cofferdam.PrincipalKind{cofferdam.Agent, cofferdam.Platform, ""} {
			if err := act(as(cofferdam.Principal{Kind: kind, Name: "x"})); cofferdam.KindOf(err) != cofferdam.Forbidden {
				t.Errorf("%s by %q: %v", name, kind, err)
			}
		}
	}
	for name, read := range reads {
		if err := read(t.Context()); cofferdam.KindOf(err) != cofferdam.Unauthenticated {
			t.Errorf("%s by nobody: %v", name, err)
		}
	}
	// A task whose agent has not begun has no box to keep anything of.
	if err := acts["create"](as(alice)); cofferdam.KindOf(err) != cofferdam.NotFound || err == nil {
		t.Errorf("before its session: %v", err)
	}
	m.AddSession(cofferdam.Session{ID: "s-00000001", Task: made.ID, Attempt: 1, Phase: "work"})
	for _, name := range []string{"create", "restore"} {
		if err := acts[name](as(alice)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, read := range reads {
		if err := read(as(alice)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	list, err := s.ListCheckpoints(as(alice), "")
	if err != nil || len(list) != 2 || list[0].Number != 1 || list[0].Name != "v1" || list[0].By != "person:alice" {
		t.Errorf("%+v %v", list, err)
	}
	if list, err = s.ListCheckpoints(as(alice), "s-00000001"); err != nil || len(list) != 2 {
		t.Errorf("by its session: %+v %v", list, err)
	}
	for _, name := range []string{"t-9", "s-99999999", "w-nope", "../x", ""} {
		if _, err := s.Checkpoint(as(alice), name, "v0"); cofferdam.KindOf(err) != cofferdam.NotFound || err == nil {
			t.Errorf("%q: %v", name, err)
		}
		if _, err := s.CreateCheckpoint(as(alice), name, ""); cofferdam.KindOf(err) != cofferdam.NotFound || err == nil {
			t.Errorf("%q: %v", name, err)
		}
	}
	if err := acts["remove"](as(alice)); err != nil {
		t.Error(err)
	}
	if err := acts["remove"](as(alice)); cofferdam.KindOf(err) != cofferdam.NotFound || err == nil {
		t.Errorf("twice: %v", err)
	}
	m.mu.Lock()
	m.sessions = nil
	m.mu.Unlock()
	m.AddSession(cofferdam.Session{ID: "s-00000003", Task: made.ID, Attempt: 2, Phase: "work", Sealed: time.Now()})
	if _, err := s.ListCheckpoints(as(alice), "s-00000003"); cofferdam.KindOf(err) != cofferdam.NotFound || err == nil {
		t.Errorf("of another attempt: %v", err)
	}
}
