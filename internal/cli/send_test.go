package cli

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"cofferdam"
)

// TestEndOfAnAgentIsShown: how an agent ended, and the limits it met, where people
// look first; nothing of one that never ran, and of checks.
func TestEndOfAnAgentIsShown(t *testing.T) {
	b := newBench(t)
	v := b.shop()
	add := func(id cofferdam.SessionID, phase string, change func(*cofferdam.Session)) {
		s := cofferdam.Session{ID: id, Task: v.ID, Attempt: 1, Phase: phase, Sealed: time.Now()}
		change(&s)
		b.m.AddSession(s)
		b.m.Set(v.ID, func(t *cofferdam.Task) { t.Sessions = append(t.Sessions, id) })
	}
	add("s-base", "proof", func(*cofferdam.Session) {})
	add("s-gone", "work", func(s *cofferdam.Session) { s.Failure = cofferdam.ReasonCancelled })
	add("s-runs", "work", func(s *cofferdam.Session) { s.Sealed = time.Time{} })
	if out := b.good("task", "view", "t-1"); strings.Contains(out, "agent ended") {
		t.Errorf("nothing ended, and it prints %s", out)
	}
	add("s-full", "work", func(s *cofferdam.Session) { s.Exit, s.Met = 3, []string{"disk", "memory"} })
	if out := b.good("task", "view", "t-1"); strings.Count(out, "agent ended") != 1 || !strings.Contains(out, "attempt 1: exit 3, having met its limit of disk, memory") {
		t.Errorf("prints %s", out)
	}
	if out := b.good("session", "view", "s-full"); !strings.Contains(out, "limits met") || !strings.Contains(out, "disk, memory") {
		t.Errorf("session view prints %s", out)
	}
	add("s-well", "work", func(s *cofferdam.Session) { s.Attempt = 2 })
	if out := b.good("task", "view", "t-1"); !strings.Contains(out, "attempt 2: exit 0\n") {
		t.Errorf("prints %s", out)
	}
}

func TestSend(t *testing.T) {
	b := newBench(t)
	v := b.shop()
	b.m.Set(v.ID, func(t *cofferdam.Task) { t.Request.Agent, t.State = "claude", cofferdam.Running })
	if out := b.good("task", "send", "t-1", "leave the API as it is"); out != "1\n" {
		t.Errorf("prints %q", out)
	}
	b.in = strings.NewReader("from a file\n")
	var m cofferdam.TaskMessage
	if err := json.Unmarshal([]byte(b.good("task", "send", "t-1", "-f", "-", "--json")), &m); err != nil || m.Number != 2 || m.Text != "from a file\n" {
		t.Errorf("%+v %v", m, err)
	}
	for state, heard := range map[cofferdam.TaskState]string{
		cofferdam.Running: "after the tool call", cofferdam.Waiting: "is the answer that its agent waits for", cofferdam.Queued: "when it begins",
	} {
		b.m.Set(v.ID, func(t *cofferdam.Task) { t.State = state })
		if code, _, errs := b.run("task", "send", "t-1", "x"); code != 0 || !strings.Contains(errs, heard) {
			t.Errorf("%s: exit %d %s", state, code, errs)
		}
	}
	b.m.Set(v.ID, func(t *cofferdam.Task) { t.State, t.Request.Agent = cofferdam.Running, "command" })
	if code, out, errs := b.run("task", "send", "t-1", "x"); code != 1 || out != "" || !twoLines(errs) || !strings.Contains(errs, "command") {
		t.Errorf("an agent that cannot be told anything: exit %d %s%s", code, out, errs)
	}
	b.m.Set(v.ID, func(t *cofferdam.Task) { t.Request.Agent, t.State = "claude", cofferdam.InReview })
	if code, _, errs := b.run("task", "send", "t-1", "x"); code != 1 || !twoLines(errs) {
		t.Errorf("nobody hears: exit %d %s", code, errs)
	}
}
