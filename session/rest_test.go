package session_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"cofferdam"
	"cofferdam/sandbox"
	"cofferdam/session"
)

// asker is a bench whose agent asks a person in its first turn, and a record of
// what whoever keeps the task is told.
type asker struct {
	*bench
	*mail
	d *sleeper

	mu     sync.Mutex
	stands []string
}

func (a *asker) asks(_ context.Context, _ session.Plan, question string) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.stands = append(a.stands, question)
	return nil
}

const askingTurns = `begin
	if [ $TURN = 1 ]; then
		(trap '' TERM; echo left > left; exec sleep 300) >/dev/null 2>&1 &
		end "cofferdam: question: tabs or spaces?"
	else
		cat left; end "all done"
	fi`

func newAsking(t *testing.T, turns string, idle float64) *asker {
	t.Helper()
	a := &asker{d: &sleeper{asleep: map[cofferdam.BoxID]int64{}}}
	a.bench, a.mail = steered(t, turns)
	a.d.Driver = a.bench.driver
	change := a.change
	a.change = func(o *session.Options) {
		change(o)
		o.Driver, o.Asks, o.Rest = a.d, a.asks, cofferdam.Rest{Idle: idle}
	}
	a.restart()
	return a
}

func (a *asker) plan() session.Plan {
	p := a.pretended()
	p.Request.Ask = true
	return p
}

// seen waits until an event of a kind is on record and returns it.
func (a *asker) seen(p session.Plan, kind string) cofferdam.Event {
	a.t.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		events, err := a.store.Events(context.Background(), p.ID, 0, 1000)
		if err != nil && cofferdam.KindOf(err) != cofferdam.NotFound { // not begun yet
			a.t.Fatal(err)
		}
		for _, e := range events {
			if e.Kind == kind {
				return e
			}
		}
	}
	a.t.Fatalf("no event %s", kind)
	return cofferdam.Event{}
}

func (a *asker) want(p session.Plan, kinds ...string) {
	a.t.Helper()
	var got []string
	for _, e := range a.events(p) {
		switch e.Kind {
		case cofferdam.EventSessionAsk, cofferdam.EventSessionWarn, cofferdam.EventSuspended, cofferdam.EventResumed:
			name := e.Kind
			if e.Outcome != "" {
				name += " " + e.Outcome
			}
			got = append(got, name)
		}
	}
	if strings.Join(got, ", ") != strings.Join(kinds, ", ") {
		a.t.Errorf("events %q, want %q", got, kinds)
	}
}

// TestIdleBoxRests: an agent that asks has its box suspended when nothing is to
// do in it, and goes on in the same box with the answer.
func TestIdleBoxRests(t *testing.T) {
	a := newAsking(t, askingTurns, 0.4)
	p := a.plan()
	done := a.start(context.Background(), p)
	e := a.seen(p, cofferdam.EventSuspended)
	if !a.d.rests() || e.Fields["sequence"] != "1001" || e.Fields["actor"] != "caller" || !strings.HasPrefix(e.Reason, "idle for") {
		t.Errorf("suspended: %+v", e)
	}
	v, err := a.runner.Life(context.Background(), p.ID)
	if err != nil || v.State != "suspended" || v.Sequence != 1001 || v.Ends.IsZero() {
		t.Errorf("life %+v %v", v, err)
	}
	a.mu.Lock()
	if len(a.wires) != 1 || !a.wires[0].closed {
		t.Errorf("wires of a suspended box: %d", len(a.wires))
	}
	a.mu.Unlock()
	a.send("tabs")
	got := <-done
	if got.err != nil || got.result.Failure != "" || got.result.Said != cofferdam.SaidDone {
		t.Fatalf("%+v %v", got.result, got.err)
	}
	a.wantTold(p, got.result, "start message", firstTurn+"\n== resume c-1 quiet\ntabs")
	a.want(p, "session.ask", "session.warning", "session.suspended ok", "session.resumed ok")
	if len(a.wires) != 2 {
		t.Errorf("%d wires", len(a.wires))
	}
	if s := strings.Join(a.stands, ";"); s != "tabs or spaces?;" {
		t.Errorf("stands %q", s)
	}
	a.noBoxes()
	if _, err := a.runner.Life(context.Background(), p.ID); cofferdam.KindOf(err) != cofferdam.NotFound {
		t.Errorf("life after the end: %v", err)
	}
}

