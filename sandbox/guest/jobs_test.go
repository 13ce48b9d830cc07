package guest_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	"cofferdam"
	"cofferdam/sandbox"
	"cofferdam/sandbox/guest"
)

// jobs is one call of Jobs and its end.
type jobs struct {
	list []cofferdam.BoxJob
	err  error
}

func askJobs(ctx context.Context, h *guest.Host) <-chan jobs {
	done := make(chan jobs, 1)
	go func() {
		list, err := h.Jobs(ctx)
		done <- jobs{list, err}
	}()
	return done
}

// asked is a box with one command and a count that was asked for.
func asked(t *testing.T) (*scripted, <-chan jobs) {
	t.Helper()
	s := newScripted(t, `{"version":2,"pid":1}`)
	if err := s.Ready(testContext(t)); err != nil {
		t.Fatal(err)
	}
	if err := s.Start(testContext(t), sandbox.Command{ID: "a", Argv: []string{"x"}}); err != nil {
		t.Fatal(err)
	}
	s.want(t, guest.KindStart)
	done := askJobs(testContext(t), s.Host)
	s.want(t, guest.KindCount)
	return s, done
}

func TestJobs(t *testing.T) {
	s, first := asked(t)
	// Who asks meanwhile gets the same answer, and pid 1 is not asked again.
	gone, leave := context.WithCancel(testContext(t))
	second, away := askJobs(testContext(t), s.Host), askJobs(gone, s.Host)
	leave()
	if j := <-away; !errors.Is(j.err, context.Canceled) {
		t.Errorf("who goes away: %+v", j)
	}
	s.say(guest.KindCounted, 0, `{"counts":[{"command":1,"processes":3},{"command":0,"processes":2}]}`)
	want := []cofferdam.BoxJob{{Processes: 2}, {Command: "a", Processes: 3}}
	for _, j := range []jobs{<-first, <-second} {
		if j.err != nil || !slices.Equal(j.list, want) {
			t.Errorf("%+v", j)
		}
	}
	s.Hold("it is paused")
	if _, err := s.Jobs(testContext(t)); cofferdam.KindOf(err) != cofferdam.Conflict || !strings.Contains(err.Error(), "it is paused") {
		t.Errorf("while held: %v", err)
	}
	s.Release()
	third := askJobs(testContext(t), s.Host)
	s.want(t, guest.KindCount)
	s.out.Close()
	if j := <-third; cofferdam.KindOf(j.err) != cofferdam.Unavailable {
		t.Errorf("a box that ended: %+v", j)
	}
	if _, err := s.Jobs(testContext(t)); cofferdam.KindOf(err) != cofferdam.Unavailable {
		t.Errorf("a box that had ended: %v", err)
	}
}

// TestHostileCounts: a pid 1 that counts what cannot be is no pid 1.
func TestHostileCounts(t *testing.T) {
	many := strings.Repeat(`{"command":1,"processes":1},`, guest.MaxCounts)
	for name, payload := range map[string]string{
		"no JSON":               "\xff",
		"a command of none":     `{"counts":[{"command":2,"processes":1}]}`,
		"a number beyond all":   `{"counts":[{"command":4294967295,"processes":1}]}`,
		"no process":            `{"counts":[{"command":1,"processes":0}]}`,
		"less than none":        `{"counts":[{"command":1,"processes":-5}]}`,
		"a command twice":       `{"counts":[{"command":1,"processes":1},{"command":1,"processes":1}]}`,
		"more than are allowed": fmt.Sprintf(`{"counts":[%s{"command":0,"processes":1}]}`, many),
	} {
		s, done := asked(t)
		s.say(guest.KindCounted, 0, payload)
		if j := <-done; cofferdam.KindOf(j.err) != cofferdam.Unavailable {
			t.Errorf("%s: %+v", name, j)
		}
	}
	s, done := asked(t)
	s.say(guest.KindCounted, 0, "{}")
	if j := <-done; j.err != nil || len(j.list) != 0 {
		t.Errorf("nothing runs: %+v", j)
	}
	s.say(guest.KindCounted, 0, "{}") // nobody asked
	<-s.Done()
}

// TestCountOverACopy: a count that was asked for when a box was written down is
// answered to its copy, which did not ask, and takes it.
func TestCountOverACopy(t *testing.T) {
	s, done := asked(t)
	st := s.State()
	s.say(guest.KindCounted, 0, "{}")
	if j := <-done; j.err != nil {
		t.Fatal(j.err)
	}
	if !st.Counting || s.State().Counting {
		t.Errorf("state: %+v, then %+v", st.Counting, s.State().Counting)
	}
	toInit, w := pipe(t)
	r, fromInit := pipe(t)
	h, err := guest.RestoreHost(w, r, t.TempDir()+"/j", guest.Options{Config: guest.Config{UID: 1, GID: 1}, Life: sandbox.NewLife()}, st)
	if err != nil {
		t.Fatal(err)
	}
	copied := &scripted{Host: h, in: guest.NewReader(toInit, guest.MaxStart), out: fromInit}
	t.Cleanup(func() { h.Close("test over"); toInit.Close(); fromInit.Close() })
	woken := make(chan error, 1)
	go func() { woken <- h.Wake(testContext(t), guest.Identity{}) }()
	copied.want(t, guest.KindWake)
	copied.say(guest.KindAwake, 0, "{}")
	if err := <-woken; err != nil {
		t.Fatal(err)
	}
	copied.say(guest.KindCounted, 0, `{"counts":[{"command":1,"processes":1}]}`)
	h.Release()
	for ctx := testContext(t); h.State().Counting; { // until the late answer is taken
		if err := ctx.Err(); err != nil {
			t.Fatal(err)
		}
		runtime.Gosched()
	}
	again := askJobs(testContext(t), h)
	copied.want(t, guest.KindCount)
	copied.say(guest.KindCounted, 0, `{"counts":[{"command":1,"processes":1}]}`)
	if j := <-again; j.err != nil || !slices.Equal(j.list, []cofferdam.BoxJob{{Command: "a", Processes: 1}}) {
		t.Errorf("the copy's: %+v", j)
	}
}
