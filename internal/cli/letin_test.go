package cli

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"cofferdam"
)

// TestNextStep: a refusal by nothing but the lack of a rule names the command that opens
// the host, once, and nothing that a box chose gets into it.
func TestNextStep(t *testing.T) {
	refused := func(kind, resource, rule string) cofferdam.Event {
		return cofferdam.Event{Kind: kind, Resource: resource, Rule: rule, Verdict: cofferdam.Refused}
	}
	for _, c := range []struct {
		event cofferdam.Event
		entry string
	}{
		{refused(cofferdam.EventDNS, "docs.example.com", "default-deny"), "docs.example.com"},
		{refused(cofferdam.EventRequest, "GET docs.example.com:443/a/b?c=:80", "default-deny"), "docs.example.com"},
		{refused(cofferdam.EventRequest, "POST docs.example.com:8080/x", "default-deny"), "docs.example.com:8080"},
		{refused(cofferdam.EventConnect, "db.example.com:5432", "default-deny"), "db.example.com:5432"},
		{refused(cofferdam.EventDNS, "docs.example.com", "organization.egress.deny-1"), ""},
		{refused(cofferdam.EventDNS, "*.com", "default-deny"), ""},
		{refused(cofferdam.EventDNS, "x.test;reboot", "default-deny"), ""},
		{refused(cofferdam.EventDNS, "$(id).test", "default-deny"), ""},
		{refused(cofferdam.EventDNS, "--entry", "default-deny"), ""},
		{refused(cofferdam.EventRequest, "GET", "default-deny"), ""},
		{refused(cofferdam.EventConnect, "splice:a.test:443", "default-deny"), ""},
		{refused(cofferdam.EventTool, "own:write", "default-deny"), ""},
		{cofferdam.Event{Kind: cofferdam.EventDNS, Resource: "docs.example.com", Rule: "default-deny", Verdict: cofferdam.Allowed}, ""},
	} {
		command, entry := letIn(cofferdam.Task{Number: 7}, c.event)
		want := ""
		if c.entry != "" {
			want = "cofferdam approval open t-7 " + c.entry + " --for 30m"
		}
		if command != want || entry != c.entry {
			t.Errorf("%s %q: %q, want %q", c.event.Kind, c.event.Resource, command, want)
		}
	}
	scoped := cofferdam.Task{Number: 7, Request: cofferdam.TaskRequest{Contract: &cofferdam.Contract{Hosts: []string{"other.test"}}}}
	if command, _ := letIn(scoped, refused(cofferdam.EventDNS, "docs.example.com", "default-deny")); command != "" {
		t.Errorf("beyond a scope: %q", command)
	}
	var errs bytes.Buffer
	p := &progress{a: &app{System: newBench(t).system(&errs, &errs)}, task: cofferdam.Task{Number: 7}}
	for i := range uint64(3) {
		e := refused(cofferdam.EventRequest, "GET docs.example.com:443/a", "default-deny")
		e.Seq = i + 1
		if err := p.take(cofferdam.Progress{Event: &e}); err != nil {
			t.Fatal(err)
		}
	}
	if n := strings.Count(errs.String(), "approval open t-7 docs.example.com"); n != 1 {
		t.Errorf("it is said %d times:\n%s", n, &errs)
	}
}

// TestWhoAllowed: a question says who answered it, when, and what showed that it was them.
func TestWhoAllowed(t *testing.T) {
	at := time.Date(2026, 12, 1, 10, 0, 0, 0, time.UTC)
	ann, bob := cofferdam.Principal{Kind: cofferdam.Person, Name: "ann"}, cofferdam.Principal{Kind: cofferdam.Person, Name: "bob"}
	q := cofferdam.Question{ID: "a-1", Needs: 2, Answers: []cofferdam.Answer{
		{By: ann, Allow: true, Proof: "password", Time: at, Bounds: &cofferdam.Bounds{Entry: "docs.example.com", Seconds: 60}},
		{By: bob, Proof: "totp", Time: at, Comment: "not \x1b[2J now"},
	}}
	var out bytes.Buffer
	if err := (answers{&app{System: newBench(t).system(&out, &out)}}).showQuestion(q); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"yes by person:ann with password at 2026-12-01T10:00:00Z, which opens docs.example.com", "no by person:bob with totp at 2026-12-01T10:00:00Z (not "} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("it does not say %q:\n%s", want, &out)
		}
	}
	if strings.Contains(out.String(), "\x1b") {
		t.Errorf("a control gets out: %q", &out)
	}
}