// TestAnswerBeforeTheIdleTime: no box is suspended that is answered in time.
func TestAnswerBeforeTheIdleTime(t *testing.T) {
	a := newAsking(t, askingTurns, 600)
	p := a.plan()
	done := a.start(context.Background(), p)
	a.seen(p, cofferdam.EventSessionAsk)
	a.send("tabs")
	if got := <-done; got.err != nil || got.result.Said != cofferdam.SaidDone {
		t.Fatalf("%+v %v", got.result, got.err)
	}
	a.want(p, "session.ask")
}

// TestBusyBoxDoesNotRest: a command that runs in the box keeps it, whatever the
// agent said; here it is one that nobody of the session waits for.
func TestBusyBoxDoesNotRest(t *testing.T) {
	a := newAsking(t, askingTurns, 0.3)
	p := a.plan()
	started := make(chan error, 1)
	change := a.change
	a.change = func(o *session.Options) {
		change(o)
		o.Asks = func(ctx context.Context, _ session.Plan, question string) error {
			if question == "" {
				return nil
			}
			list, err := a.driver.List(ctx)
			if err != nil || len(list) != 1 {
				return err
			}
			b, err := a.driver.Open(ctx, list[0].ID)
			if err == nil {
				err = b.Start(ctx, sandbox.Command{ID: "busy", Shell: "sleep 300"})
			}
			started <- err
			return nil
		}
	}
	a.restart()
	done := a.start(context.Background(), p)
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Second) // three idle times
	if suspends, _ := a.d.counts(); suspends != 0 {
		t.Error("a busy box was suspended")
	}
	a.send("tabs")
	if got := <-done; got.err != nil || got.result.Said != cofferdam.SaidDone {
		t.Fatalf("%+v %v", got.result, got.err)
	}
	a.want(p, "session.ask")
}

// TestBoxThatCannotRest: a driver without suspend keeps it running, and says so
// once.
func TestBoxThatCannotRest(t *testing.T) {
	a := newAsking(t, askingTurns, 0.2)
	a.d.cannot = true
	p := a.plan()
	done := a.start(context.Background(), p)
	e := a.seen(p, cofferdam.EventSuspended)
	if !strings.Contains(e.Reason, "keeps running") || e.Outcome != "failed" {
		t.Errorf("%+v", e)
	}
	time.Sleep(500 * time.Millisecond) // two idle times: it is not said again
	a.send("tabs")
	if got := <-done; got.err != nil || got.result.Said != cofferdam.SaidDone {
		t.Fatalf("%+v %v", got.result, got.err)
	}
	a.want(p, "session.ask", "session.warning", "session.suspended failed")
}

// TestBoxThatIsPaused: where a box cannot go to disk its processes stand still.
func TestBoxThatIsPaused(t *testing.T) {
	a := newAsking(t, askingTurns, 0.2)
	a.d.pauses = true
	p := a.plan()
	done := a.start(context.Background(), p)
	if e := a.seen(p, cofferdam.EventSuspended); e.Fields["mode"] != "memory" || e.Outcome != "ok" {
		t.Errorf("%+v", e)
	}
	a.send("tabs")
	if got := <-done; got.err != nil || got.result.Said != cofferdam.SaidDone {
		t.Fatalf("%+v %v", got.result, got.err)
	}
	a.want(p, "session.ask", "session.warning", "session.suspended ok", "session.resumed ok")
}

// TestBoxThatIsPausedForWantOfDisk: one that cannot be written down stands still
// all the same, and both are on record.
func TestBoxThatIsPausedForWantOfDisk(t *testing.T) {
	a := newAsking(t, askingTurns, 0.2)
	a.d.full = true
	p := a.plan()
	done := a.start(context.Background(), p)
	if e := a.seen(p, cofferdam.EventSuspended); e.Fields["mode"] != "disk" || e.Outcome != "failed" || !strings.Contains(e.Reason, "the disk is full") {
		t.Errorf("%+v", e)
	}
	a.rested(p)
	a.send("tabs")
	if got := <-done; got.err != nil || got.result.Said != cofferdam.SaidDone {
		t.Fatalf("%+v %v", got.result, got.err)
	}
	a.want(p, "session.ask", "session.warning", "session.suspended failed", "session.suspended ok", "session.resumed ok")
}

