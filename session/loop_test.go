package session_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"cofferdam"
	"cofferdam/agent/loop"
	"cofferdam/agent/rehearsal"
	"cofferdam/gateway"
	"cofferdam/gateway/wire"
	"cofferdam/session"
)

// talks keeps conversations like the store does, apart from any process. An
// append can be a place where the process ends: it counts with left.
type talks struct {
	mu      sync.Mutex
	entries map[cofferdam.SessionID][]loop.Entry
	before  func() error
	after   func() error
}

func (k *talks) of(_ cofferdam.Scope, id cofferdam.SessionID) loop.Conversation { return talk{k, id} }

type talk struct {
	k  *talks
	id cofferdam.SessionID
}

func (c talk) Entries(context.Context) ([]loop.Entry, error) {
	c.k.mu.Lock()
	defer c.k.mu.Unlock()
	return append([]loop.Entry{}, c.k.entries[c.id]...), nil
}

func (c talk) Append(_ context.Context, e loop.Entry) error {
	if c.k.before != nil {
		if err := c.k.before(); err != nil {
			return err
		}
	}
	c.k.mu.Lock()
	if have := len(c.k.entries[c.id]); e.Number != have+1 {
		c.k.mu.Unlock()
		return fmt.Errorf("entry %d follows %d", e.Number, have)
	}
	c.k.entries[c.id] = append(c.k.entries[c.id], e)
	c.k.mu.Unlock()
	if c.k.after != nil {
		return c.k.after()
	}
	return nil
}

// actor serves a rehearsal where the model gateway would be.
type actor struct{ handler http.Handler }

func (m actor) Serve(c *gateway.Caller, conn net.Conn, _ gateway.Target) {
	gateway.ServeHTTP(c, conn, m.handler)
}

func scripted(t *testing.T, script string) gateway.Handler {
	t.Helper()
	s, err := rehearsal.Parse(strings.NewReader(script))
	if err != nil {
		t.Fatal(err)
	}
	return actor{s.Handler()}
}

// thinking is a bench for our own agent.
func thinking(t *testing.T, script string, change func(*session.Options)) (*bench, *talks) {
	k := &talks{entries: map[cofferdam.SessionID][]loop.Entry{}}
	handler := scripted(t, script)
	b := newBench(t, func(o *session.Options) {
		o.Conversation = k.of
		o.Router = wire.Routes{Own: map[cofferdam.Host]gateway.Handler{gateway.ModelHost: handler}}
		if change != nil {
			change(o)
		}
	})
	return b, k
}

func (b *bench) loop() session.Plan {
	p := b.plan("")
	p.Request.Agent = "loop"
	p.Model = cofferdam.Model{ID: "m-1", Name: "rehearsal", Provider: "anthropic", Rehearsal: true}
	return p
}

// mending looks, edits, runs something that may run once, writes, and ends.
const mending = `turn 1
say I look.
tool search {"pattern":"= 3"}

turn 2
tool edit {"path":"calc.txt","old":"= 3","new":"= 2"}
tool shell {"command":"echo $$ >> runs.txt; cat calc.txt; echo ` + secretValue + `; sleep 77 & git add -A; git commit -qm mend; echo ran"}
tool write {"path":"notes/left.txt","text":"left\n"}

after written
say The sum is right now.
`

func TestLoopWorks(t *testing.T) {
	b, k := thinking(t, mending, nil)
	p := b.loop()
	r := b.run(p)
	if r.Failure != "" || r.Said != cofferdam.SaidDone || r.Message != "The sum is right now." || r.Head == "" {
		t.Fatalf("result %+v", r)
	}
	show := func(path string) string { return b.git("-C", b.repo.Upstream, "show", string(r.Head)+":"+path) }
	if show("calc.txt") != "1 + 1 = 2" || show("notes/left.txt") != "left" || strings.Contains(show("runs.txt"), "\n") {
		t.Errorf("left: %q %q %q", show("calc.txt"), show("notes/left.txt"), show("runs.txt"))
	}
	body, err := json.Marshal(k.entries[p.ID])
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range append([]string{string(body)}, fields(b.events(p))...) {
		if strings.Contains(text, secretValue) {
			t.Errorf("a secret was kept: %.200s", text)
		}
	}
	if !strings.Contains(string(body), "redacted") {
		t.Error("the secret never came by, so the test proves nothing")
	}
	b.noBoxes()
}

func fields(events []cofferdam.Event) []string {
	var all []string
	for _, e := range events {
		for _, v := range e.Fields {
			all = append(all, v)
		}
	}
	return all
}

