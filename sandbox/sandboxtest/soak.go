package sandboxtest

import (
	"context"
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"cofferdam"
	"cofferdam/sandbox"
)

// Soak is how long a driver is tried. Each number has a short form, for every
// change; COFFERDAM_SOAK=1 asks for the full one.
type Soak struct {
	Root   string // the driver's state folder
	Change func(*sandbox.Spec)
	// Cycles of create, run and destroy; Rests of suspend and resume, or of pause
	// where the tier cannot suspend, 0 for a driver that can do neither; AtOnce boxes at the same time.
	Cycles, Rests, AtOnce int
}

// soaking says whether the full form is asked for.
func soaking() bool { return os.Getenv("COFFERDAM_SOAK") != "" }

// short are the numbers of the short form.
const (
	shortCycles = 4
	shortRests  = 3
	shortAtOnce = 4
	warmUp      = 2 // what is made once is made by then
)

// soaked are the tests that ran in full: make soak runs all tests many times,
// and one full run is many already.
var soaked sync.Map

// Run tries a driver for long and then looks for what it left: processes, mounts,
// loop devices, control groups, files, descriptors and goroutines.
func (k Soak) Run(t *testing.T, d sandbox.Driver) {
	if soaking() {
		if _, before := soaked.LoadOrStore(t.Name(), true); before {
			t.Skip("it ran in full before")
		}
	} else {
		k.Cycles, k.Rests, k.AtOnce = min(k.Cycles, shortCycles), min(k.Rests, shortRests), min(k.AtOnce, shortAtOnce)
	}
	s := &subject{Driver: d, tier: tierOf(t, d)}
	s.cycles(t, k, warmUp)
	s.rests(t, k, min(1, k.Rests))
	wantGone(t, k.Root)
	before := heldNow(t)
	t.Logf("%d cycles: %s", k.Cycles, s.cycles(t, k, k.Cycles))
	wantGone(t, k.Root)
	wantNoMore(t, before)
	t.Logf("%d rests: %s", k.Rests, s.rests(t, k, k.Rests))
	wantGone(t, k.Root)
	wantNoMore(t, before)
	s.atOnce(t, k)
	wantGone(t, k.Root)
	wantNoMore(t, before)
	t.Logf("before: %+v, after: %+v", before, heldNow(t))
	if list, err := d.List(t.Context()); err != nil || len(list) > 0 {
		t.Errorf("listed afterwards: %v, %v", list, err)
	}
}

// create makes a box of a soak.
func (s *subject) create(ctx context.Context, k Soak) (sandbox.Box, error) {
	spec := sandbox.Spec{ID: cofferdam.BoxID(cofferdam.NewID("b")), Tier: s.tier, Image: "host"}
	if k.Change != nil {
		k.Change(&spec)
	}
	return s.Create(ctx, spec)
}

// says runs a command and wants what it says.
func says(ctx context.Context, b sandbox.Box, shell, want string) error {
	var out, errs writer
	r, err := sandbox.Run(ctx, b, sandbox.Command{ID: cofferdam.ExecID(cofferdam.NewID("x")), Shell: shell}, &out, &errs)
	if err == nil && (r.Exit != 0 || string(out) != want) {
		err = fmt.Errorf("%s: %+v, %q, %q; want %q", shell, r, out, errs, want)
	}
	return err
}

// writer keeps what is written to it.
type writer []byte

func (w *writer) Write(p []byte) (int, error) { *w = append(*w, p...); return len(p), nil }

// cycles makes, uses and destroys n boxes, one after the other.
func (s *subject) cycles(t *testing.T, k Soak, n int) timings {
	t.Helper()
	var took timings
	for range n {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		began := time.Now()
		b, err := s.create(ctx, k)
		if err == nil {
			err = says(ctx, b, "echo kept >/work/f; echo kept >/tmp/f; cat /work/f /tmp/f", "kept\nkept\n")
			if e := b.Destroy(ctx); err == nil {
				err = e
			}
		}
		took = append(took, time.Since(began))
		if cancel(); err != nil {
			t.Fatalf("cycle %d: %v (%s)", len(took), err, cofferdam.HintOf(err))
		}
	}
	return took
}

// rests has one box rest n times. A command goes on over all of them.
func (s *subject) rests(t *testing.T, k Soak, n int) timings {
	t.Helper()
	b, err := s.create(testContext(t), k)
	if err != nil {
		t.Fatalf("%v (%s)", err, cofferdam.HintOf(err))
	}
	defer func() {
		if err := b.Destroy(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	}()
	stop := b.Suspend
	if list, err := s.Offers(testContext(t)); err != nil || !slices.ContainsFunc(list, func(o sandbox.Offer) bool {
		return o.Tier == s.tier && slices.Contains(o.Can, sandbox.CanSuspend)
	}) {
		stop = b.Pause
	}
	if err := says(testContext(t), b, "echo kept >/tmp/f; sleep 100000 >/dev/null 2>&1 & echo $! >/tmp/pid", ""); err != nil {
		t.Fatal(err)
	}
	var took timings
	for i := range n {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		began := time.Now()
		err := stop(ctx)
		if err == nil {
			err = b.Resume(ctx)
		}
		took = append(took, time.Since(began))
		if err == nil {
			err = says(ctx, b, "cat /tmp/f; kill -0 $(cat /tmp/pid) && echo runs", "kept\nruns\n")
		}
		if cancel(); err != nil {
			t.Fatalf("rest %d: %v (%s)", i+1, err, cofferdam.HintOf(err))
		}
	}
	return took
}

// makers is how many boxes are made at the same time.
const makers = 8

// atOnce has many boxes at the same time, each with a secret of its own.
func (s *subject) atOnce(t *testing.T, k Soak) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*patience)
	defer cancel()
	boxes := make([]sandbox.Box, k.AtOnce)
	each := func(what string, do func(i int) error) {
		t.Helper()
		var all sync.WaitGroup
		turn := make(chan struct{}, makers)
		began := time.Now()
		for i := range boxes {
			all.Go(func() {
				turn <- struct{}{}
				defer func() { <-turn }()
				if err := do(i); err != nil {
					t.Errorf("%s, box %d of %d: %v (%s)", what, i, len(boxes), err, cofferdam.HintOf(err))
				}
			})
		}
		all.Wait()
		t.Logf("%d boxes: %s after %v", len(boxes), what, time.Since(began).Round(time.Millisecond))
	}
	each("made", func(i int) (err error) {
		boxes[i], err = s.create(ctx, k)
		return err
	})
	each("used", func(i int) error {
		if boxes[i] == nil {
			return nil
		}
		return says(ctx, boxes[i], fmt.Sprintf("ls /work; echo %d >/work/f; cat /work/f", i), fmt.Sprintf("%d\n", i))
	})
	each("used again", func(i int) error {
		if boxes[i] == nil {
			return nil
		}
		return says(ctx, boxes[i], "cat /work/f", fmt.Sprintf("%d\n", i))
	})
	each("destroyed", func(i int) error {
		if boxes[i] == nil {
			return nil
		}
		return boxes[i].Destroy(context.WithoutCancel(ctx))
	})
}

// timings say how long something took each time.
type timings []time.Duration

func (l timings) String() string {
	if len(l) == 0 {
		return "none"
	}
	l = slices.Sorted(slices.Values(l))
	at := func(percent int) time.Duration { return l[(len(l)-1)*percent/100].Round(time.Millisecond) }
	return fmt.Sprintf("p50 %v, p95 %v, longest %v", at(50), at(95), at(100))
}
