package microvm

import (
	"errors"
	"os"
	"strings"

	"cofferdam"
	"cofferdam/sandbox/cgroup"
	"cofferdam/sandbox/microvm/vmm"
)

// reserve is what a monitor needs beside the memory of its machine.
const reserve = 256 << 20

// monitorTasks bounds a monitor's threads: one for each processor, and those
// that do its input and output, at most 64 at a time.
const monitorTasks = 256

// controllers are what bounds a monitor.
var controllers = cgroup.Needs{V1: []string{"cpu", "memory", "pids"}, V2: []string{"cpu", "memory", "pids"}}

// bounds are those of a monitor whose machine has a box's limits. Version 1 bounds
// no swap of it.
func (d *Driver) bounds(l cofferdam.Limits) []cgroup.Setting {
	memory := l.Memory + reserve
	list := d.groups.Bounds(l.CPU, memory, monitorTasks)
	if d.groups.V2 {
		list = append(list, d.groups.NoSwap(memory))
	}
	return list
}

// group is a box's, for a monitor that enters it by itself.
func (d *Driver) group(l cofferdam.Limits) vmm.Group {
	if d.groups.None() {
		return vmm.Group{}
	}
	g := vmm.Group{V2: d.groups.V2, Parent: strings.TrimPrefix(d.groups.Parent(), "/"), Settings: map[string]string{}}
	for _, s := range d.bounds(l) {
		g.Settings[s.File] = s.Value
	}
	return g
}

// hold puts a monitor's processes into a group of its own with the box's limits.
func (d *Driver) hold(id string, pids []int, l cofferdam.Limits) error {
	if err := d.groups.Make(id); err != nil && !errors.Is(err, os.ErrExist) { // a jailer has made it
		return err
	}
	if err := d.groups.Set(id, d.bounds(l)...); err != nil {
		return err
	}
	return d.groups.Add(id, pids...)
}

// endGroups removes the groups of an earlier process, and our own at the end.
func (d *Driver) endGroups() error {
	var errs []error
	for _, id := range d.groups.List() {
		errs = append(errs, d.groups.End(id))
	}
	d.groups.Close()
	return errors.Join(errs...)
}
