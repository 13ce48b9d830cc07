package microvm

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"cofferdam"
	"cofferdam/sandbox/microvm/vmm"
)

const cgroupRoot = "/sys/fs/cgroup"

// reserve is what a monitor needs beside the memory of its machine.
const reserve = 256 << 20

// monitorTasks bounds a monitor's threads: one for each processor, and those
// that do its input and output, at most 64 at a time.
const monitorTasks = 256

// cgroups is where the control groups of monitors are: one for each box, under
// a parent of our own. On version 1 each controller is a tree of its own.
// Version 2 is not run here: these machines have version 1.
type cgroups struct {
	v2     bool
	parent string
	off    bool // there are none: every step on them does nothing
}

// controllers are what bounds a monitor.
var controllers = []string{"cpu", "memory", "pids"}

func findCgroups(parent string) (cgroups, error) {
	c := cgroups{parent: parent}
	var st unix.Statfs_t
	if err := unix.Statfs(cgroupRoot, &st); err != nil {
		return c, fmt.Errorf("looking at %s: %w", cgroupRoot, err)
	}
	c.v2 = st.Type == unix.CGROUP2_SUPER_MAGIC
	for _, tree := range c.trees() {
		if err := unix.Access(tree, unix.W_OK); err != nil {
			return c, fmt.Errorf("%s: %w", tree, err)
		}
	}
	return c, nil
}

func (c cgroups) trees() []string {
	if c.off {
		return nil
	}
	if c.v2 {
		return []string{cgroupRoot}
	}
	var list []string
	for _, name := range controllers {
		list = append(list, filepath.Join(cgroupRoot, name))
	}
	return list
}

// group is a box's, for a monitor that enters it by itself.
func (c cgroups) group(l cofferdam.Limits) vmm.Group {
	const period = 100_000 // microseconds, the kernel's default
	quota, memory := int64(l.CPU*period), strconv.FormatInt(l.Memory+reserve, 10)
	g := vmm.Group{V2: c.v2, Parent: strings.TrimPrefix(c.parent, "/"), Settings: map[string]string{
		"cpu.cfs_quota_us": strconv.FormatInt(quota, 10), "memory.limit_in_bytes": memory, "pids.max": strconv.Itoa(monitorTasks),
	}}
	if c.v2 {
		g.Settings = map[string]string{
			"cpu.max": fmt.Sprintf("%d %d", quota, period), "memory.max": memory, "memory.swap.max": "0", "pids.max": strconv.Itoa(monitorTasks),
		}
	}
	return g
}

// hold puts a monitor's processes into a group of its own with the box's limits.
func (c cgroups) hold(id string, pids []int, l cofferdam.Limits) error {
	if c.off {
		return nil
	}
	settings := c.group(l).Settings
	if c.v2 {
		for _, dir := range []string{cgroupRoot, cgroupRoot + c.parent} {
			err := os.Mkdir(dir, 0o755)
			if err == nil || errors.Is(err, os.ErrExist) {
				err = os.WriteFile(dir+"/cgroup.subtree_control", []byte("+cpu +memory +pids"), 0o644)
			}
			if err != nil {
				return err
			}
		}
	}
	for _, tree := range c.trees() {
		if err := os.MkdirAll(filepath.Join(tree, c.parent, id), 0o755); err != nil {
			return err
		}
	}
	for name, value := range settings {
		controller, _, _ := strings.Cut(name, ".")
		if c.v2 {
			controller = ""
		}
		if err := os.WriteFile(filepath.Join(cgroupRoot, controller, c.parent, id, name), []byte(value), 0o644); err != nil {
			return err
		}
	}
	for _, tree := range c.trees() {
		for _, pid := range pids {
			if err := os.WriteFile(filepath.Join(tree, c.parent, id, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0o644); err != nil {
				return err
			}
		}
	}
	return nil
}

// end removes a box's groups; their processes are gone.
func (c cgroups) end(id string) error {
	var errs []error
	for _, tree := range c.trees() {
		dir := filepath.Join(tree, c.parent, id)
		err := os.Remove(dir)
		for try := 0; errors.Is(err, unix.EBUSY) && try < 100; try++ { // the kernel may need a moment
			time.Sleep(time.Duration(try) * time.Millisecond)
			err = os.Remove(dir)
		}
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// endAll removes the groups of an earlier process, and our own at the end; what
// is still in use stays and is removed the next time.
func (c cgroups) endAll() {
	for _, tree := range c.trees() {
		parent := filepath.Join(tree, c.parent)
		list, err := os.ReadDir(parent)
		if err != nil {
			continue
		}
		for _, e := range list {
			if e.IsDir() {
				_ = os.Remove(filepath.Join(parent, e.Name()))
			}
		}
		_ = os.Remove(parent)
	}
}
