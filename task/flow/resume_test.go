package flow

import (
	"slices"
	"testing"
	"time"

	"cofferdam"
)

// TestResumeBeginsWithWhatIsToBeDone holds which tasks a server that starts
// waits for: those with something to do. Those that wait for a person can still
// be landed, whether the engine remembers them or not.
func TestResumeBeginsWithWhatIsToBeDone(t *testing.T) {
	ctx := patience(t, 2*time.Minute)
	s := open(t, ctx, nil)
	waiting, err := s.create(ctx, "good")
	if err == nil {
		waiting, err = s.until(ctx, waiting, cofferdam.InReview)
	}
	if err != nil {
		t.Fatal(err)
	}
	working, err := s.create(ctx, "waits")
	if err != nil {
		t.Fatal(err)
	}
	id := <-s.actors.waiting
	listed(t, s, Input{waiting.ID, waiting.Attempt}, true)
	asleep, err := s.flow.resume(ctx)
	if err != nil || len(asleep) != 1 || asleep[0].Task != waiting.ID {
		t.Fatalf("later: %v, %v", asleep, err)
	}
	if again := <-s.actors.waiting; again != id {
		t.Fatalf("it runs %s, want %s of %s", again, id, working.Short())
	}
	if err := s.flow.o.Client.TerminateWorkflow(ctx, workflowID(asleep[0]), "", "forgotten"); err != nil {
		t.Fatal(err)
	}
	listed(t, s, asleep[0], false)
	if asleep, err = s.flow.resume(ctx); err != nil || len(asleep) != 0 {
		t.Fatalf("without a workflow: %v, %v", asleep, err)
	}
	if err := s.merge(ctx, waiting); err != nil {
		t.Fatal(err)
	}
	if waiting, err = s.until(ctx, waiting, cofferdam.Done); err != nil || waiting.State != cofferdam.Done {
		t.Fatalf("landed: %s (%s), %v", waiting.State, waiting.Comment, err)
	}
}

// listed waits until the engine's list, which is behind what it knows, has a
// workflow or has it no more.
func listed(t *testing.T, s *stage, in Input, want bool) {
	t.Helper()
	for range 2400 {
		all, err := s.flow.running(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if slices.Contains(all, in) == want {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Fatalf("in the engine's list after two minutes: %v, want %v", !want, want)
}