// TestServerEndsWhileTheBoxRests: the next process finds it suspended, leaves it
// so until there is an answer, and goes on.
func TestServerEndsWhileTheBoxRests(t *testing.T) {
	a := newAsking(t, askingTurns, 0.2)
	p := a.plan()
	ctx, cancel := context.WithCancel(context.Background())
	done := a.start(ctx, p)
	a.seen(p, cofferdam.EventSuspended)
	cancel()
	<-done
	a.restart()
	done = a.start(context.Background(), p)
	for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		if v, err := a.runner.Life(context.Background(), p.ID); err == nil && v.State == "suspended" {
			break
		} else if time.Now().After(end) {
			t.Fatalf("life %+v %v", v, err)
		}
	}
	if _, resumes := a.d.counts(); resumes != 0 {
		t.Error("it was resumed without an answer")
	}
	a.send("tabs")
	got := <-done
	if got.err != nil || got.result.Failure != "" || got.result.Said != cofferdam.SaidDone {
		t.Fatalf("%+v %v", got.result, got.err)
	}
	a.wantTold(p, got.result, "start message", firstTurn+"\n== resume c-1 quiet\ntabs")
	a.want(p, "session.ask", "session.warning", "session.suspended ok", "session.resumed ok")
	a.noBoxes()
}

// TestColdStart: where the box does not come back, a new one takes its place,
// and the agent is told what happened; twice, because it asks again.
func TestColdStart(t *testing.T) {
	a := newAsking(t, `begin
		if [ $TURN = 1 ]; then git add -A; git commit -qm pushed; git push -q origin HEAD; echo lost > lost
			end "cofferdam: question: tabs or spaces?"
		else ls > listing; end "all done"; fi`, 0.2)
	a.d.refuses = "the file is spoilt"
	p := a.plan()
	done := a.start(context.Background(), p)
	a.seen(p, cofferdam.EventSuspended)
	a.send("tabs")
	got := <-done
	if got.err != nil || got.result.Failure != "" || got.result.Said != cofferdam.SaidDone {
		t.Fatalf("%+v %v", got.result, got.err)
	}
	told := a.told(got.result)
	if !strings.Contains(told, "new one: what you had pushed is in the checkout") || !strings.Contains(told, "tabs") {
		t.Errorf("told %s", told)
	}
	e := a.seen(p, cofferdam.EventResumed)
	if e.Fields["mode"] != "cold" || !strings.Contains(e.Reason, "the file is spoilt") {
		t.Errorf("%+v", e)
	}
	if list := a.git("-C", a.repo.Upstream, "show", string(got.result.Head)+":listing"); !strings.Contains(list, "told") || strings.Contains(list, "lost") {
		t.Errorf("files of the new box: %s", list)
	}
	a.noBoxes()
}

// TestLifetime: a session ends when its lifetime is over, whether its agent runs
// or waits; what is there then is taken. A program that can end by itself does.
func TestLifetime(t *testing.T) {
	for name, turns := range map[string]string{
		"waits": `begin; echo work > work; end "cofferdam: question: what now?"`,
		"runs":  `begin; trap 'echo ended > gently; exit 0' TERM; echo work > work; say busy; sleep 300 & wait`,
	} {
		a := newAsking(t, turns, 0.2)
		change := a.change
		a.change = func(o *session.Options) { change(o); o.Rest = cofferdam.Rest{Idle: 0.2, Lifetime: 20} }
		a.restart()
		p := a.plan()
		got := <-a.start(context.Background(), p)
		if got.err != nil || got.result.Failure != "" || !got.result.TimedOut || !strings.Contains(got.result.Reason, "maximum lifetime of 20s") || !a.deaf {
			t.Fatalf("%s: %+v %v", name, got.result, got.err)
		}
		files := a.git("-C", a.repo.Upstream, "ls-tree", "--name-only", string(got.result.Head))
		if !strings.Contains(files, "work") || strings.Contains(files, "gently") != (name == "runs") {
			t.Errorf("%s: files %q", name, files)
		}
		if e := a.seen(p, cofferdam.EventSessionWarn); e.Fields["at"] == "" {
			t.Errorf("%s: %+v", name, e)
		}
		a.noBoxes()
	}
}

// TestQuestionOfATaskThatTakesNone ends the session like any end.
func TestQuestionOfATaskThatTakesNone(t *testing.T) {
	a := newAsking(t, askingTurns, 0.2)
	r := a.run(a.pretended())
	if r.Said != cofferdam.SaidQuestion || r.Message != "tabs or spaces?" || r.Failure != "" {
		t.Errorf("%+v", r)
	}
	if suspends, _ := a.d.counts(); suspends != 0 {
		t.Error("it was suspended")
	}
}
