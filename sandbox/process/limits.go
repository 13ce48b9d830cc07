package process

import (
	"cofferdam"
	"cofferdam/sandbox/cgroup"
)

// controllers are those that bound a box and stop it. On version 2 stopping needs
// none.
var controllers = cgroup.Needs{V1: []string{"memory", "cpu", "pids", "freezer"}, V2: []string{"memory", "cpu", "pids"}}

// initThreads is how many threads pid 1 has, and may need, besides what commands have.
const initThreads = 64

// makeGroup makes a box's group with its limits.
func (d *Driver) makeGroup(box string, l cofferdam.Limits) error {
	if err := d.groups.Make(box); err != nil {
		return err
	}
	return d.groups.Set(box, append(d.groups.Bounds(l.CPU, l.Memory, l.PIDs+initThreads), d.groups.NoSwap(l.Memory))...)
}

// minMemory is the least that a box may have, in bytes: pid 1 needs about 10 MiB.
const minMemory = 32 << 20

// maxCPU processors are more than any host has.
const maxCPU = 32768

// minInitFiles is what pid 1 itself needs to serve many commands at once.
const minInitFiles = 4096
