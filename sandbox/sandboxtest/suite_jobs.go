package sandboxtest

import (
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"cofferdam"
	"cofferdam/sandbox"
)

// untilJobs waits until the box has these jobs. What a shell makes on its way is
// there for a moment.
func (b *testBox) untilJobs(t *testing.T, what string, want ...cofferdam.BoxJob) {
	t.Helper()
	ctx := testContext(t)
	for {
		got, err := b.Jobs(ctx)
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if slices.Equal(got, want) {
			return
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			t.Fatalf("%s: %+v, not %+v", what, got, want)
		}
	}
}

// testJobs: what commands have running is counted, also what they left behind
// when they ended, until it ends; U-24.
func testJobs(t *testing.T, s *subject) {
	b := s.box(t, nil)
	ctx := testContext(t)
	b.untilJobs(t, "before any command")
	b.start(t, sandbox.Command{ID: "cat", Argv: []string{"cat"}, Stdin: true})
	b.do(t, sandbox.Command{ID: "left", Shell: "setsid sleep 1000 >/dev/null 2>&1 & sleep 1000 >/dev/null 2>&1 & echo"})
	b.do(t, sandbox.Command{ID: "clean", Shell: "sleep 0.01 & wait"})
	cat, left := cofferdam.BoxJob{Command: "cat", Processes: 1}, cofferdam.BoxJob{Command: "left", Ended: true, Processes: 2}
	b.untilJobs(t, "with a command and two left behind", cat, left)

	var callers sync.WaitGroup
	answers := make(chan error, 40)
	for range cap(answers) {
		callers.Go(func() {
			got, err := b.Jobs(ctx)
			if err == nil && !slices.Equal(got, []cofferdam.BoxJob{cat, left}) {
				err = errors.New("other jobs")
			}
			answers <- err
		})
	}
	callers.Wait()
	close(answers)
	for err := range answers {
		if err != nil {
			t.Errorf("many callers at once: %v", err)
		}
	}
	if err := b.Pause(ctx); s.offers(t, sandbox.CanPause, err) {
		_, err := b.Jobs(ctx)
		wantKind(t, "the jobs of a box that stands still", err, cofferdam.Conflict)
		if err := b.Resume(ctx); err != nil {
			t.Fatal(err)
		}
	}
	b.untilJobs(t, "as before", cat, left)
	if err := b.Kill(ctx, "left"); err != nil {
		t.Fatal(err)
	}
	b.untilJobs(t, "after a kill of what was left", cat)
	if err := b.Write(ctx, "cat", nil, true); err != nil {
		t.Fatal(err)
	}
	b.untilJobs(t, "at the end")
	if err := b.Destroy(ctx); err != nil {
		t.Fatal(err)
	}
	if got, err := b.Jobs(ctx); err == nil {
		t.Errorf("a box that is gone has jobs: %+v", got)
	}
}
