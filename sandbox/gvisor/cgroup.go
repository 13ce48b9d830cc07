package gvisor

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"cofferdam/sandbox"
)

const cgroupRoot = "/sys/fs/cgroup"

// cgroups is where the control groups of this driver's boxes are: one group
// per box under a parent of our own. On version 1 (and the hybrid of both)
// every controller is a tree of its own; on version 2 there is one tree.
//
// Boxes on version 2 are not run here: the controllers of these machines are bound
// to version 1. docs/SPECIFICATION.md says what was run elsewhere.
type cgroups struct {
	root   string // cgroupRoot, but in tests
	v2     bool
	trees  []string // mount points, all of them; one on version 2
	parent string   // "/cofferdam-…", in every tree
}

// unified are the controllers that gVisor asks for on version 2: one that is
// missing would fail the start of a box.
var unified = []string{"cpu", "cpuset", "io", "memory", "pids"}

// findCgroups looks at the host. An error says which controller is missing.
func findCgroups(parent string) (cgroups, error) {
	c := cgroups{root: cgroupRoot, parent: parent}
	var st unix.Statfs_t
	if err := unix.Statfs(cgroupRoot, &st); err != nil {
		return c, fmt.Errorf("looking at %s: %w", cgroupRoot, err)
	}
	if st.Type == unix.CGROUP2_SUPER_MAGIC {
		c.v2, c.trees = true, []string{cgroupRoot}
		return c, errors.Join(c.checkUnified(), unix.Access(cgroupRoot, unix.W_OK))
	}
	for _, want := range []string{"cpu", "memory", "pids"} {
		tree := filepath.Join(cgroupRoot, want)
		if err := unix.Statfs(tree, &st); err != nil || st.Type != unix.CGROUP_SUPER_MAGIC {
			return c, fmt.Errorf("controller %s is not mounted at %s", want, tree)
		}
		if err := unix.Access(tree, unix.W_OK); err != nil {
			return c, fmt.Errorf("controller %s: %w", want, err)
		}
	}
	entries, err := os.ReadDir(cgroupRoot)
	if err != nil {
		return c, err
	}
	for _, e := range entries {
		tree := filepath.Join(cgroupRoot, e.Name())
		// cpu and cpuacct are often links to one tree; each name counts once.
		if e.IsDir() && unix.Statfs(tree, &st) == nil && st.Type == unix.CGROUP_SUPER_MAGIC {
			c.trees = append(c.trees, tree)
		}
	}
	return c, nil
}

// checkUnified names a controller that version 2 does not have here.
func (c cgroups) checkUnified() error {
	have, err := os.ReadFile(c.root + "/cgroup.controllers")
	if err != nil {
		return err
	}
	for _, want := range unified {
		if !slices.Contains(strings.Fields(string(have)), want) {
			return fmt.Errorf("controller %s is not there", want)
		}
	}
	return nil
}

