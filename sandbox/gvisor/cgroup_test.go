package gvisor

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestUnifiedGroups reads what the kernel writes on version 2, from a folder that
// looks like it: names of files, lines and values.
func TestUnifiedGroups(t *testing.T) {
	root := t.TempDir()
	c := cgroups{root: root, v2: true, trees: []string{root}, parent: "/p"}
	write := func(path, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(root, path), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, missing := range unified {
		write("cgroup.controllers", strings.Join(slices.DeleteFunc(slices.Clone(unified), func(s string) bool { return s == missing }), " ")+" "+missing+"x\n")
		if err := c.checkUnified(); err == nil || !strings.Contains(err.Error(), missing) {
			t.Errorf("without %s: %v", missing, err)
		}
	}
	write("cgroup.controllers", "cpuset cpu io memory hugetlb pids rdma misc\n")
	if err := c.checkUnified(); err != nil {
		t.Error(err)
	}
	if err := c.prepare(); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"", "p"} {
		data, err := os.ReadFile(filepath.Join(root, dir, "cgroup.subtree_control"))
		if err != nil || string(data) != "+cpu +cpuset +io +memory +pids" {
			t.Errorf("%q: %q, %v", dir, data, err)
		}
	}
	if c.swapAccounted() {
		t.Error("swap is accounted without its file")
	}
	write("p/memory.swap.max", "max\n")
	if !c.swapAccounted() {
		t.Error("swap is not accounted")
	}
	if err := os.Mkdir(filepath.Join(root, "p/b"), 0o700); err != nil {
		t.Fatal(err)
	}
	write("p/b/memory.events", "low 0\nhigh 0\nmax 31\noom 2\noom_kill 1\noom_group_kill 0\n")
	write("p/b/pids.events", "max 7\n")
	write("p/b/memory.current", "1000\n")
	write("p/b/memory.stat", "anon 700\nfile 300\ninactive_file 200\nactive_file 50\n")
	if got := c.events("b"); got != (events{oomKills: 1, pidsFull: 7}) {
		t.Errorf("events %+v", got)
	}
	if got := c.memory("b"); got != 750 {
		t.Errorf("memory %d", got)
	}
	if got := c.list(); !slices.Equal(got, []string{"b"}) {
		t.Errorf("boxes %q", got)
	}
	if got := c.events("gone"); got != (events{}) {
		t.Errorf("events of a box that is gone: %+v", got)
	}
}
