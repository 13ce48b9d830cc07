package cli

import (
	"bytes"
	"strings"
	"testing"

	"cofferdam"
)

// TestProgressNotes holds what the rewriting line says of each kind of event:
// of an agent that tells nothing, its last line of output; of others, never.
func TestProgressNotes(t *testing.T) {
	var errs bytes.Buffer
	b := newBench(t)
	a := &app{System: b.system(&errs, &errs)}
	p := &progress{a: a, task: cofferdam.Task{Number: 7}}
	seq := uint64(0)
	see := func(session cofferdam.SessionID, kind, resource string, fields map[string]string) string {
		seq++
		err := p.take(cofferdam.Progress{Event: &cofferdam.Event{Seq: seq, Session: session, Kind: kind, Resource: resource, Fields: fields, Actor: cofferdam.Principal{Name: "ada"}}})
		if err != nil {
			t.Fatal(err)
		}
		return p.note
	}
	see("s-1", cofferdam.EventSessionOpen, "work", map[string]string{"reader": "lines"})
	see("s-2", cofferdam.EventSessionOpen, "work", map[string]string{"reader": "claude-stream-json"})
	for _, c := range []struct {
		session              cofferdam.SessionID
		kind, resource, text string
		note                 string
	}{
		{"s-1", cofferdam.EventExecOutput, "agent", "one\ntwo\n", "two"},
		{"s-2", cofferdam.EventExecOutput, "agent", `{"type":"x"}`, "two"},
		{"s-2", cofferdam.EventAgentTool, "Bash", "make test", "Bash: make test"},
		{"s-2", cofferdam.EventAgentFile, "calc.txt", "calc.txt", "changed calc.txt"},
		{"s-2", cofferdam.EventAgentMessage, "", "I look.", "I look."},
		{"s-2", cofferdam.EventAgentMessage, "", "I look\nagain.", "I look again."},
		{"s-2", cofferdam.EventExecStart, "check-1", "true", "check-1: true"},
		{"s-2", cofferdam.EventExecStart, "checkout", "set -eu\ngoes_on() {", "checkout"},
	} {
		if got := see(c.session, c.kind, c.resource, map[string]string{"text": c.text}); got != c.note {
			t.Errorf("%s: note %q, want %q", c.kind, got, c.note)
		}
	}
	for dollars, want := range map[string]string{"0.1250": "900 tokens ($0.12)", "": "900 tokens", "NaN": "900 tokens", "1e300": "900 tokens", "x": "900 tokens"} {
		if see("s-2", cofferdam.EventAgentCost, "", map[string]string{"tokens": "900", "dollars": dollars}); p.cost != want {
			t.Errorf("cost %q: %q, want %q", dollars, p.cost, want)
		}
	}
	see("s-2", cofferdam.EventTaskMessage, "1", map[string]string{"text": "leave\x1b[2J it"})
	if out := errs.String(); !strings.Contains(out, "t-7 is told by ada: leave") || strings.Contains(out, "\x1b") {
		t.Errorf("a message is shown as %q", out)
	}
}
