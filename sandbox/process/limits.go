package process

import (
	"cmp"
	"fmt"

	"cofferdam"
	"cofferdam/sandbox"
)

// Bounds of what a Spec may ask for.
const (
	minMemory = 32 << 20 // pid 1 needs about 10 MiB
	minDisk   = 16 << 20 // mkfs.ext4 wants a few thousand blocks
	maxDisk   = 1 << 44  // 16 TiB, the limit of ext4 with 4 KiB blocks
	minTemp   = 1 << 20
	minCPU    = 0.05 // the kernel takes quotas from 1 ms per 100 ms
	minPIDs   = 8
	maxPIDs   = 32768 // the kernel's default pid_max
	minOpen   = 64
	maxOpen   = 1 << 20 // the kernel's default nr_open

	// minInitFiles is what pid 1 itself needs to serve many commands at once.
	minInitFiles = 4096
)

// limits completes l with the defaults and checks it.
func limits(l cofferdam.Limits) (cofferdam.Limits, error) {
	d := sandbox.DefaultLimits
	l.Memory, l.Disk = cmp.Or(l.Memory, d.Memory), cmp.Or(l.Disk, d.Disk)
	l.Temp, l.CPU = cmp.Or(l.Temp, min(d.Temp, l.Memory/4)), cmp.Or(l.CPU, d.CPU)
	l.PIDs, l.OpenFiles = cmp.Or(l.PIDs, d.PIDs), cmp.Or(l.OpenFiles, d.OpenFiles)
	for _, c := range []struct {
		name     string
		ok       bool
		min, max any
	}{
		{"memory", l.Memory >= minMemory, minMemory, "this host's memory"},
		{"disk", l.Disk >= minDisk && l.Disk <= maxDisk, minDisk, int64(maxDisk)},
		{"temp", l.Temp >= minTemp, minTemp, "a quarter of memory"},
		{"cpu", l.CPU >= minCPU && l.CPU <= maxPIDs, minCPU, maxPIDs},
		{"pids", l.PIDs >= minPIDs && l.PIDs <= maxPIDs, minPIDs, maxPIDs},
		{"open files", l.OpenFiles >= minOpen && l.OpenFiles <= maxOpen, minOpen, maxOpen},
	} {
		if !c.ok {
			return l, invalid(opCreate, "limit of "+c.name, "out of range", fmt.Sprintf("give a value from %v to %v", c.min, c.max))
		}
	}
	// What lies in memory counts as memory: full, it must leave room to run.
	if 2*l.Temp+shared(l) > l.Memory/4*3 {
		return l, invalid(opCreate, "limit of temp", "too much of the memory",
			"/tmp and the home folder are in memory: give at most a quarter of the memory limit, or more memory")
	}
	return l, nil
}