// prepare makes the parent groups; on version 2 their groups have controllers
// only if each group above hands them down.
func (c cgroups) prepare() error {
	for _, tree := range c.trees {
		if err := os.Mkdir(tree+c.parent, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
	}
	if !c.v2 {
		return nil
	}
	for _, dir := range []string{c.root, c.root + c.parent} {
		if err := os.WriteFile(dir+"/cgroup.subtree_control", []byte("+"+strings.Join(unified, " +")), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// name is the path of a box's group inside every tree.
func (c cgroups) name(box string) string { return c.parent + "/" + box }

// dir is the folder of a box's group for one controller.
func (c cgroups) dir(controller, box string) string {
	if c.v2 {
		return c.root + c.name(box)
	}
	return filepath.Join(c.root, controller, c.name(box))
}

// swapAccounted says whether a limit of swap can be set. On version 2 the group
// at the top has none, and prepare must have been called.
func (c cgroups) swapAccounted() bool {
	file := "/memory/memory.memsw.limit_in_bytes"
	if c.v2 {
		file = c.parent + "/memory.swap.max"
	}
	_, err := os.Stat(c.root + file)
	return err == nil
}

// events are the counters that tell a limit was hit.
type events struct {
	oomKills int64 // processes that ended for want of memory
	pidsFull int64 // forks that the host refused
}

// events reads the counters of a box; what cannot be read counts as zero, as
// when the box is gone.
func (c cgroups) events(box string) events {
	memory := "memory.oom_control"
	if c.v2 {
		memory = "memory.events"
	}
	return events{
		oomKills: counter(filepath.Join(c.dir("memory", box), memory), "oom_kill"),
		pidsFull: counter(filepath.Join(c.dir("pids", box), "pids.events"), "max"),
	}
}

// memory is how much a box holds that the kernel cannot take back: file pages
// do not count.
func (c cgroups) memory(box string) int64 {
	dir := c.dir("memory", box)
	usage, prefix := "memory.usage_in_bytes", "total_"
	if c.v2 {
		usage, prefix = "memory.current", ""
	}
	data, err := os.ReadFile(filepath.Join(dir, usage))
	if err != nil {
		return 0 // the box is gone
	}
	total, _ := strconv.ParseInt(strings.TrimSpace(string(data)), 10, 64) // the kernel writes numbers
	stat := filepath.Join(dir, "memory.stat")
	return total - counter(stat, prefix+"active_file") - counter(stat, prefix+"inactive_file")
}

// counter reads one line of "name number" from a file.
func counter(path, name string) int64 {
	data, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	s := bufio.NewScanner(bytes.NewReader(data))
	for s.Scan() {
		if key, value, ok := strings.Cut(s.Text(), " "); ok && key == name {
			n, _ := strconv.ParseInt(value, 10, 64) // the kernel writes numbers
			return n
		}
	}
	return 0
}

// list names every box that has a group in some tree.
func (c cgroups) list() []string {
	seen := map[string]bool{}
	var names []string
	for _, tree := range c.trees {
		entries, err := os.ReadDir(tree + c.parent)
		if err != nil {
			continue
		}
		for _, e := range entries {
			if e.IsDir() && !seen[e.Name()] {
				seen[e.Name()] = true
				names = append(names, e.Name())
			}
		}
	}
	return names
}

// kill ends whatever runs in a box's groups and waits for nothing.
func (c cgroups) kill(box string) {
	for _, tree := range c.trees {
		_ = killGroup(tree + c.name(box)) // end looks again
	}
}

// end kills whatever is left in a box's groups and removes them.
func (c cgroups) end(box string) error {
	const patience = 10 * time.Second
	deadline := time.Now().Add(patience)
	var left error
	for pause := time.Millisecond; time.Now().Before(deadline); pause = min(2*pause, 50*time.Millisecond) {
		left = nil
		for _, tree := range c.trees {
			left = errors.Join(left, endGroup(tree+c.name(box)))
		}
		if left == nil {
			return nil
		}
		time.Sleep(pause) // the kernel has no event for "group is empty" on version 1
	}
	return left
}

// endGroup kills the processes of one group and removes it.
func endGroup(dir string) error {
	err := killGroup(dir)
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ENODEV) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := unix.Rmdir(dir); err != nil && !errors.Is(err, unix.ENOENT) {
		return &os.PathError{Op: "removing", Path: dir, Err: err}
	}
	return nil
}

// killGroup kills the processes of one group.
func killGroup(dir string) error {
	procs, err := os.ReadFile(dir + "/cgroup.procs")
	if err != nil {
		return err
	}
	for _, f := range strings.Fields(string(procs)) {
		// Only what runs in a box is in its group, and we are not.
		if pid, err := strconv.Atoi(f); err == nil {
			_ = sandbox.Signal(pid, unix.SIGKILL) // it may just have ended
		}
	}
	return nil
}

// close removes the parent groups, if they are empty.
func (c cgroups) close() {
	for _, tree := range c.trees {
		_ = unix.Rmdir(tree + c.parent)
	}
}
