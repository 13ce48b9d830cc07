package cgroup

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestVersion2 reads and writes what the kernel has on version 2, in a folder that
// looks like it: names of files, lines and values.
func TestVersion2(t *testing.T) {
	root, wanted := t.TempDir(), []string{"cpu", "memory", "pids"}
	g := Groups{root: root, V2: true, trees: []string{root}, hand: wanted, parent: "/p"}
	put := func(path, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(root, path), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	holds := func(path, want string) {
		t.Helper()
		if got, err := os.ReadFile(filepath.Join(root, path)); err != nil || string(got) != want {
			t.Errorf("%s: %q, %v, want %q", path, got, err, want)
		}
	}
	for _, missing := range wanted {
		put("cgroup.controllers", strings.Join(slices.DeleteFunc(slices.Clone(wanted), func(s string) bool { return s == missing }), " ")+" "+missing+"x\n")
		if err := hasControllers(root, wanted); err == nil || !strings.Contains(err.Error(), missing) {
			t.Errorf("without %s: %v", missing, err)
		}
	}
	put("cgroup.controllers", "cpuset cpu io memory hugetlb pids rdma misc\n")
	if err := errors.Join(hasControllers(root, wanted), g.Make("b")); err != nil {
		t.Fatal(err)
	}
	holds("cgroup.subtree_control", "+cpu +memory +pids")
	holds("p/cgroup.subtree_control", "+cpu +memory +pids")
	if err := g.Make("b"); !errors.Is(err, os.ErrExist) {
		t.Errorf("a box's group was made twice: %v", err)
	}
	if err := g.Set("b", append(g.Bounds(1.5, 1<<20, 7), g.NoSwap(1<<20))...); err != nil {
		t.Error(err)
	}
	holds("p/b/cpu.max", "150000 100000")
	holds("p/b/memory.max", "1048576")
	holds("p/b/memory.swap.max", "0")
	holds("p/b/pids.max", "7")
	if err := g.Add("b", 4711); err != nil {
		t.Error(err)
	}
	holds("p/b/cgroup.procs", "4711")
	put("p/b/memory.events", "low 0\nhigh 0\nmax 31\noom 2\noom_kill 1\noom_group_kill 0\n")
	put("p/b/pids.events", "max 7\n")
	put("p/b/memory.current", "1000\n")
	put("p/b/memory.stat", "anon 700\nfile 300\ninactive_file 200\nactive_file 50\n")
	put("p/b/cgroup.events", "populated 1\nfrozen 1\n")
	if got := g.Events("b"); got != (Events{OOMKills: 1, PIDsFull: 7}) {
		t.Errorf("events %+v", got)
	}
	if got := g.Memory("b"); got != 750 {
		t.Errorf("memory %d", got)
	}
	if err := g.Freeze("b", true); err != nil {
		t.Error(err)
	}
	holds("p/b/cgroup.freeze", "1")
	if got := g.List(); !slices.Equal(got, []string{"b"}) {
		t.Errorf("boxes %q", got)
	}
	if got := g.Events("gone"); got != (Events{}) {
		t.Errorf("events of a box that is gone: %+v", got)
	}
}

// needs are those of a driver that bounds and stops its boxes.
var needs = Needs{V1: []string{"memory", "cpu", "pids", "freezer"}, V2: []string{"memory", "cpu", "pids"}}

// realGroups are this host's, below a parent of the test's own.
func realGroups(t *testing.T, n Needs) Groups {
	t.Helper()
	g, err := Find(Root, fmt.Sprintf("/cofferdam-test-%d", os.Getpid()), n)
	if err != nil || os.Geteuid() != 0 {
		t.Skipf("not run here: needs root and control groups: %v", err)
	}
	t.Cleanup(func() {
		for _, box := range g.List() {
			if err := g.End(box); err != nil {
				t.Error(err)
			}
		}
		g.Close()
		if _, err := os.Stat(g.Dir("memory", "")); err == nil {
			t.Error("the parent group is still there")
		}
	})
	return g
}

// sleeper is a process that does nothing until it is killed, and its child: nobody
// waits for that one.
func sleeper(t *testing.T) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("/bin/sh", "-c", "sleep 100000 & echo; wait")
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = cmd.Process.Kill(), cmd.Wait() }) // it may have ended
	if _, err := out.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	return cmd
}

