package process

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"cofferdam"
	"cofferdam/sandbox"
)

const cgroupRoot = "/sys/fs/cgroup"

// controllers are those that bound a box and stop it. On version 2 stopping
// needs none.
var controllers = []string{"memory", "cpu", "pids", "freezer"}

// groups is where the control groups of this driver's boxes are: one per box
// under a parent of our own, in one tree (version 2) or in one for each
// controller (version 1, also where version 2 is mounted beside it).
//
// Boxes on version 2 are not run here: the controllers of these machines are
// bound to version 1.
type groups struct {
	root   string
	v2     bool
	off    bool   // there are none, and nothing of them is done
	parent string // "/cofferdam-…"
}

// findGroups looks at the host. An error says what is missing.
func findGroups(root, parent string) (groups, error) {
	g := groups{root: root, parent: parent}
	var st unix.Statfs_t
	if err := unix.Statfs(root, &st); err != nil {
		return g, fmt.Errorf("look at %s: %w", root, err)
	}
	if g.v2 = st.Type == unix.CGROUP2_SUPER_MAGIC; g.v2 {
		have, err := os.ReadFile(root + "/cgroup.controllers")
		if err != nil {
			return g, err
		}
		for _, want := range controllers[:3] {
			if !slices.Contains(strings.Fields(string(have)), want) {
				return g, fmt.Errorf("controller %s is not there", want)
			}
		}
		return g, unix.Access(root, unix.W_OK)
	}
	for _, want := range controllers {
		tree := filepath.Join(root, want)
		if err := unix.Statfs(tree, &st); err != nil || st.Type != unix.CGROUP_SUPER_MAGIC {
			return g, fmt.Errorf("controller %s is not mounted at %s", want, tree)
		}
		if err := unix.Access(tree, unix.W_OK); err != nil {
			return g, fmt.Errorf("controller %s: %w", want, err)
		}
	}
	return g, nil
}

// trees are the mount points that hold groups of ours.
func (g groups) trees() []string {
	if g.off {
		return nil
	}
	if g.v2 {
		return []string{g.root}
	}
	var list []string
	for _, c := range controllers {
		list = append(list, filepath.Join(g.root, c))
	}
	return list
}

func (g groups) dir(controller, box string) string {
	if g.v2 {
		return filepath.Join(g.root, g.parent, box)
	}
	return filepath.Join(g.root, controller, g.parent, box)
}

// make makes a box's group with its limits.
func (g groups) make(box string, l cofferdam.Limits) error {
	if g.off {
		return nil
	}
	for _, tree := range g.trees() {
		if err := os.MkdirAll(filepath.Join(tree, g.parent), 0o755); err != nil {
			return err
		}
	}
	if g.v2 {
		for _, dir := range []string{g.root, filepath.Join(g.root, g.parent)} {
			if err := os.WriteFile(dir+"/cgroup.subtree_control", []byte("+cpu +memory +pids"), 0o644); err != nil {
				return err
			}
		}
	}
	for _, tree := range g.trees() {
		if err := os.Mkdir(filepath.Join(tree, g.parent, box), 0o755); err != nil {
			return err
		}
	}
	return g.limit(box, l)
}

// period of the processor's time, in microseconds: the kernel's default.
const period = 100_000

// initThreads is how many threads pid 1 has, and may need, besides what commands have.
const initThreads = 64

func (g groups) limit(box string, l cofferdam.Limits) error {
	type setting struct {
		controller, file, value string
		optional                bool
	}
	quota, memory := strconv.Itoa(int(l.CPU*period)), strconv.FormatInt(l.Memory, 10)
	list := []setting{{"pids", "pids.max", strconv.FormatInt(l.PIDs+initThreads, 10), false}}
	if g.v2 {
		list = append(list, setting{"cpu", "cpu.max", quota + " " + strconv.Itoa(period), false}, setting{"memory", "memory.max", memory, false},
			setting{"memory", "memory.swap.max", "0", true}) // a host without swap has no such file
	} else {
		list = append(list, setting{"cpu", "cpu.cfs_period_us", strconv.Itoa(period), false}, setting{"cpu", "cpu.cfs_quota_us", quota, false},
			setting{"memory", "memory.limit_in_bytes", memory, false}, setting{"memory", "memory.memsw.limit_in_bytes", memory, true})
	}
	for _, s := range list {
		err := os.WriteFile(filepath.Join(g.dir(s.controller, box), s.file), []byte(s.value), 0o644)
		if err != nil && !(s.optional && errors.Is(err, os.ErrNotExist)) {
			return fmt.Errorf("set %s: %w", s.file, err)
		}
	}
	return nil
}

