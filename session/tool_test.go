package session_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"cofferdam"
	"cofferdam/session"
)

// trying uses four tools, each of which leaves something to see.
const trying = `turn 1
tool read {"path":"calc.txt"}
tool write {"path":"by-write","text":"X\n"}
tool edit {"path":"calc.txt","old":"3","new":"2"}
tool shell {"command":"echo X > by-shell"}

otherwise
say Done.
`

// calls are the decisions about tools on record.
func calls(events []cofferdam.Event) (all []string) {
	for _, e := range events {
		if e.Kind == cofferdam.EventTool && e.Verdict != "" {
			text := e.Resource + " " + string(e.Verdict) + " " + e.Rule
			if b := e.Fields[cofferdam.FieldBeyond]; b != "" && e.Verdict == cofferdam.Allowed {
				text += " beyond " + b
			}
			all = append(all, text)
		}
	}
	return all
}

// TestToolsOfTheScope: a call beyond a task's scope, or that policy denies, is
// refused before a hand moves, and the model is told; what is marked passes.
func TestToolsOfTheScope(t *testing.T) {
	for _, c := range []struct {
		name  string
		scope *cofferdam.Contract
		cedar string
		calls string
		left  string // files of the branch
		told  string // the model
	}{
		{
			"no scope", nil, "",
			"own:read allowed own-tools,own:write allowed own-tools,own:edit allowed own-tools,own:shell allowed own-tools", "by-shell by-write calc.txt", "",
		},
		{
			"reading alone", &cofferdam.Contract{Tools: []string{"own:read", "own:search"}}, "",
			"own:read allowed own-tools,own:write refused beyond-scope,own:edit refused beyond-scope,own:shell refused beyond-scope", "",
			"this was not done: this task's scope does not have the tool own:write; it has own:read, own:search",
		},
		{
			"a pattern", &cofferdam.Contract{Tools: []string{"own:*"}}, "",
			"own:read allowed own-tools,own:write allowed own-tools,own:edit allowed own-tools,own:shell allowed own-tools", "by-shell by-write calc.txt", "",
		},
		{
			"marked", &cofferdam.Contract{Tools: []string{"own:read"}, Mark: true}, "",
			"own:read allowed own-tools,own:write allowed own-tools beyond own:write,own:edit allowed own-tools beyond own:edit,own:shell allowed own-tools beyond own:shell",
			"by-shell by-write calc.txt", "",
		},
		{
			"by its arguments", nil, `@id("no-x") forbid (principal, action == Action::"invoke", resource == Tool::"own:write") when { resource.hasTag("path") && resource.getTag("path") == "by-write" };`,
			"own:read allowed own-tools,own:write refused no-x,own:edit allowed own-tools,own:shell allowed own-tools", "by-shell calc.txt", "this was not done: invoke ",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			b, _ := thinking(t, trying, func(o *session.Options) { o.Policy = c.cedar })
			p := b.loop()
			p.Request.Contract = c.scope
			r := b.run(p)
			events := b.events(p)
			if got := strings.Join(calls(events), ","); got != c.calls {
				t.Errorf("on record: %s\nwant: %s", got, c.calls)
			}
			left := ""
			if r.Head != "" {
				left = strings.Join(strings.Fields(b.git("-C", b.repo.Upstream, "diff", "--name-only", string(b.base), string(r.Head))), " ")
			}
			if left != c.left {
				t.Errorf("left %q, want %q", left, c.left)
			}
			if said := b.saidBy(p); !strings.Contains(said, c.told) {
				t.Errorf("the model was not told %q:\n%s", c.told, said)
			}
			for _, e := range events {
				if e.Kind == cofferdam.EventExecStart && c.left == "" && strings.HasPrefix(e.Resource, "loop-") && e.Resource != "loop-2-1" {
					t.Errorf("a command began: %s", e.Resource)
				}
			}
		})
	}
}

// TestWhoACommandIsFor: every command is on record with who it is for (R25).
func TestWhoACommandIsFor(t *testing.T) {
	b, _ := thinking(t, mending, nil)
	p := b.loop()
	r := b.run(p)
	q := b.proof(r.Head, "true")
	b.run(q)
	hands := b.plan("true")
	b.run(hands)
	want := map[string]string{
		"checkout": "platform:platform", "capture": "platform:platform", "check-1": "platform:check", "loop": "agent:loop", "agent": "agent:command",
		"file": "platform:platform",
	}
	seen := map[string]bool{}
	for _, e := range append(append(b.events(p), b.events(q)...), b.events(hands)...) {
		if e.Kind != cofferdam.EventExecStart || e.Of != nil {
			continue
		}
		name := e.Resource
		for _, of := range []string{"loop", "file"} {
			if strings.HasPrefix(name, of+"-") {
				name = of
			}
		}
		if e.Actor.String() != want[name] || e.Verdict != cofferdam.Allowed || e.Rule != "own-commands" || e.Fields[cofferdam.FieldQuery] == "" {
			t.Errorf("%s: for %s, %s by %s; want %q", e.Resource, e.Actor, e.Verdict, e.Rule, want[name])
		}
		seen[name] = true
	}
	for name := range want {
		if !seen[name] {
			t.Errorf("no command %s was seen", name)
		}
	}
}

// TestOneDoorForCommands: nothing in this room starts a command but what asks first
// and records who it is for.
func TestOneDoorForCommands(t *testing.T) {
	start := regexp.MustCompile(`[bB]ox\.Start\(`)
	files, err := filepath.Glob("*.go")
	if err != nil || len(files) < 10 {
		t.Fatal(files, err)
	}
	doors := 0
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		n := len(start.FindAll(text, -1))
		switch {
		case strings.HasSuffix(f, "_test.go"):
		case f == "exec.go":
			doors = n
		case n > 0:
			t.Errorf("%s starts commands of its own", f)
		}
	}
	if doors != 2 { // a new one, and one that a process before this one began
		t.Errorf("%d places in exec.go start a command", doors)
	}
}

// TestCommandsThatPolicyDenies: whom policy lets start no command starts none, and
// the session says so.
func TestCommandsThatPolicyDenies(t *testing.T) {
	deny := func(who string) func(*session.Options) {
		return func(o *session.Options) {
			o.Policy = `@id("none") forbid (principal, action == Action::"run", resource == Program::"` + who + `");`
		}
	}
	b := newBench(t, deny("agent"))
	p := b.plan(`echo X > made; git add -A; git commit -qm x; git push -q`)
	r := b.run(p)
	if r.Failure != cofferdam.ReasonPolicy || !strings.Contains(r.Reason, "none") || r.Head != "" {
		t.Errorf("agent: %+v", r)
	}
	for _, e := range b.events(p) {
		if e.Resource == "agent" && (e.Kind == cofferdam.EventExecOutput || e.Kind == cofferdam.EventExecEnd) {
			t.Errorf("it ran: %+v", e)
		}
	}
	c := newBench(t, deny("check"))
	if r := c.run(c.proof(c.base, "true")); r.Failure != cofferdam.ReasonPolicy || len(r.Checks) != 0 {
		t.Errorf("check: %+v", r)
	}
}