// TestGroups holds a real process by a group, stops it, and ends it while it is
// stopped.
func TestGroups(t *testing.T) {
	g := realGroups(t, needs)
	if err := errors.Join(g.Make("b"), g.Set("b", append(g.Bounds(0.5, 32<<20, 100), g.NoSwap(32<<20))...)); err != nil {
		t.Fatal(err)
	}
	cmd := sleeper(t)
	if err := g.Add("b", cmd.Process.Pid); err != nil {
		t.Fatal(err)
	}
	for _, controller := range needs.V1 {
		procs, err := os.ReadFile(g.Dir(controller, "b") + "/cgroup.procs")
		if err != nil || !slices.Contains(strings.Fields(string(procs)), fmt.Sprint(cmd.Process.Pid)) {
			t.Errorf("%s has processes %q, %v", controller, procs, err)
		}
	}
	if err := g.Freeze("b", true); err != nil {
		t.Error(err)
	}
	if got := g.List(); !slices.Equal(got, []string{"b"}) {
		t.Errorf("boxes %q", got)
	}
	if err := g.End("b"); err != nil {
		t.Error(err)
	}
	if err := cmd.Wait(); !strings.Contains(fmt.Sprint(err), "killed") {
		t.Errorf("its process ended by %v", err)
	}
	if got := g.List(); len(got) > 0 {
		t.Errorf("left %q", got)
	}
}

// TestCounters wants a limit that was hit counted.
func TestCounters(t *testing.T) {
	g := realGroups(t, needs)
	if err := errors.Join(g.Make("b"), g.Set("b", append(g.Bounds(1, 16<<20, 3), g.NoSwap(16<<20))...)); err != nil {
		t.Fatal(err)
	}
	if got := g.Events("b"); got != (Events{}) {
		t.Errorf("before: %+v", got)
	}
	cmd := exec.Command("/bin/sh", "-c", "read x; for i in 1 2 3 4 5; do sleep 1000 & done")
	in, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(g.Add("b", cmd.Process.Pid), in.Close()); err != nil {
		t.Error(err)
	}
	for deadline := time.Now().Add(time.Minute); g.Events("b").PIDsFull == 0; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("after: %+v", g.Events("b"))
		}
	}
	if got := g.Memory("b"); got <= 0 || got > 16<<20 {
		t.Errorf("it holds %d bytes", got)
	}
	if err := g.End("b"); err != nil {
		t.Error(err)
	}
	_ = cmd.Wait() // it was killed
}

// TestNoMemory: who ended for want of memory is told whose it was, the box's or
// everybody's.
func TestNoMemory(t *testing.T) {
	for name, c := range map[string]struct {
		box, all int64 // bytes
		want     string
	}{
		"its own limit":   {16 << 20, 1 << 30, "more memory than its limit of 16 MiB"},
		"that of all":     {1 << 30, 16 << 20, "the host has no memory left"},
		"enough for both": {1 << 30, 1 << 30, ""},
	} {
		t.Run(name, func(t *testing.T) {
			g := realGroups(t, needs)
			err := errors.Join(g.Make("b"), g.Set("", memoryOf(g, c.all)), g.Set("b", memoryOf(g, c.box), g.NoSwap(c.box)))
			if err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command("/bin/sh", "-c", "read x; head -c 48M /dev/zero | tail -c 48M >/dev/null")
			in, err := cmd.StdinPipe()
			if err == nil {
				err = cmd.Start()
			}
			if err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(g.Add("b", cmd.Process.Pid), in.Close()); err != nil {
				t.Error(err)
			}
			_ = cmd.Wait() // whoever was killed for memory
			if got := g.NoMemory("b", c.box); !strings.Contains(got, c.want) || (got == "") != (c.want == "") {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}

// memoryOf is the setting of Bounds that bounds memory.
func memoryOf(g Groups, bytes int64) Setting {
	list := g.Bounds(1, bytes, 1)
	return list[slices.IndexFunc(list, func(s Setting) bool { return strings.HasPrefix(s.File, "memory.") })]
}

// TestNone wants nothing done where there are no groups, and says what is missing.
func TestNone(t *testing.T) {
	g, err := Find(t.TempDir(), "/p", needs)
	if err == nil || !strings.Contains(err.Error(), "controller memory is not mounted") || !g.None() {
		t.Errorf("%v, %v", g, err)
	}
	if _, err := Find("/nonexistent", "/p", needs); !errors.Is(err, unix.ENOENT) {
		t.Error(err)
	}
	for _, g := range []Groups{g, {}} {
		err := errors.Join(g.Prepare(), g.Make("b"), g.Set("b", g.Bounds(1, 1, 1)...), g.Add("b", 1), g.Freeze("b", true), g.End("b"))
		if g.Kill("b"); err != nil || g.Events("b") != (Events{}) || g.Memory("b") != 0 || len(g.List()) > 0 {
			t.Errorf("%v", err)
		}
		g.Close()
	}
}
