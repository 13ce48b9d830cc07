// Package vmm is what a monitor of virtual machines is to the driver of tier
// microvm: what one is told, what it can be asked, and how its process is held.
// QEMU, Firecracker and Cloud Hypervisor are monitors, each in a room of its own.
//
// It never trusts a monitor, which reads what its guest writes: what one answers
// is bounded in size and time, what it names is looked at before it is followed,
// and one that does not answer is ended. Its invariant: a machine of a monitor
// that serves an API is handed out only by Begin, which ends what a start that
// failed has made.
package vmm

import (
	"context"
	"os"

	"cofferdam/sandbox/cage"
)

// Monitor runs machines.
type Monitor interface {
	// Version names the program and its version; an error says why none can be had.
	Version(ctx context.Context) (string, error)
	// Traits are what the driver must know of it.
	Traits() Traits
	// Start starts a machine, or with m.Incoming one that waits for Load.
	Start(ctx context.Context, m Machine) (Running, error)
}

// Traits are in what monitors differ.
type Traits struct {
	Name string // in flags and settings: "qemu"
	Fix  string // how to get it
	// Emulates says that it runs machines without KVM too.
	Emulates bool
	// SharesMemory says that a machine's memory is the file Machine.Memory: Save
	// and Load leave it to the driver.
	SharesMemory bool
	// Reconnects says that a machine's line to its pid 1 ends when it is saved.
	Reconnects bool
	// Modules are those of the guest's kernel that its devices need beside the
	// ones that every machine loads, in order.
	Modules []string
	// Flags say what holds it, for the status of a box.
	Flags []string
}

// Machine is all that a monitor is told.
type Machine struct {
	ID             string // letters, digits and hyphens, at most 64
	KVM            bool
	UID            int    // of the monitor's process
	Dir            string // an empty folder of this monitor alone, which goes with the machine
	Kernel, Initrd string
	Memory         string // a file of Size bytes, which the monitor shares and may write; "" unless SharesMemory
	Size           int64
	CPUs           int
	Disks          []Drive
	Console        *os.File // stream socket: what the kernel prints
	Network        *os.File // stream socket: frames after their length, u32 big endian
	Incoming       *Saved   // nil: it boots
	Group          Group
	Alone          bool // no control group holds the monitor: its own bounds do
}

// Drive is a disk of a machine.
type Drive struct {
	Serial   string
	File     *os.File // its name is its path
	Writable bool
}

// Saved is where a machine at rest lies: two files.
type Saved struct {
	State  string // of its devices and processors
	Memory string // of a monitor that SharesMemory the driver writes and reads it
}

// Group is the control group that a monitor begins its life in, for one that
// puts itself there. The driver puts every process into it all the same.
type Group struct {
	V2       bool
	Parent   string            // below the root of each tree
	Settings map[string]string // file name to value
}

// Running is a machine that a monitor runs.
type Running interface {
	// Process is the one whose end is the machine's end.
	Process() *cage.Process
	// PIDs are all its processes, that of the monitor itself the last.
	PIDs() []int
	// Line joins to pid 1 and returns once pid 1 answers there, or at once where a
	// socket was given at the start. Of a monitor that Reconnects it is called
	// again after Save and after Load, when the machine goes on.
	Line(ctx context.Context) (*os.File, error)
	// Pause stops its processors; Resume lets them go on.
	Pause(ctx context.Context) error
	Resume(ctx context.Context) error
	// Save writes a paused machine into files that are not there yet; Load reads
	// what Machine.Incoming names. After both it is paused.
	Save(ctx context.Context, to Saved) error
	Load(ctx context.Context) error
	// End ends it and returns when it is gone.
	End()
}

// Largest is the size of the largest file that the machine's monitor writes.
func (m Machine) Largest() int64 {
	most := m.Size
	for _, d := range m.Disks {
		if info, err := d.File.Stat(); err == nil && d.Writable {
			most = max(most, info.Size())
		}
	}
	return most
}
