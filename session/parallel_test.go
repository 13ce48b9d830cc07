package session_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"cofferdam"
	"cofferdam/environment"
	"cofferdam/sandbox"
	"cofferdam/session"
)

// poll waits until ok says so.
func (b *bench) poll(what string, ok func() bool) {
	b.t.Helper()
	for end := time.Now().Add(2 * time.Minute); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			b.t.Fatal("in vain: " + what)
		}
	}
}

// count is how many events of a kind are on record that a field fits.
func (b *bench) count(p session.Plan, kind, field, value string) (n int) {
	b.t.Helper()
	events, err := b.store.Events(context.Background(), p.ID, 0, 1000)
	if err != nil && cofferdam.KindOf(err) != cofferdam.NotFound { // not begun yet
		b.t.Fatal(err)
	}
	for _, e := range events {
		if e.Kind == kind && (field == "" || e.Fields[field] == value) {
			n++
		}
	}
	return n
}

// rested waits until a session's box rests.
func (a *asker) rested(p session.Plan) {
	a.t.Helper()
	a.poll("its box rests", func() bool { return a.count(p, cofferdam.EventSuspended, "actor", sandbox.ByCaller) > 0 })
}

// queued is how often a session had to wait for its turn.
func (a *asker) queued(p session.Plan) int {
	return a.count(p, cofferdam.EventSessionState, "step", "queued")
}

// life is what the reason of a session's box says, if it waits for its turn.
func (a *asker) life(p session.Plan) string {
	v, err := a.runner.Life(context.Background(), p.ID)
	if err != nil || !strings.Contains(v.Reason, "turn") {
		return ""
	}
	return v.State + ": " + v.Reason
}

func (d *sleeper) mostAwake() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.most
}

// waitingTurns is askingTurns whose turns wait for a word of the test.
var waitingTurns = "[ $TURN = 1 ] && wait_for go || wait_for end\n" + askingTurns

// newPair is a bench with so many turns, and two sessions for it.
func newPair(t *testing.T, idle float64, parallel int) (a *asker, p, q session.Plan) {
	t.Helper()
	a = newAsking(t, waitingTurns, idle)
	change := a.change
	a.change = func(o *session.Options) { change(o); o.Parallel = parallel }
	a.restart()
	p, q = a.plan(), a.plan()
	q.Number, q.Branch = 8, "refs/heads/cofferdam/t-8-1"
	return a, p, q
}

func (a *asker) wantDone(all ...<-chan outcome) {
	a.t.Helper()
	for _, c := range all {
		if got := <-c; got.err != nil || got.result.Failure != "" || got.result.Said != cofferdam.SaidDone {
			a.t.Fatalf("%+v %v", got.result, got.err)
		}
	}
	a.noBoxes()
}

// TestTwoAnswersAtOnce: two tasks wait and are answered in the same moment. With one
// turn no two boxes ever run, whether they came to rest by themselves or because
// the other needed the turn; with two turns they do, which is the control.
func TestTwoAnswersAtOnce(t *testing.T) {
	for name, c := range map[string]struct {
		idle     float64
		parallel int
	}{"both rest": {0.3, 1}, "one rests for the other": {600, 1}, "two turns": {0.3, 2}} {
		t.Run(name, func(t *testing.T) {
			a, p, q := newPair(t, c.idle, c.parallel)
			one, two := a.start(context.Background(), p), a.start(context.Background(), q)
			if c.parallel == 2 {
				a.poll("two run", func() bool { return a.d.mostAwake() == 2 })
			}
			a.let("go")
			if c.idle < 1 {
				a.rested(p)
				a.rested(q)
			} else {
				a.seen(p, cofferdam.EventSessionAsk)
				a.seen(q, cofferdam.EventSessionAsk)
			}
			a.send("tabs")
			if c.parallel == 1 { // the one came first, at the start and after the answer; and who has not given its turn back yet may wait once more
				a.poll("one waits for the other", func() bool { return a.queued(p)+a.queued(q) >= 2 })
				a.poll("its life says so", func() bool { return strings.Contains(a.life(p)+a.life(q), "it waits for its turn: ") })
			}
			a.let("end")
			a.wantDone(one, two)
			if n := a.d.mostAwake(); n != c.parallel {
				t.Errorf("%d boxes ran at a time, want %d", n, c.parallel)
			}
			for _, e := range append(a.events(p), a.events(q)...) {
				if e.Kind == cofferdam.EventSuspended && c.idle > 1 && !strings.Contains(e.Reason, "another session for its turn") {
					t.Errorf("suspended: %s", e.Reason)
				}
			}
		})
	}
}

