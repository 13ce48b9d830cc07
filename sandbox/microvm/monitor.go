package microvm

import (
	"context"
	"os"
)

// monitor runs machines. QEMU is the one there is; what a box needs of it is no
// more than this, so that another can take its place.
type monitor interface {
	// version names the program and its version; an error says that there is none.
	version(ctx context.Context) (string, error)
	// start starts a machine, or with m.incoming one that waits for load.
	start(ctx context.Context, m machine) (running, error)
}

// machine is all that a monitor is told.
type machine struct {
	kvm            bool
	uid            int    // of the monitor's process
	dir            string // a folder to mount its root on
	kernel, initrd string
	memory         string // a file of size bytes, which the monitor shares and may write
	size           int64
	cpus           int
	disks          []drive
	serial         *os.File // stream socket: pid 1's talk
	console        *os.File // stream socket: what the kernel prints
	network        *os.File // stream socket: frames after their length, u32 big endian
	incoming       bool
}

// drive is a disk of a machine.
type drive struct {
	serial   string
	file     *os.File
	writable bool
}

// running is a machine that a monitor runs.
type running interface {
	process() *process
	// pause stops its processors; resume lets them go on.
	pause(ctx context.Context) error
	resume(ctx context.Context) error
	// save writes what is not in its memory file, load reads it. The machine
	// is paused; after load it still is.
	save(ctx context.Context, to *os.File) error
	load(ctx context.Context, from *os.File) error
	// end ends it and returns when it is gone.
	end()
}