// add puts a process, and what it will start, into a box's group.
func (g groups) add(box string, pid int) error {
	for _, tree := range g.trees() {
		if err := os.WriteFile(filepath.Join(tree, g.parent, box, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// freezePatience is how long stopping a box may take; a process in the middle of
// a write to disk ends that first.
const freezePatience = 10 * time.Second

// freeze stops every process of a box, or lets it go on.
func (g groups) freeze(box string, stop bool) error {
	file, value, state := g.dir("freezer", box)+"/freezer.state", map[bool]string{true: "FROZEN", false: "THAWED"}[stop], ""
	if g.v2 {
		file, value = g.dir("", box)+"/cgroup.freeze", map[bool]string{true: "1", false: "0"}[stop]
	}
	for deadline := time.Now().Add(freezePatience); time.Now().Before(deadline); time.Sleep(2 * time.Millisecond) {
		if err := os.WriteFile(file, []byte(value), 0o644); err != nil {
			return err
		}
		data, err := os.ReadFile(file)
		if g.v2 && err == nil {
			data = []byte(strconv.FormatInt(counter(g.dir("", box)+"/cgroup.events", "frozen"), 10))
		}
		if err != nil {
			return err
		}
		if state = strings.TrimSpace(string(data)); state == value {
			return nil
		}
	}
	return fmt.Errorf("it is %s after %s", state, freezePatience)
}

// events are the counters that tell a limit was hit.
type events struct{ oomKills, pidsFull int64 }

// events reads the counters of a box; what cannot be read counts as zero, as
// when the box is gone.
func (g groups) events(box string) events {
	memory := "memory.oom_control"
	if g.v2 {
		memory = "memory.events"
	}
	return events{
		oomKills: counter(filepath.Join(g.dir("memory", box), memory), "oom_kill"),
		pidsFull: counter(filepath.Join(g.dir("pids", box), "pids.events"), "max"),
	}
}

// counter reads one line of "name number" from a file.
func counter(path, name string) int64 {
	data, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(data)) {
		if key, value, ok := strings.Cut(strings.TrimSpace(line), " "); ok && key == name {
			n, _ := strconv.ParseInt(value, 10, 64) // the kernel writes numbers
			return n
		}
	}
	return 0
}

// list names every box that has a group.
func (g groups) list() []string {
	seen := map[string]bool{}
	for _, tree := range g.trees() {
		entries, err := os.ReadDir(filepath.Join(tree, g.parent))
		if err != nil {
			continue
		}
		for _, e := range entries {
			if e.IsDir() {
				seen[e.Name()] = true
			}
		}
	}
	var names []string
	for name := range seen {
		names = append(names, name)
	}
	return names
}

// endPatience is how long the kernel may take to end what was killed.
const endPatience = 10 * time.Second

// end kills whatever is in a box's groups and removes them.
func (g groups) end(box string) error {
	_ = g.freeze(box, false) // what is stopped does not die on version 1; an error shows below
	var left error
	for deadline := time.Now().Add(endPatience); time.Now().Before(deadline); time.Sleep(2 * time.Millisecond) {
		left = nil
		for _, tree := range g.trees() {
			left = errors.Join(left, endGroup(filepath.Join(tree, g.parent, box)))
		}
		if left == nil {
			return nil
		}
	}
	return left
}

// endGroup kills the processes of one group and removes it.
func endGroup(dir string) error {
	procs, err := os.ReadFile(dir + "/cgroup.procs")
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ENODEV) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, f := range strings.Fields(string(procs)) {
		// Only what runs in a box is in its group, and we are not.
		if pid, err := strconv.Atoi(f); err == nil {
			_ = sandbox.Signal(pid, unix.SIGKILL) // it may just have ended
		}
	}
	if err := unix.Rmdir(dir); err != nil && !errors.Is(err, unix.ENOENT) {
		return &os.PathError{Op: "remove", Path: dir, Err: err}
	}
	return nil
}

// close removes the parent groups, if they are empty.
func (g groups) close() {
	for _, tree := range g.trees() {
		_ = unix.Rmdir(filepath.Join(tree, g.parent))
	}
}