// Write of a box under which the process may end: before, or in the middle.
func (b cuttingBox) Write(ctx context.Context, id cofferdam.ExecID, p []byte, eof bool) error {
	if b.c.left.Load() == 1 && !b.c.before {
		p, eof = p[:len(p)/2], false
	}
	return b.c.at(func() error { return b.Box.Write(ctx, id, p, eof) })
}

// TestLoopSurvivesItsProcess ends the process at every call of a box and at
// every message: the same end, the same record, and nothing ran twice.
func TestLoopSurvivesItsProcess(t *testing.T) {
	left, before, cut := new(atomic.Int64), false, func() {}
	b, k := thinking(t, mending, func(o *session.Options) {
		o.Driver = cutting{o.Driver, left, before, func() { cut() }}
	})
	count := func(first bool) func() error {
		return func() error {
			if before == first {
				if left.Add(-1) == 0 {
					cut()
					return errCut
				}
			}
			return nil
		}
	}
	k.before, k.after = count(true), count(false)
	whole := ""
	for _, before = range []bool{true, false} {
		for n := 1; ; n++ {
			p := b.loop()
			p.Branch = cofferdam.Ref(fmt.Sprintf("refs/heads/cofferdam/loop-%v-%d", before, n))
			ctx, cancel := context.WithCancelCause(context.Background())
			cut = func() { cancel(errCut) }
			left.Store(int64(n))
			b.restart()
			r, err := b.runner.Run(ctx, p)
			over := err == nil && left.Load() > 0
			if err != nil {
				left.Store(0)
				b.restart()
				r = b.run(p)
			}
			cancel(nil)
			name := fmt.Sprintf("call %d, before %v", n, before)
			b.noBoxes()
			if r.Failure != "" || r.Said != cofferdam.SaidDone || r.Head == "" {
				t.Fatalf("%s: %+v", name, r)
			}
			if runs := b.git("-C", b.repo.Upstream, "show", string(r.Head)+":runs.txt"); strings.Contains(runs, "\n") {
				t.Errorf("%s: the command ran more than once", name)
			}
			if text := b.git("-C", b.repo.Upstream, "show", string(r.Head)+":notes/left.txt"); text != "left" {
				t.Errorf("%s: written %q", name, text)
			}
			if said := b.saidBy(p); whole == "" {
				whole = said
			} else if said != whole {
				t.Errorf("%s: on record\n%s\nwant\n%s", name, said, whole)
			}
			if over {
				if n < 30 {
					t.Errorf("only %d calls: the test cuts nothing", n)
				}
				break
			}
		}
	}
}

// saidBy is what the agent said and did, as it is on record.
func (b *bench) saidBy(p session.Plan) string {
	var all []string
	for _, e := range b.events(p) {
		if strings.HasPrefix(e.Kind, "agent.") {
			all = append(all, fmt.Sprintf("%s %s %q %s", e.Kind, e.Resource, e.Fields["text"], e.Fields["error"]))
		}
	}
	return strings.Join(all, "\n")
}

func TestLoopEnds(t *testing.T) {
	for name, tt := range map[string]struct {
		script  string
		said    cofferdam.Said
		failure string
		reason  string
	}{
		"nothing to do": {"otherwise\nsay It is right.\n| cofferdam: nothing to do\n", cofferdam.SaidNothingToDo, "", ""},
		"blocked":       {"otherwise\nsay cofferdam: blocked: no idea\n", cofferdam.SaidBlocked, "", ""},
		"wrong key":     {"otherwise\nfail 401 invalid x-api-key\n", cofferdam.SaidBlocked, cofferdam.ReasonProvider, "invalid x-api-key"},
		"repetition":    {"otherwise\ntool shell {\"command\":\"echo same\"}\n", cofferdam.SaidBlocked, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			b, _ := thinking(t, tt.script, nil)
			r := b.run(b.loop())
			if r.Said != tt.said || r.Failure != tt.failure || !strings.Contains(r.Reason, tt.reason) {
				t.Errorf("%+v", r)
			}
			b.noBoxes()
		})
	}
}

