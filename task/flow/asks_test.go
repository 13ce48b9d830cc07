package flow

import (
	"context"
	"strings"
	"testing"
	"time"

	"cofferdam"
)

// TestWaitingTakesNoTurn: a task whose agent asks is waiting, with its question,
// and takes no turn from others; a message makes it run, and it goes on.
func TestWaitingTakesNoTurn(t *testing.T) {
	ctx := patience(t, 2*time.Minute)
	s := open(t, ctx, nil)
	v, err := s.create(ctx, "asks")
	if err != nil {
		t.Fatal(err)
	}
	<-s.actors.waiting
	v, err = s.tasks.ByID(ctx, v.ID)
	if err != nil || v.State != cofferdam.Waiting || !strings.Contains(v.Comment, "which way?") {
		t.Fatalf("%s %q %v", v.State, v.Comment, err)
	}
	if n := len(s.flow.steps.slots); n != 0 {
		t.Errorf("it holds %d turns", n)
	}
	if _, err := s.tasks.Send(ctx, s.scope, ada, v.Short(), "that way"); err != nil {
		t.Fatal(err)
	}
	if v, err = s.tasks.ByID(ctx, v.ID); err != nil || v.State != cofferdam.Running || v.Comment != "" {
		t.Fatalf("after the answer: %s %q %v", v.State, v.Comment, err)
	}
	close(s.actors.answer)
	if v, err = s.until(ctx, v, cofferdam.InReview); err != nil || v.State != cofferdam.InReview {
		t.Fatalf("%s %q %v", v.State, v.Comment, err)
	}
}

// TestTurns: a session has one turn however often it asks for it, and gives it
// back once.
func TestTurns(t *testing.T) {
	s := newSteps(Options{Parallel: 1})
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for range 2 {
		if err := s.hold(t.Context(), "s-1"); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.hold(ended, "s-2"); err == nil {
		t.Error("two have the only turn")
	}
	s.free("s-1")
	s.free("s-1")
	if err := s.hold(t.Context(), "s-2"); err != nil {
		t.Fatal(err)
	}
	s.free("s-2")
	if len(s.slots) != 0 || len(s.held) != 0 {
		t.Errorf("%d turns, %v", len(s.slots), s.held)
	}
}
