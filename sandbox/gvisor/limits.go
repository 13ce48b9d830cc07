package gvisor

import (
	"fmt"

	"cofferdam"
	"cofferdam/sandbox"
)

// Bounds of what a Spec may ask for. Below the lower ones a box does not start
// or mkfs.ext4 refuses; the upper ones keep one box from taking the host.
const (
	minMemory = 128 << 20 // sentry, gofer and pid 1 need about 60 MiB
	minDisk   = 16 << 20  // mkfs.ext4 wants a few thousand blocks
	maxDisk   = 1 << 44   // 16 TiB, the limit of ext4 with 4 KiB blocks
	minTemp   = 1 << 20
	minCPU    = 0.05 // the kernel takes quotas from 1 ms per 100 ms
	minPIDs   = 8
	maxPIDs   = 32768 // the kernel's default pid_max
	minOpen   = 64
	maxOpen   = 1 << 20 // the kernel's default nr_open

	// maxShared is what browsers and databases want of /dev/shm.
	maxShared = 512 << 20

	// The kernel would end a whole box that meets its limit of memory. So its
	// limit lies this much higher: at the box's own, pid 1 ends the largest
	// process, which a hog of 2 GB/s gives it 60 ms to do; and the sentry, which
	// is no part of what a box may use, fits in too.
	reserve = 128 << 20

	// A guest process is several threads on the host, and the sentry has its
	// own. When the host's limit is hit the whole box dies, so it is looser
	// than the one inside, which only makes fork fail.
	hostPIDsEach = 8
	hostPIDsBase = 512
)

// limits completes l with the defaults and checks it.
func limits(l cofferdam.Limits) (cofferdam.Limits, error) {
	d := sandbox.DefaultLimits
	fill(&l.Memory, d.Memory)
	fill(&l.Disk, d.Disk)
	fill(&l.Temp, min(d.Temp, l.Memory/4))
	fill(&l.PIDs, d.PIDs)
	fill(&l.OpenFiles, d.OpenFiles)
	if l.CPU == 0 {
		l.CPU = d.CPU
	}
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
			return l, invalid("limit of "+c.name, "out of range",
				fmt.Sprintf("give a value from %v to %v", c.min, c.max))
		}
	}
	// What lies in memory counts as memory: full, it must leave room to run.
	if 2*l.Temp+shared(l) > l.Memory/4*3 {
		return l, invalid("limit of temp", "too much of the memory",
			"/tmp and the home folder are in memory: give at most a quarter of the memory limit, or more memory")
	}
	return l, nil
}

// shared is the size of /dev/shm.
func shared(l cofferdam.Limits) int64 { return min(maxShared, l.Memory/8) }

func fill(v *int64, def int64) {
	if *v == 0 {
		*v = def
	}
}

// invalid is the error for a Spec that cannot be had.
func invalid(subject, reason, hint string) error {
	return &cofferdam.Error{Op: "gvisor.Create", Kind: cofferdam.Invalid, Subject: subject, Reason: reason, Hint: hint}
}

// missing is the error for a layer that the host does not offer.
func missing(layer, reason, hint string, err error) error {
	return &cofferdam.Error{Op: "gvisor.Create", Kind: cofferdam.Unavailable, Subject: layer, Reason: reason, Hint: hint, Err: err}
}
