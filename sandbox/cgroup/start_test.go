package cgroup

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// startVariable is where a test's own program finds the folder of a Start.
const startVariable = "COFFERDAM_TEST_START"

// TestStart has this program become another one in the groups of a box: what it becomes
// is in every one of them, alone, and this process in none.
func TestStart(t *testing.T) {
	g := realGroups(t, needs)
	if err := g.Make("b"); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := (Start{Program: "/bin/sh", Tasks: g.Tasks("b")}).Write(dir); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestBecome$")
	cmd.Env = append(os.Environ(), startVariable+"="+dir)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	for _, controller := range needs.V1 {
		if !in(string(out), controller, g.Name("b")) || in(string(own), controller, g.Name("b")) {
			t.Errorf("%s: it was in\n%s\nand this process is in\n%s", controller, out, own)
		}
	}
	if !strings.Contains(string(out), "threads 1") || !strings.Contains(string(out), "said this") {
		t.Errorf("it printed %s", out)
	}
}

// in says whether a process is in the group of that name, by its own /proc/self/cgroup.
func in(text, controller, name string) bool {
	for line := range strings.Lines(text) {
		part := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(part) == 3 && part[2] == name && (part[1] == "" || slices.Contains(strings.Split(part[1], ","), controller)) {
			return true
		}
	}
	return false
}

// TestBecome is what TestStart runs.
func TestBecome(t *testing.T) {
	dir := os.Getenv(startVariable)
	if dir == "" {
		t.Skip("it is the program that TestStart starts")
	}
	s, err := ReadStart(dir)
	if err == nil {
		err = s.Become([]string{"sh", "-c", `cat /proc/self/cgroup; set -- /proc/$$/task/*; echo threads $#; echo said $SAID`}, []string{"PATH=/usr/bin:/bin", "SAID=this"})
	}
	t.Fatal(err)
}

// TestStartRefused: what cannot be read, a group that is gone and a program that is not
// there are each said, and who reads the folder hears it.
func TestStartRefused(t *testing.T) {
	dir := t.TempDir()
	if err := Failed(dir); err != nil {
		t.Errorf("nothing has failed yet: %v", err)
	}
	if _, err := ReadStart(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("of nothing: %v", err)
	}
	for _, text := range []string{"", "{", "[]", "{}", `{"Program":"runsc"}`} {
		if err := os.WriteFile(filepath.Join(dir, startFile), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if s, err := ReadStart(dir); err == nil || !strings.Contains(err.Error(), "how to start") {
			t.Errorf("%s: %+v, %v", text, s, err)
		}
	}
	gone := filepath.Join(dir, "no-group", "tasks")
	for _, c := range []struct {
		s    Start
		want string
	}{
		{Start{Program: "/bin/true", Tasks: []string{gone}}, "entering a control group: open " + gone},
		{Start{Program: dir + "/nothing"}, "start " + dir + "/nothing: no such file"},
	} {
		err := c.s.Become([]string{"x"}, nil)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Fatalf("%v, want %s", err, c.want)
		}
		if err := Fail(dir, err); err != nil {
			t.Error(err)
		}
		if got := Failed(dir); got == nil || got.Error() != err.Error() {
			t.Errorf("heard %v, want %v", got, err)
		}
	}
}

// TestTasks: on version 2 a process is put into a group, on version 1 a thread.
func TestTasks(t *testing.T) {
	two := Groups{root: "/r", V2: true, trees: []string{"/r"}, parent: "/p"}
	one := Groups{root: "/r", trees: []string{"/r/cpu", "/r/memory"}, parent: "/p"}
	if got := two.Tasks("b"); !slices.Equal(got, []string{"/r/p/b/cgroup.procs"}) {
		t.Errorf("version 2: %q", got)
	}
	if got := one.Tasks("b"); !slices.Equal(got, []string{"/r/cpu/p/b/tasks", "/r/memory/p/b/tasks"}) {
		t.Errorf("version 1: %q", got)
	}
	if got := (Groups{}).Tasks("b"); len(got) > 0 {
		t.Errorf("without groups: %q", got)
	}
}
