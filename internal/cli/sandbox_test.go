package cli

import (
	"encoding/json"
	"strings"
	"testing"

	"cofferdam"
)

// TestSandbox: boxes and checkpoints from the command line, and what is hostile in
// them as what it is.
func TestSandbox(t *testing.T) {
	b := newBench(t)
	task := b.shop()
	if code, _, errs := b.run("sandbox", "checkpoint", "create", "t-1"); code != 5 || !twoLines(errs) {
		t.Errorf("before its session: exit %d\n%s", code, errs)
	}
	b.m.AddSession(cofferdam.Session{ID: "s-00000001", Task: task.ID, Attempt: 1, Phase: "work"})
	if out := b.good("sandbox", "list"); !strings.Contains(out, "\nt-1 ") || !strings.Contains(out, "busy") {
		t.Error(out)
	}
	if out := b.good("sandbox", "view", "t-1"); !strings.Contains(out, "box:          busy") {
		t.Error(out)
	}
	if out := b.good("sandbox", "checkpoint", "create", "t-1", "--comment", "first"); out != "v0\n" {
		t.Error(out)
	}
	if out := b.good("sandbox", "checkpoint", "list", "-q"); out != "v0\n" {
		t.Error(out)
	}
	if out := b.good("sandbox", "checkpoint", "list", "t-1"); !strings.Contains(out, "t-1   v0 ") || !strings.Contains(out, "good") || !strings.Contains(out, "first") {
		t.Error(out)
	}
	if out := b.good("sandbox", "checkpoint", "view", "t-1", "v0"); !strings.Contains(out, "signature:    good") || !strings.Contains(out, "manifest:") || !strings.Contains(out, "t-1") {
		t.Error(out)
	}
	for _, args := range [][]string{{"v0"}, {"v0", "v0"}} {
		out := b.good(append([]string{"sandbox", "checkpoint", "diff", "t-1"}, args...)...)
		if out != "A a\\u001b[2Jb (3 bytes, 0644)\nM c (3 bytes, 0644 -> link, 0777)\nD d\\u202e (3 bytes, 0644)\n" {
			t.Errorf("%q", out)
		}
	}
	var d cofferdam.Difference
	if out := b.good("sandbox", "checkpoint", "diff", "t-1", "v0", "--json"); json.Unmarshal([]byte(out), &d) != nil || len(d.Paths) != 3 || strings.Contains(out, "\x1b") {
		t.Error(out)
	}
	if out := b.good("sandbox", "restore", "t-1", "v0"); out != "v1\n" {
		t.Error(out)
	}
	b.good("sandbox", "checkpoint", "rm", "t-1", "v0")
	for args, want := range map[string]int{
		"view t-9": 5, "view": 2, "restore t-1": 2, "restore t-1 v9": 5, "restore t-1 v1 v2": 2, "checkpoint remove t-1 v0": 5, "checkpoint diff t-1": 2, "checkpoint diff t-1 v1 v1 v1": 2,
		"checkpoint view t-1 ../v1": 5, "checkpoint list t-1 t-1": 2, "checkpoint list t-9": 5, "exec t-1": 2, "shell t-1": 2, "checkpoint": 0,
	} {
		if code, _, errs := b.run(append([]string{"sandbox"}, strings.Fields(args)...)...); code != want || want != 0 && !twoLines(errs) {
			t.Errorf("sandbox %s: exit %d\n%s", args, code, errs)
		}
	}
}