// TestBoxThatCannotRestKeepsItsTurn: who has a box that goes on running while its
// agent waits has the turn until the answer.
func TestBoxThatCannotRestKeepsItsTurn(t *testing.T) {
	a, p, q := newPair(t, 0.2, 1)
	a.d.cannot = true
	one := a.start(context.Background(), p)
	a.poll("it runs", func() bool { return a.d.mostAwake() == 1 })
	two := a.start(context.Background(), q)
	a.poll("the other waits", func() bool { return a.queued(q) == 1 })
	a.let("go")
	if e := a.seen(p, cofferdam.EventSuspended); !strings.Contains(e.Reason, "and its turn") {
		t.Errorf("%+v", e)
	}
	a.let("end")
	a.send("tabs")
	if got := <-one; got.err != nil || got.result.Said != cofferdam.SaidDone {
		t.Fatalf("%+v %v", got.result, got.err)
	}
	a.seen(q, cofferdam.EventSessionAsk)
	a.send("tabs")
	a.wantDone(two)
	if n := a.d.mostAwake(); n != 1 {
		t.Errorf("%d boxes ran at a time", n)
	}
}

// TestCancelledInTheQueue: a session that waits for its turn ends at once with its
// task, and leaves no place behind.
func TestCancelledInTheQueue(t *testing.T) {
	a, p, q := newPair(t, 600, 1)
	one := a.start(context.Background(), p)
	a.poll("it runs", func() bool { return a.d.mostAwake() == 1 })
	ctx, cancel := context.WithCancelCause(context.Background())
	two := a.start(ctx, q)
	a.poll("the other waits", func() bool { return a.queued(q) == 1 })
	cancel(session.ErrTaskEnded)
	if got := <-two; got.err != nil || got.result.Failure != cofferdam.ReasonCancelled || got.result.Sealed.Size == 0 {
		t.Fatalf("%+v %v", got.result, got.err)
	}
	a.let("go")
	a.let("end")
	a.seen(p, cofferdam.EventSessionAsk)
	a.send("tabs")
	a.wantDone(one)
	if r := a.run(a.bench.plan("true")); r.Failure != "" {
		t.Errorf("the turn is gone: %+v", r)
	}
}

// TestTurnsOfTheNextServer: a box that runs when a server ends has its turn at the
// next one at once; one that rests has none until its answer.
func TestTurnsOfTheNextServer(t *testing.T) {
	a, p, q := newPair(t, 600, 1)
	ctx, cancel := context.WithCancelCause(context.Background())
	one := a.start(ctx, p)
	a.poll("it runs", func() bool { return a.d.mostAwake() == 1 })
	two := a.start(ctx, q)
	a.poll("the other waits", func() bool { return a.queued(q) == 1 })
	a.let("go")
	a.rested(p)
	a.seen(q, cofferdam.EventSessionAsk)
	cancel(errCut)
	<-one
	<-two
	a.restart()
	one = a.start(context.Background(), p)
	a.poll("it is known again", func() bool {
		v, err := a.runner.Life(context.Background(), p.ID)
		return err == nil && v.State == "suspended"
	})
	two = a.start(context.Background(), q)
	a.poll("so is the other", func() bool { // from then on it has its turn
		v, err := a.runner.Life(context.Background(), q.ID)
		return err == nil && v.State == "idle"
	})
	a.let("end")
	a.send("tabs")
	a.wantDone(one, two)
	if n := a.d.mostAwake(); n != 1 {
		t.Errorf("%d boxes ran at a time", n)
	}
}

// TestSetupOfAWaitingTaskHasATurn: a server that finds a box at rest and its
// environment gone makes that anew only when it is the session's turn.
func TestSetupOfAWaitingTaskHasATurn(t *testing.T) {
	a, _, _ := newPair(t, 0.2, 1)
	q := a.bench.plan(fmt.Sprintf("while [ ! -e %s/end ]; do sleep 0.05; done", a.scripts))
	q.Number, q.Branch = 8, "refs/heads/cofferdam/t-8-1"
	a.base = a.commit(map[string]string{environment.RecipePath: `setup = ["echo made > made"]`})
	p := a.plan()
	steps := func(p session.Plan, step string) int { return a.count(p, cofferdam.EventSessionState, "step", step) }
	ctx, cancel := context.WithCancelCause(context.Background())
	one := a.start(ctx, p)
	a.let("go")
	a.rested(p)
	cancel(errCut)
	<-one
	if err := os.RemoveAll(filepath.Join(a.dir, "env")); err != nil {
		t.Fatal(err)
	}
	a.restart()
	two := a.start(context.Background(), q)
	a.poll("the other runs", func() bool { return steps(q, "ready") == 1 })
	one = a.start(context.Background(), p)
	a.poll("it waits for its turn", func() bool { return a.queued(p) == 1 })
	if n := steps(p, "setup"); n != 1 {
		t.Errorf("%d setups while the other has the turn, the first of an earlier server", n)
	}
	a.let("end")
	if got := <-two; got.err != nil || got.result.Failure != "" {
		t.Fatalf("%+v %v", got.result, got.err)
	}
	a.send("tabs")
	a.wantDone(one)
	if n := steps(p, "setup"); n != 2 {
		t.Errorf("%d setups, and its environment was gone", n)
	}
}
