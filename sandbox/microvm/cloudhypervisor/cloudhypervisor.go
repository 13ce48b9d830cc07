// Package cloudhypervisor runs machines with Cloud Hypervisor, as a program that
// the driver confines, spoken to over its HTTP API.
//
// Written after the published description of Cloud Hypervisor 53.0: its API 0.3.0
// (OpenAPI 3.0.1, vmm/src/api/openapi/cloud-hypervisor.yaml), docs/landlock.md and
// docs/snapshot_restore.md. It is not run on this host: there is no such program
// here, and no KVM that runs a kernel; what is asked of it is checked against a
// description of that API in the tests.
//
// It never lets the monitor guess what a disk is: a guest could write the head of
// another format. Its invariant: no machine is handed out whose process was not
// seen to run as a user of its own, without rights, with every thread under a
// filter of system calls; Landlock is set twice, by the driver and by itself.
package cloudhypervisor

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"sync"

	"cofferdam/sandbox/microvm/vmm"
	"cofferdam/sandbox/mount"
)

// Name is the monitor's in settings.
const Name = "cloud-hypervisor"

// leastMajor is the version whose API this speaks.
const leastMajor = 53

const fix = "install cloud-hypervisor, 53.0 or newer, in /usr/local/bin; or choose another monitor with the keeper's --monitor"

// Monitor is Cloud Hypervisor.
type Monitor struct {
	// Program is an absolute path; "": where programs are installed.
	Program string

	mu    sync.Mutex
	known string // guarded by mu
}

// Traits implements vmm.Monitor.
func (*Monitor) Traits() vmm.Traits {
	return vmm.Traits{
		Name: Name, Fix: fix, Reconnects: true,
		Modules: []string{
			"virtio_pci_legacy_dev", "virtio_pci_modern_dev", "virtio_pci",
			"vsock", "vmw_vsock_virtio_transport_common", "vmw_vsock_virtio_transport",
		},
		Flags: []string{
			"monitor-namespaces=mount,pid,net,ipc,uts", "monitor-user=own", "monitor-seccomp=on", "monitor-landlock=on", "monitor-root=read-only",
		},
	}
}

var versions = regexp.MustCompile(`(?m)^cloud-hypervisor v([0-9]+)\.([0-9]+)`)

// Version implements vmm.Monitor.
func (m *Monitor) Version(ctx context.Context) (string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.known != "" {
		return m.known, nil
	}
	if m.Program == "" {
		found, err := mount.FindProgram("cloud-hypervisor")
		if err != nil {
			return "", fmt.Errorf("%w: not run on this host", err)
		}
		m.Program = found
	}
	said, err := vmm.SaysVersion(ctx, m.Program)
	if err != nil {
		return "", err
	}
	found := versions.FindStringSubmatch(said)
	if found == nil {
		return "", fmt.Errorf("%s does not say its version: %.80q", m.Program, said)
	}
	major, err := strconv.Atoi(found[1])
	if err != nil {
		return "", errors.Join(fmt.Errorf("the version of %s", m.Program), err)
	}
	if major < leastMajor {
		return "", fmt.Errorf("%s is of version %d.%s, and %d.0 or newer is needed", m.Program, major, found[2], leastMajor)
	}
	m.known = fmt.Sprintf("Cloud Hypervisor %d.%s", major, found[2])
	return m.known, nil
}
