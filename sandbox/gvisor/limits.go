package gvisor

import (
	"math"
	"runtime"
	"strconv"

	"cofferdam"
	"cofferdam/sandbox"
	"cofferdam/sandbox/cgroup"

	"golang.org/x/sys/unix"
)

// controllers are those that bound a box.
var controllers = cgroup.Needs{V1: []string{"memory", "cpu", "pids"}, V2: []string{"memory", "cpu", "pids"}}

// Bounds of what a Spec may ask for. Below the lower one a box does not start.
const (
	minMemory = 128 << 20 // sentry, gofer and pid 1 need about 60 MiB
	maxCPU    = 32768     // more than any host has

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

// limit makes the box's control groups and says how its programs begin in them. gVisor's
// package would go into them itself, with every thread of this process, until the
// kernel of the box is up; so it is told that there are none.
func limit(b *box) error {
	l, id := b.spec.Limits, string(b.name)
	memory, tasks := l.Memory+reserve, hostPIDsBase+hostPIDsEach*l.PIDs
	err := b.d.groups.Make(id)
	if err == nil {
		err = b.d.groups.Set(id, append(b.d.groups.Bounds(l.CPU, memory, tasks), b.d.groups.NoSwap(memory))...)
	}
	if err != nil {
		return missing("control groups", err.Error(), "mount the memory, cpu and pids controllers writable", err)
	}
	return cgroup.Start{Program: b.d.o.Runsc, Tasks: b.d.groups.Tasks(id), Flags: seen(l)}.Write(b.dir)
}

// minCPUs is how many processors a box sees at least: with one, programs leave locks
// out that they need. It is gVisor's own.
const minCPUs = 2

// seen are the arguments that say what of the host a box sees: as many processors and
// as much memory as it may use.
func seen(l cofferdam.Limits) []string {
	memory, cpus := l.Memory+reserve, min(runtime.NumCPU(), max(minCPUs, int(math.Ceil(l.CPU))))
	var host unix.Sysinfo_t
	if unix.Sysinfo(&host) == nil {
		memory = min(memory, int64(host.Totalram)*int64(host.Unit))
	}
	return []string{"--cpu-num=" + strconv.Itoa(cpus), "--total-memory=" + strconv.FormatInt(memory, 10)}
}

// invalid is the error for a Spec that cannot be had.
func invalid(subject, reason, hint string) error {
	return sandbox.Refuse("gvisor.Create", subject, reason, hint)
}

// missing is the error for a layer that the host does not offer.
func missing(layer, reason, hint string, err error) error {
	return &cofferdam.Error{Op: "gvisor.Create", Kind: cofferdam.Unavailable, Subject: layer, Reason: reason, Hint: hint, Err: err}
}
