package sandboxtest

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"cofferdam"
	"cofferdam/sandbox"
)

// raceCallers of testRaces call at the same time.
const raceCallers = 5

// raceRounds is how often each of them does.
func raceRounds() int {
	if soaking() {
		return 30
	}
	return 4
}

// testRaces: whoever calls whatever at the same time, each call ends, with
// success or an error that has a name; the box moves by the table alone; what
// ran in it never notices; and after its end nothing of it is left.
func testRaces(t *testing.T, s *subject) {
	ctx := testContext(t)
	b := s.box(t, nil)
	b.start(t, sandbox.Command{ID: "count", Argv: []string{"bash", "-c", countAloud}, Stdin: true})
	b.waitFor(t, "count", "1\n")
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	states := watchStates(t, b)
	calls := s.calls(t, b)
	race(t, b, seed, calls, map[cofferdam.Kind]bool{cofferdam.Conflict: true})
	if err := b.Resume(ctx); err != nil {
		t.Fatalf("it does not go on: %v (%s)", err, cofferdam.HintOf(err))
	}
	b.shell(t, "true")
	if err := b.Write(ctx, "count", []byte("17\n"), true); err != nil {
		t.Fatal(err)
	}
	r, out, _ := b.do(t, sandbox.Command{ID: "count", Argv: []string{"bash", "-c", countAloud}, Stdin: true})
	if r.Exit != 17 || r.Lost {
		t.Errorf("the command that ran all the time: %+v", r)
	}
	wantCount(t, out)
	calls["destroy"] = func(context.Context) error { return b.Destroy(context.WithoutCancel(ctx)) }
	race(t, b, seed+1, calls, map[cofferdam.Kind]bool{cofferdam.Conflict: true, cofferdam.Unavailable: true, cofferdam.NotFound: true})
	for range 2 {
		if err := b.Destroy(ctx); err != nil {
			t.Errorf("destroy: %v", err)
		}
	}
	states()
	if listed(t, s, b.ID()) {
		t.Error("listed after its end")
	}
	wantGone(t, "", b.ID())
}

var errImpatient = errors.New("the caller went away")

// calls are what callers race with.
func (s *subject) calls(t *testing.T, b *testBox) map[string]func(context.Context) error {
	t.Helper()
	offered := func(c sandbox.Capability, call func(context.Context) error) func(context.Context) error {
		list, err := s.Offers(testContext(t))
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range list {
			for _, can := range o.Can {
				if o.Tier == s.tier && can == c {
					return call
				}
			}
		}
		return nil
	}
	calls := map[string]func(context.Context) error{
		"status": func(ctx context.Context) error { _, err := b.Status(ctx); return err },
		"list":   func(ctx context.Context) error { _, err := s.List(ctx); return err },
		"jobs":   func(ctx context.Context) error { _, err := b.Jobs(ctx); return err },
		"run": func(ctx context.Context) error {
			c := sandbox.Command{ID: cofferdam.ExecID(cofferdam.NewID("x")), Shell: "echo ran; cat", Timeout: time.Minute}
			_, err := sandbox.Run(ctx, b, c, nil, nil)
			return err
		},
		"kill": func(ctx context.Context) error { return b.Kill(ctx, "nobody") },
		"wire": func(ctx context.Context) error {
			f, err := b.Wire(ctx)
			if err == nil {
				err = f.Close()
			}
			return err
		},
		"again":   func(ctx context.Context) error { return s.again(ctx, b) },
		"resume":  b.Resume,
		"pause":   offered(sandbox.CanPause, b.Pause),
		"suspend": offered(sandbox.CanSuspend, b.Suspend),
		"snapshot": offered(sandbox.CanSnapshot, func(ctx context.Context) error {
			id := sandbox.SnapshotID(cofferdam.NewID("s"))
			if _, err := b.Snapshot(ctx, sandbox.Take{ID: id, Memory: true}); err != nil {
				return err
			}
			return s.RemoveSnapshot(ctx, id)
		}),
		"checkpoint": offered(sandbox.CanCheckpoint, func(ctx context.Context) error { return s.checkpoint(ctx, b) }),
	}
	if !s.bounded() {
		delete(calls, "wire")
	}
	for name, call := range calls {
		if call == nil {
			delete(calls, name)
		}
	}
	for _, name := range []string{"pause", "suspend", "resume", "snapshot", "checkpoint", "run", "jobs"} {
		if call := calls[name]; call != nil { // by somebody who goes away in the middle of it
			calls[name+" briefly"] = func(ctx context.Context) error {
				ctx, cancel := context.WithTimeoutCause(ctx, time.Duration(rand.IntN(200))*time.Millisecond, errImpatient)
				defer cancel()
				if err := call(ctx); err != nil && ctx.Err() == nil {
					return err
				}
				return nil // done, or given up
			}
		}
	}
	return calls
}

