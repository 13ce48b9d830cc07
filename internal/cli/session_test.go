package cli

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"cofferdam"
)

// TestJobsAreShown: the views of a session and of its task say what runs in the
// box, also what a command left behind, and not more than a screen of it.
func TestJobsAreShown(t *testing.T) {
	b := newBench(t)
	task := b.shop()
	life := &cofferdam.BoxLife{State: "idle", Reason: "no command runs", Actor: "box", Sequence: 7, Since: time.Now(), Jobs: []cofferdam.BoxJob{
		{Processes: 2}, {Command: "agent", Processes: 1}, {Command: "loop-1\x1b[2J", Ended: true, Processes: 3},
	}}
	for i := range 2 * shownJobs {
		life.Jobs = append(life.Jobs, cofferdam.BoxJob{Command: cofferdam.ExecID(fmt.Sprintf("x-%d", i)), Processes: 1})
	}
	b.m.AddSession(cofferdam.Session{ID: "s-00000001", Task: task.ID, Life: life})
	b.m.Set(task.ID, func(t *cofferdam.Task) { t.Sessions = []cofferdam.SessionID{"s-00000001"} })
	for _, args := range [][]string{{"session", "view", "s-00000001"}, {"task", "view", "t-1"}} {
		out := b.good(args...)
		for _, want := range []string{
			"2 processes of no command that can be told\n", "1 process of agent\n", "3 processes of loop-1", ", left behind when it ended\n",
			fmt.Sprintf("and %d commands more", shownJobs+3), "idle since",
		} {
			if !strings.Contains(out, want) {
				t.Errorf("%q lacks %q:\n%s", args, want, out)
			}
		}
		if n := strings.Count(out, "running:"); n != shownJobs+1 || strings.Contains(out, "\x1b") {
			t.Errorf("%q has %d lines of what runs:\n%s", args, n, out)
		}
	}
	var s cofferdam.Session
	if err := json.Unmarshal([]byte(b.good("session", "view", "s-00000001", "--json")), &s); err != nil || s.Life == nil || len(s.Life.Jobs) != len(life.Jobs) {
		t.Errorf("in JSON: %+v %v", s.Life, err)
	}
}

// TestWhatIsNotKnownYet: a session that works has no exit code and no count of
// events; a sealed one has both.
func TestWhatIsNotKnownYet(t *testing.T) {
	b := newBench(t)
	task := b.shop()
	b.m.AddSession(cofferdam.Session{ID: "s-00000001", Task: task.ID, State: "busy"})
	b.m.AddSession(cofferdam.Session{ID: "s-00000002", Task: task.ID, State: "stopped", TraceSize: 7, TraceRoot: "r", Sealed: time.Now()})
	if out := b.good("session", "view", "s-00000001"); strings.Contains(out, "exit:") || strings.Contains(out, "0 events") || !strings.Contains(out, "trace follow s-00000001") {
		t.Errorf("at work:\n%s", out)
	}
	if out := b.good("session", "view", "s-00000002"); !strings.Contains(out, "exit:         0\n") || !strings.Contains(out, "7 events, root r\n") {
		t.Errorf("sealed:\n%s", out)
	}
	for _, line := range strings.Split(b.good("session", "list"), "\n") {
		f := strings.Fields(line)
		if want := map[string]string{"s-00000001": "-", "s-00000002": "7"}; len(f) == 6 && want[f[0]] != "" && f[4] != want[f[0]] {
			t.Errorf("list: %q, want %s events", line, want[f[0]])
		}
	}
}
