package firecracker

import (
	"fmt"
	"path/filepath"
	"slices"
	"strconv"

	"cofferdam/sandbox/microvm/vmm"
)

// Names of things in the jail. The jailer makes /run for the monitor's user.
const (
	inKernel = "/vm/kernel"
	inInitrd = "/vm/initrd"
	inState  = "/vm/state"  // to be loaded
	inMemory = "/vm/memory" // the same
	toState  = "/save/state"
	toMemory = "/save/memory"
	inLog    = "/vm/log"
)

// openFiles bounds the monitor's descriptors: it has some forty.
const openFiles = 256

func inDisk(serial string) string { return "/vm/disk-" + serial }

// arguments are the jailer's. network names a network namespace.
func (m *Monitor) arguments(v vmm.Machine, network string) []string {
	version := "1"
	if v.Group.V2 {
		version = "2"
	}
	user := strconv.Itoa(v.UID)
	args := []string{
		"--id", v.ID, "--exec-file", m.Program, "--uid", user, "--gid", user,
		"--chroot-base-dir", v.Dir, "--netns", network, "--new-pid-ns",
		"--cgroup-version", version,
	}
	if v.Group.Parent != "" {
		args = append(args, "--parent-cgroup", v.Group.Parent)
	}
	var settings []string
	for name, value := range v.Group.Settings {
		settings = append(settings, name+"="+value)
	}
	slices.Sort(settings)
	for _, s := range settings {
		args = append(args, "--cgroup", s)
	}
	return append(args,
		"--resource-limit", fmt.Sprintf("fsize=%d", v.Largest()), "--resource-limit", fmt.Sprintf("no-file=%d", openFiles),
		"--", "--api-sock", vmm.APISocket)
}

// root is where the jailer makes the jail.
func (m *Monitor) root(v vmm.Machine) string {
	return filepath.Join(v.Dir, filepath.Base(m.Program), v.ID, "root")
}