// TestLoopIsTold: what a person says is heard after the tool call that runs,
// once, also over processes, and after the end nobody is heard any more.
func TestLoopIsTold(t *testing.T) {
	script := `asked hurry up
say I hurry.

turn 1
tool shell {"command":"echo begun; sleep 6"}
tool shell {"command":"touch never"}

otherwise
say Nobody spoke.
`
	var mu sync.Mutex
	var box []cofferdam.TaskMessage
	deaf := 0
	b, _ := thinking(t, script, func(o *session.Options) {
		o.Said = func(_ context.Context, _ cofferdam.TaskID, after int64) ([]cofferdam.TaskMessage, error) {
			mu.Lock()
			defer mu.Unlock()
			return append([]cofferdam.TaskMessage{}, box[min(int(after), len(box)):]...), nil
		}
		o.LastSaid = func(ctx context.Context, _ cofferdam.SessionID, id cofferdam.TaskID, after int64) ([]cofferdam.TaskMessage, error) {
			found, err := o.Said(ctx, id, after)
			if len(found) == 0 {
				deaf++
			}
			return found, err
		}
	})
	for _, restart := range []bool{false, true} {
		p := b.loop()
		p.Branch = cofferdam.Ref(fmt.Sprintf("refs/heads/cofferdam/told-%v", restart))
		box, deaf = nil, 0
		ctx, cancel := context.WithCancelCause(context.Background())
		done := b.start(ctx, p)
		b.until(p, "loop-2-1", "begun")
		mu.Lock()
		box = []cofferdam.TaskMessage{{Number: 1, Text: "hurry up", By: cofferdam.Principal{Kind: cofferdam.Person, Name: "ada"}}}
		mu.Unlock()
		if restart {
			cancel(errCut)
			<-done
			b.restart()
			done = b.start(context.Background(), p)
		}
		got := <-done
		cancel(nil)
		if got.err != nil || got.result.Message != "I hurry." || got.result.Head != "" || deaf == 0 {
			t.Errorf("restart %v: %+v %v, deaf %d", restart, got.result, got.err, deaf)
		}
		heard, turns, unheard := 0, 0, ""
		for _, e := range b.events(p) {
			switch {
			case e.Kind == cofferdam.EventTaskMessage && e.Fields["text"] == "hurry up":
				heard++
			case e.Kind == cofferdam.EventAgentTurn && e.Fields["why"] == "message":
				turns++
			case e.Kind == cofferdam.EventAgentEnd:
				unheard = e.Fields["unheard_messages"]
			}
		}
		if heard != 1 || turns != 1 || unheard != "0" {
			t.Errorf("restart %v: heard %d times, in %d turns, unheard %q", restart, heard, turns, unheard)
		}
	}
}

// TestLimitsThatAnAgentMet: the result names them, whatever the agent made of it,
// whether it ran in the box or only its commands did.
func TestLimitsThatAnAgentMet(t *testing.T) {
	little := func(o *session.Options) { o.MaxOutput = 1 << 20 }
	b, _ := thinking(t, "turn 1\ntool shell {\"command\":\"yes\"}\ntool shell {\"command\":\"echo fine\"}\n\notherwise\nsay done\n", little)
	for name, p := range map[string]session.Plan{"loop": b.loop(), "command": b.plan("echo a; yes"), "well": b.plan("echo fine")} {
		want := "output"
		if name == "well" {
			want = ""
		}
		p.Branch = cofferdam.Ref("refs/heads/cofferdam/" + name)
		for range 2 { // the second time from the record
			if r := b.run(p); r.Failure != "" || strings.Join(r.Met, " ") != want {
				t.Errorf("%s: %+v", name, r)
			}
		}
	}
}

// TestLoopIsStopped: the end of the task ends a command that runs, and its time
// is its time, also over processes.
func TestLoopIsStopped(t *testing.T) {
	script := "turn 1\ntool shell {\"command\":\"echo begun; touch begun; sleep 55.5\"}\n\notherwise\nsay never\n"
	b, _ := thinking(t, script, nil)
	p := b.loop()
	ctx, cancel := context.WithCancelCause(context.Background())
	done := b.start(ctx, p)
	b.until(p, "loop-2-1", "begun")
	cancel(session.ErrTaskEnded)
	if got := <-done; got.err != nil || got.result.Failure != cofferdam.ReasonCancelled {
		t.Errorf("%+v %v", got.result, got.err)
	}
	b.noBoxes()

	p = b.loop()
	p.Request.Timeout, p.Branch = 20, "refs/heads/cofferdam/t-7-2"
	ctx, cancel = context.WithCancelCause(context.Background())
	done = b.start(ctx, p)
	b.until(p, "loop-2-1", "begun")
	cancel(errCut)
	<-done
	b.restart()
	if r := b.run(p); !r.TimedOut || r.Head == "" {
		t.Errorf("%+v", r)
	}
	b.noBoxes()
	if left, err := os.ReadDir("/proc"); err == nil {
		for _, e := range left {
			line, err := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
			if err == nil && strings.Contains(string(line), "sleep\x0055.5") {
				t.Error("a command lives on")
			}
		}
	}
}