// checkpoint takes one, compares it with the box and removes it.
func (s *subject) checkpoint(ctx context.Context, b *testBox) error {
	id := sandbox.SnapshotID(cofferdam.NewID("s"))
	if _, err := b.Snapshot(ctx, sandbox.Take{ID: id}); err != nil {
		return err
	}
	_, err := s.Differences(ctx, sandbox.Compare{From: id, Box: b.ID()})
	return cmp.Or(s.RemoveSnapshot(context.WithoutCancel(ctx), id), err)
}

// again tries to make a second box of b's id. Once b is gone there may be one.
func (s *subject) again(ctx context.Context, b *testBox) error {
	other, err := s.Create(ctx, sandbox.Spec{ID: b.ID(), Tier: s.tier, Image: "host"})
	if err == nil {
		err = other.Destroy(ctx)
	}
	return err
}

// race has callers make calls at random, at the same time, until each has made
// its share. Somebody always lets the box go on, so that nobody waits for a
// command of a box that rests.
func race(t *testing.T, b *testBox, seed uint64, calls map[string]func(context.Context) error, allowed map[cofferdam.Kind]bool) {
	t.Helper()
	ctx := testContext(t)
	names := slices.Sorted(maps.Keys(calls)) // the same order for the same seed
	var callers, helper sync.WaitGroup
	over := make(chan struct{})
	helper.Go(func() {
		for {
			select {
			case <-over:
				return
			case <-time.After(20 * time.Millisecond):
				_ = b.Resume(ctx) // refused when it is over
			}
		}
	})
	for i := range raceCallers {
		choose := rand.New(rand.NewPCG(seed, uint64(i)))
		callers.Go(func() {
			for range raceRounds() {
				name := names[choose.IntN(len(names))]
				err := calls[name](ctx)
				if name == "kill" && cofferdam.KindOf(err) == cofferdam.NotFound {
					continue
				}
				if err != nil && !allowed[cofferdam.KindOf(err)] {
					t.Errorf("%s: %v (%s)", name, err, cofferdam.HintOf(err))
				}
			}
		})
	}
	if destroy := calls["destroy"]; destroy != nil { // it is called for certain
		callers.Go(func() {
			if err := destroy(ctx); err != nil {
				t.Errorf("destroy: %v", err)
			}
		})
	}
	callers.Wait()
	close(over)
	helper.Wait()
	if err := ctx.Err(); err != nil {
		t.Fatalf("the callers were not done in time: %v", err)
	}
}

// watchStates looks at every step of a box until the returned function is
// called: each must follow the one before by the table, without a gap.
func watchStates(t *testing.T, b *testBox) (stop func()) {
	t.Helper()
	over, ended := make(chan struct{}), make(chan struct{})
	ctx := testContext(t)
	go func() {
		defer close(ended)
		last := sandbox.Change{}
		for {
			st, err := b.Status(ctx)
			if err != nil { // it is gone
				return
			}
			for i, c := range st.Changes {
				if i > 0 {
					if before := st.Changes[i-1]; c.Sequence != before.Sequence+1 || !before.State.Leads(c.State) {
						t.Errorf("%+v follows %+v", c, before)
					}
				}
				if c.Sequence == last.Sequence && c != last {
					t.Errorf("%+v has become %+v", last, c)
				}
			}
			if now := st.Changes[len(st.Changes)-1]; now.Sequence < last.Sequence || st.State != now.State {
				t.Errorf("it is %s and its last change is %+v, after %+v", st.State, now, last)
			} else {
				last = now
			}
			select {
			case <-over:
				return
			case <-time.After(2 * time.Millisecond):
			}
		}
	}()
	return sync.OnceFunc(func() { close(over); <-ended })
}
