// Package firecracker runs machines with Firecracker, in the jail that its own
// jailer builds, spoken to over its HTTP API.
//
// Written after the published descriptions of Firecracker 1.16.1: its API (swagger
// 2.0, src/firecracker/swagger/firecracker.yaml) and docs/jailer.md. It is not run
// on this host: there is no such program here, and no KVM that runs a kernel; what
// is asked of it, and how it is started, is checked against a description of
// that API in the tests.
//
// It never gives a guest a metadata service: none is configured, and addresses of
// one are dropped on the wire. Its invariant: no machine is handed out whose
// process was not seen to run as a user of its own, without rights, with every
// thread under a filter of system calls.
package firecracker

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"strconv"
	"sync"

	"cofferdam/sandbox/microvm/vmm"
	"cofferdam/sandbox/mount"
)

// Name is the monitor's in settings.
const Name = "firecracker"

// The oldest version that has all that is asked of it: bounds for what the serial
// console says came with it.
const (
	leastMajor = 1
	leastMinor = 16
)

const fix = "install firecracker and jailer, both of one release, 1.16 or newer, in /usr/local/bin; or choose another monitor with the keeper's --monitor"

// Monitor is Firecracker.
type Monitor struct {
	// Program and Jailer are absolute paths; "": where programs are installed.
	Program, Jailer string
	// Init is the absolute path of cofferdam-init, pid 1 around the jailer.
	Init string

	mu    sync.Mutex
	known string // guarded by mu
}

// Traits implements vmm.Monitor.
func (*Monitor) Traits() vmm.Traits {
	return vmm.Traits{
		Name: Name, Fix: fix, Reconnects: true,
		Modules: []string{"vsock", "vmw_vsock_virtio_transport_common", "vmw_vsock_virtio_transport"},
		Flags: []string{
			"monitor-jail=jailer", "monitor-namespaces=mount,pid,net,ipc,uts", "monitor-user=own", "monitor-seccomp=on", "monitor-root=memory", "metadata=off",
		},
	}
}

var versions = regexp.MustCompile(`(?m)^(Firecracker|Jailer) v([0-9]+)\.([0-9]+)\.([0-9]+)`)

// Version implements vmm.Monitor: both programs are of one release.
func (m *Monitor) Version(ctx context.Context) (string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.known != "" {
		return m.known, nil
	}
	var said [2]string
	for i, p := range []struct {
		path *string
		name string
	}{{&m.Program, "firecracker"}, {&m.Jailer, "jailer"}} {
		if *p.path == "" {
			found, err := mount.FindProgram(p.name)
			if err != nil {
				return "", fmt.Errorf("%w: not run on this host", err)
			}
			*p.path = found
		}
		// The jailer names the jail after what a link leads to.
		resolved, err := filepath.EvalSymlinks(*p.path)
		if err != nil {
			return "", err
		}
		*p.path = resolved
		version, err := versionOf(ctx, *p.path)
		if err != nil {
			return "", err
		}
		said[i] = version
	}
	if said[0] != said[1] {
		return "", fmt.Errorf("%s is of version %s and %s of %s", m.Program, said[0], m.Jailer, said[1])
	}
	m.known = "Firecracker " + said[0]
	return m.known, nil
}

// versionOf asks one of the two programs.
func versionOf(ctx context.Context, path string) (string, error) {
	said, err := vmm.SaysVersion(ctx, path)
	if err != nil {
		return "", err
	}
	found := versions.FindStringSubmatch(said)
	if found == nil {
		return "", fmt.Errorf("%s does not say its version: %.80q", path, said)
	}
	major, err1 := strconv.Atoi(found[2])
	minor, err2 := strconv.Atoi(found[3])
	if err := errors.Join(err1, err2); err != nil {
		return "", err
	}
	if major != leastMajor || minor < leastMinor {
		return "", fmt.Errorf("%s is of version %d.%d, and %d.%d or newer is needed", path, major, minor, leastMajor, leastMinor)
	}
	return fmt.Sprintf("%d.%d.%s", major, minor, found[4]), nil
}
