package gvisor

import (
	"cofferdam"
	"cofferdam/sandbox"
	"cofferdam/sandbox/cgroup"
)

// controllers are those that gVisor asks for: on version 2, one that is missing
// would fail the start of a box; on version 1 gVisor makes groups in every tree.
var controllers = cgroup.Needs{V1: []string{"cpu", "memory", "pids"}, V2: []string{"cpu", "cpuset", "io", "memory", "pids"}, All: true}

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

// invalid is the error for a Spec that cannot be had.
func invalid(subject, reason, hint string) error {
	return sandbox.Refuse("gvisor.Create", subject, reason, hint)
}

// missing is the error for a layer that the host does not offer.
func missing(layer, reason, hint string, err error) error {
	return &cofferdam.Error{Op: "gvisor.Create", Kind: cofferdam.Unavailable, Subject: layer, Reason: reason, Hint: hint, Err: err}
}
