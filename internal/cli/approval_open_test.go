package cli

import (
	"bytes"
	"io"
	"strings"
	"testing"
	"time"

	"cofferdam"
)

// TestOpenBadBounds gives approval open what it cannot open. It says so before it
// asks who is there: with bounds that are good, the terminal is what is missing.
func TestOpenBadBounds(t *testing.T) {
	b := newBench(t)
	b.shop()
	for _, c := range []struct {
		args string
		code int
		want string
	}{
		{"good.test", 9, "no terminal"},
		{"good.test:8099 --for 24h --uses 100000", 9, "no terminal"},
		{"model:work --action use", 9, "no terminal"},
		{"http://good.test/", 2, "scheme"},
		{"good.test:0", 2, ""},
		{"good.test:99999", 2, ""},
		{"good.test --for 0", 2, "--for is 1s to 24h"},
		{"good.test --for 25h", 2, "--for is 1s to 24h"},
		{"good.test --uses 0", 2, "--uses is 1 to 100000"},
		{"good.test --uses -1", 2, "--uses is 1 to 100000"},
		{"good.test --uses 100001", 2, "--uses is 1 to 100000"},
	} {
		code, _, errs := b.run(append([]string{"approval", "open", "t-1"}, strings.Fields(c.args)...)...)
		if code != c.code || !strings.Contains(errs, c.want) {
			t.Errorf("approval open t-1 %s: exit %d, %q, wanted %d and %q", c.args, code, errs, c.code, c.want)
		}
	}
}

// TestAskedIsSeen: who looks at what runs is told of a question that waits.
func TestAskedIsSeen(t *testing.T) {
	b := newBench(t)
	task := b.shop()
	if out := b.good("status"); strings.Contains(out, "question:") {
		t.Errorf("nobody asked yet:\n%s", out)
	}
	b.m.Ask(cofferdam.Question{ID: "a-00112233445566", Task: task.ID, Scope: task.Scope, State: cofferdam.QuestionOpen, Action: "request", Resource: "good.test:443\x1b[2J", Expires: time.Now().Add(time.Minute)})
	out := b.good("status")
	if !strings.Contains(out, "question:     a-001122334455  request good.test:443") || !strings.Contains(out, "cofferdam approval view a-001122334455") || strings.Contains(out, "\x1b") {
		t.Errorf("%q", out)
	}
	var errs bytes.Buffer
	a := &app{System: System{Out: io.Discard, Err: &errs, Terminal: func(any) bool { return false }, Width: func() int { return 80 }, Getenv: func(string) string { return "" }}}
	p := a.newProgress(cofferdam.Task{Number: 1, State: cofferdam.Running})
	if err := p.take(cofferdam.Progress{Event: &cofferdam.Event{Seq: 1, Kind: "egress.propose", Verdict: cofferdam.Asked, Resource: "good.test:443\x1b[2J", Rule: "proposal"}}); err != nil {
		t.Fatal(err)
	}
	p.stop()
	if out := errs.String(); !strings.Contains(out, "t-1 waits for a person: egress.propose good.test:443") || !strings.Contains(out, "cofferdam approval list") || strings.Contains(out, "\x1b[2J") {
		t.Errorf("%q", out)
	}
}
