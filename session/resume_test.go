package session_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"cofferdam"
	"cofferdam/sandbox"
	"cofferdam/session"
)

func atoi(t *testing.T, s string) int64 {
	t.Helper()
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func itoa(n int64) string { return strconv.FormatInt(n, 10) }

// errCut is the cause with which a process goes away.
var errCut = errors.New("the process ends")

func TestAnotherProcessGoesOnWithoutLosingAByte(t *testing.T) {
	b := newBench(t, nil)
	flag := filepath.Join(b.dir, "go-on")
	half := len(secretValue) / 2
	p := b.plan(`echo begin; echo err-begin >&2; printf 'x` + secretValue[:half] + `'
		while [ ! -e ` + flag + ` ]; do sleep 0.05; done
		printf '` + secretValue[half:] + `\n'; seq 1 20000; echo > work.txt; echo finished`)
	ctx, cancel := context.WithCancelCause(context.Background())
	done := b.start(ctx, p)
	b.until(p, "agent", "begin")
	cancel(errCut)
	if got := <-done; !errors.Is(got.err, errCut) {
		t.Fatalf("the first process: %+v %v", got.result, got.err)
	}
	if boxes, _ := b.driver.List(context.Background()); len(boxes) != 1 {
		t.Fatalf("the box did not stay: %v", boxes)
	}
	b.restart()
	if err := os.WriteFile(flag, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	r := b.run(p)
	if r.Failure != "" || r.Message != "finished" || r.Head == "" {
		t.Fatalf("%+v", r)
	}
	var want strings.Builder
	want.WriteString("begin\nx[redacted]\n")
	for i := 1; i <= 20000; i++ {
		fmt.Fprintln(&want, i)
	}
	want.WriteString("finished\n")
	if got := b.output(p, "agent", "stdout"); normal(got) != want.String() {
		t.Errorf("%d bytes on record, want %d; begins %.60q", len(got), want.Len(), got)
	}
	if got := b.output(p, "agent", "stderr"); got != "err-begin\n" {
		t.Errorf("stderr %q", got)
	}
	starts, ends, opens := 0, 0, 0
	for _, e := range b.events(p) {
		switch {
		case e.Kind == cofferdam.EventExecStart && e.Of == nil && e.Resource == "agent":
			starts++
		case e.Kind == cofferdam.EventAgentEnd:
			ends++
		case e.Kind == cofferdam.EventSessionOpen:
			opens++
		}
	}
	if starts != 1 || ends != 1 || opens != 1 {
		t.Errorf("%d starts, %d ends, %d opens", starts, ends, opens)
	}
	if len(b.wires) != 2 || !strings.Contains(b.wires[1].stale, "local_address") {
		t.Errorf("connections of the first process were not reset")
	}
	b.noBoxes()
}

// normal hides the name in the marker of a removed secret.
func normal(s string) string {
	i := strings.Index(s, "[redacted")
	if i < 0 {
		return s
	}
	j := strings.Index(s[i:], "]")
	return s[:i] + "[redacted]" + s[i+j+1:]
}

// cutting is a driver under which the process ends at the nth call that changes
// something: before it happens, or after.
type cutting struct {
	sandbox.Driver
	left   *atomic.Int64 // calls until then; some come at the same time
	before bool
	cut    func()
}

func (c cutting) at(do func() error) error {
	n := c.left.Add(-1)
	if n == 0 && c.before {
		c.cut()
		return errCut
	}
	err := do()
	if n == 0 {
		c.cut()
		return errCut
	}
	return err
}

func (c cutting) Create(ctx context.Context, s sandbox.Spec) (box sandbox.Box, err error) {
	err = c.at(func() error { box, err = c.Driver.Create(ctx, s); return err })
	return cuttingBox{box, c}, err
}

func (c cutting) Open(ctx context.Context, id cofferdam.BoxID) (sandbox.Box, error) {
	box, err := c.Driver.Open(ctx, id)
	return cuttingBox{box, c}, err
}

type cuttingBox struct {
	sandbox.Box
	c cutting
}

func (b cuttingBox) Start(ctx context.Context, c sandbox.Command) error {
	return b.c.at(func() error { return b.Box.Start(ctx, c) })
}

func (b cuttingBox) Attach(ctx context.Context, id cofferdam.ExecID, from sandbox.Offsets, sink sandbox.Sink) (r sandbox.Result, err error) {
	err = b.c.at(func() error { r, err = b.Box.Attach(ctx, id, from, sink); return err })
	return r, err
}

func (b cuttingBox) Kill(ctx context.Context, id cofferdam.ExecID) error {
	return b.c.at(func() error { return b.Box.Kill(ctx, id) })
}

func (b cuttingBox) Destroy(ctx context.Context) error {
	return b.c.at(func() error { return b.Box.Destroy(ctx) })
}

// TestEndOfTheProcessAtEveryCall cuts the process before and after every call
// to the boxes, and each time another process has to come to the same end.
func TestEndOfTheProcessAtEveryCall(t *testing.T) {
	left, before, cut := new(atomic.Int64), false, func() {}
	b := newBench(t, func(o *session.Options) {
		o.Driver = cutting{o.Driver, left, before, func() { cut() }}
		o.Env = pretendClaude(t)
	})
	for name, make := range map[string]func() session.Plan{
		"work": func() session.Plan { return b.plan("echo working; echo $$ >> runs.txt; echo 'done' ") },
		"proof": func() session.Plan {
			return b.proof(b.base, "echo $$ >> runs.txt; wc -l < runs.txt", "echo $$ >> runs.txt; wc -l < runs.txt")
		},
		"setup": b.claude,
	} {
		for _, before = range []bool{true, false} {
			for n := 1; ; n++ {
				p := make()
				p.Branch = cofferdam.Ref(fmt.Sprintf("refs/heads/cofferdam/%s-%v-%d", name, before, n))
				ctx, cancel := context.WithCancelCause(context.Background())
				cut = func() { cancel(errCut) }
				left.Store(int64(n))
				if err := os.RemoveAll(filepath.Join(b.dir, "env")); err != nil {
					t.Fatal(err)
				}
				b.restart()
				r, err := b.runner.Run(ctx, p)
				over := err == nil && left.Load() > 0
				if err != nil {
					left.Store(0)
					b.restart()
					r = b.run(p)
				}
				cancel(nil)
				b.sameEnd(fmt.Sprintf("%s, call %d, before %v", name, n, before), p, r)
				if over {
					if n < 8 {
						t.Errorf("%s made only %d calls: the test cuts nothing", name, n)
					}
					break
				}
			}
		}
	}
}

// sameEnd checks what must come of a session, wherever its process was cut.
func (b *bench) sameEnd(name string, p session.Plan, r session.Result) {
	b.t.Helper()
	b.noBoxes()
	if r.Failure != "" || r.Sealed.Size == 0 {
		b.t.Errorf("%s: %+v", name, r)
		return
	}
	ends := 0
	for _, e := range b.events(p) {
		if e.Kind == cofferdam.EventAgentEnd || e.Kind == cofferdam.EventSessionState && e.Fields["step"] == "result" {
			ends++
		}
	}
	want := 2 // the agent's and the session's
	if p.Checks != nil {
		want = 1
	}
	if ends != want {
		b.t.Errorf("%s: %d ends on record, want %d", name, ends, want)
	}
	switch {
	case p.Checks != nil:
		if len(r.Checks) != 2 || strings.TrimSpace(r.Checks[0].Tail) != "1" || strings.TrimSpace(r.Checks[1].Tail) != "1" {
			b.t.Errorf("%s: %+v", name, r.Checks)
		}
	case p.Request.Agent == "claude":
		tools := 0
		for _, e := range b.events(p) {
			if e.Kind == cofferdam.EventAgentTool {
				tools++
			}
		}
		if r.Said != cofferdam.SaidNothingToDo || tools != 2 {
			b.t.Errorf("%s: %d events of tools, %+v", name, tools, r)
		}
	default:
		if runs := b.git("-C", b.repo.Upstream, "show", string(r.Head)+":runs.txt"); strings.Contains(runs, "\n") {
			b.t.Errorf("%s: the agent ran more than once", name)
		}
		if log := b.git("-C", b.repo.Upstream, "rev-list", string(b.base)+".."+string(r.Head)); strings.Contains(log, "\n") {
			b.t.Errorf("%s: more than one commit", name)
		}
		if out := b.output(p, "agent", "stdout"); out != "working\ndone\n" || r.Message != "done" {
			b.t.Errorf("%s: on record %q", name, out)
		}
	}
}

func TestLostBoxIsSaid(t *testing.T) {
	b := newBench(t, nil)
	p := b.plan("echo started; sleep 60")
	done := b.start(context.Background(), p)
	b.until(p, "agent", "started")
	boxes, err := b.driver.List(context.Background())
	if err != nil || len(boxes) != 1 {
		t.Fatal(boxes, err)
	}
	box, err := b.driver.Open(context.Background(), boxes[0].ID)
	if err != nil {
		t.Fatal(err)
	}
	if err := box.Destroy(context.Background()); err != nil {
		t.Fatal(err)
	}
	if got := <-done; got.err != nil || got.result.Failure != "box" || got.result.Sealed.Size == 0 {
		t.Fatalf("%+v %v", got.result, got.err)
	}
	p = b.plan("echo started; sleep 60")
	ctx, cancel := context.WithCancelCause(context.Background())
	done = b.start(ctx, p)
	b.until(p, "agent", "started")
	cancel(errCut)
	<-done
	boxes, _ = b.driver.List(context.Background())
	if box, err = b.driver.Open(context.Background(), boxes[0].ID); err != nil {
		t.Fatal(err)
	}
	if err := box.Destroy(context.Background()); err != nil {
		t.Fatal(err)
	}
	b.restart()
	if r := b.run(p); r.Failure != "box" {
		t.Errorf("lost while nobody looked: %+v", r)
	}
}

// TestNothingIsBlamedOnTheWorkWhenTheServerWasAway holds that what failed in a
// box while no server served its wire is done again: the platform's own commands
// in the same box, a check in another session.
func TestNothingIsBlamedOnTheWorkWhenTheServerWasAway(t *testing.T) {
	b := newBench(t, nil)
	for _, command := range []string{"checkout", "capture"} {
		p := b.plan("echo x > x")
		p.Branch = cofferdam.Ref("refs/heads/cofferdam/" + command)
		b.away(p, command)
		r := b.run(p)
		if r.Failure != "" || r.Head == "" || b.git("-C", b.repo.Upstream, "rev-list", "--count", string(b.base)+".."+string(r.Head)) != "1" {
			t.Errorf("%s: %+v", command, r)
		}
		if again := b.run(p); again.Head != r.Head {
			t.Errorf("%s, asked again: %+v", command, again)
		}
	}
	p := b.proof(b.base, "echo begun; test -e "+filepath.Join(b.dir, "network"))
	b.away(p, "check-1")
	if r := b.run(p); r.Failure != "box" || len(r.Checks) != 0 {
		t.Errorf("check: %+v", r)
	}
	b.noBoxes()
}

// away runs a session whose process ends while command runs, which then fails.
func (b *bench) away(p session.Plan, command string) {
	b.t.Helper()
	gone := b.repo.Upstream + ".gone"
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	change := b.change
	b.change = func(o *session.Options) {
		o.Driver = leaving{o.Driver, cofferdam.ExecID(command), func() {
			if command != "check-1" {
				b.rename(b.repo.Upstream, gone)
			}
			cancel(errCut)
		}}
	}
	b.restart()
	if _, err := b.runner.Run(ctx, p); !errors.Is(err, errCut) {
		b.t.Fatalf("%s: the process did not end: %v", command, err)
	}
	b.change = change
	b.restart()
	boxes, err := b.driver.List(context.Background())
	if err != nil || len(boxes) != 1 {
		b.t.Fatal(boxes, err)
	}
	box, err := b.driver.Open(context.Background(), boxes[0].ID)
	if err != nil {
		b.t.Fatal(err)
	}
	nothing := func(sandbox.Stream, int64, []byte) error { return nil }
	if r, err := box.Attach(context.Background(), cofferdam.ExecID(command), sandbox.Offsets{}, nothing); err != nil || r.Exit == 0 {
		b.t.Fatalf("%s: it did not fail: %+v %v", command, r, err)
	}
	if command != "check-1" {
		b.rename(gone, b.repo.Upstream)
	}
}

func (b *bench) rename(from, to string) {
	b.t.Helper()
	if err := os.Rename(from, to); err != nil {
		b.t.Fatal(err)
	}
}

// leaving is a driver under which the process ends just before it follows a command.
type leaving struct {
	sandbox.Driver
	at    cofferdam.ExecID
	leave func()
}

func (l leaving) Create(ctx context.Context, s sandbox.Spec) (sandbox.Box, error) {
	box, err := l.Driver.Create(ctx, s)
	return leavingBox{box, l}, err
}

type leavingBox struct {
	sandbox.Box
	l leaving
}

func (b leavingBox) Start(ctx context.Context, c sandbox.Command) error {
	if c.ID == b.l.at {
		b.l.leave()
		return errors.Join(b.Box.Start(context.WithoutCancel(ctx), c), errCut)
	}
	return b.Box.Start(ctx, c)
}

func TestWhatCannotBeRecordedStopsTheSessionNotTheBox(t *testing.T) {
	b := newBench(t, nil)
	flag := filepath.Join(b.dir, "go-on")
	p := b.plan("echo begin; while [ ! -e " + flag + " ]; do sleep 0.05; done; echo end; echo x > x")
	done := b.start(context.Background(), p)
	b.until(p, "agent", "begin")
	if err := b.store.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(flag, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := <-done; got.err == nil {
		t.Fatalf("it went on without a record: %+v", got.result)
	}
	b.store = nil
	b.restart()
	if r := b.run(p); r.Failure != "" || r.Head == "" || b.output(p, "agent", "stdout") != "begin\nend\n" {
		t.Errorf("%+v\n%q", r, b.output(p, "agent", "stdout"))
	}
	b.noBoxes()
}

func TestTooMuchOutputEndsTheCommand(t *testing.T) {
	b := newBench(t, func(o *session.Options) { o.MaxOutput = 1 << 20 })
	p := b.proof(b.base, "yes", "echo fine")
	r := b.run(p)
	if len(r.Checks) != 2 || len(r.Checks[0].Exhausted) != 1 || r.Checks[0].Exhausted[0] != "output" || r.Checks[0].Exit == 0 || r.Checks[1].Exit != 0 {
		t.Errorf("%+v", r.Checks)
	}
	if n := len(b.output(p, "check-1", "stdout")); n < 1<<19 || n > 1<<20 {
		t.Errorf("%d bytes on record", n)
	}
	if again := b.run(p); len(again.Checks) != 2 || again.Checks[0].Stdout != r.Checks[0].Stdout {
		t.Errorf("asked again: %+v", again.Checks)
	}
}
