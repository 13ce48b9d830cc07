package gvisor

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"cofferdam"
	"cofferdam/sandbox"

	specs "github.com/opencontainers/runtime-spec/specs-go"
)

// initCapabilities is all that pid 1 has, and no command of a box has any: to
// give commands their user and group, and to end them.
var initCapabilities = []string{"CAP_SETUID", "CAP_SETGID", "CAP_KILL"}

// bundle is all that the OCI description of a box is made from.
type bundle struct {
	id       cofferdam.BoxID
	dir      string // of the box
	root     string // what it has at "/"; shared, read-only
	hostname string
	netns    string
	limits   cofferdam.Limits
	binds    []bind
	env      bool // there is an image for /env
	writable bool // … and it may be written
}

// write puts config.json into the box's folder.
func (b bundle) write() error {
	data, err := json.Marshal(b.spec())
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(b.dir, "config.json"), data, 0o600)
}

func (b bundle) spec() *specs.Spec {
	caps := initCapabilities
	nproc, nofile := uint64(b.limits.PIDs), uint64(max(b.limits.OpenFiles, minInitFiles))
	return &specs.Spec{
		Version:  specs.Version,
		Hostname: b.hostname,
		Root:     &specs.Root{Path: b.root, Readonly: true},
		Process: &specs.Process{
			User:            specs.User{UID: 0, GID: 0},
			Args:            []string{"/" + programDir + "/init"},
			Env:             []string{"PATH=/usr/local/bin:/usr/bin:/bin"},
			Cwd:             "/",
			NoNewPrivileges: true,
			Capabilities:    &specs.LinuxCapabilities{Bounding: caps, Effective: caps, Permitted: caps},
			Rlimits: []specs.POSIXRlimit{
				{Type: "RLIMIT_NOFILE", Hard: nofile, Soft: nofile},
				{Type: "RLIMIT_NPROC", Hard: nproc, Soft: nproc},
				{Type: "RLIMIT_CORE"},
			},
		},
		Mounts: b.mounts(),
		Linux: &specs.Linux{
			Namespaces: []specs.LinuxNamespace{
				{Type: specs.PIDNamespace},
				{Type: specs.MountNamespace},
				{Type: specs.IPCNamespace},
				{Type: specs.UTSNamespace},
				{Type: specs.NetworkNamespace, Path: b.netns},
			},
		},
	}
}

// minInitFiles is what pid 1 itself needs to serve many commands at once.
const minInitFiles = 4096

func (b bundle) mounts() []specs.Mount {
	uid, gid := fmt.Sprintf("uid=%d", sandbox.UserID), fmt.Sprintf("gid=%d", sandbox.UserID)
	m := []specs.Mount{
		{Destination: "/proc", Type: "proc", Source: "proc"},
		{Destination: "/sys", Type: "sysfs", Source: "sysfs", Options: []string{"ro", "nosuid", "nodev", "noexec"}},
		{Destination: "/dev", Type: "tmpfs", Source: "tmpfs"},
		{Destination: "/dev/pts", Type: "devpts", Source: "devpts"},
		inMemory("/dev/shm", sandbox.SharedMemory(b.limits), "mode=1777"),
		inMemory("/tmp", b.limits.Temp, "mode=1777"),
		inMemory(sandbox.HomeDir, b.limits.Temp, "mode=0700", uid, gid),
		inMemory("/run", runSize, "mode=0755", uid, gid),
		inMemory(identityDir, identitySize, "mode=0755"),
	}
	for _, x := range b.binds {
		m = append(m, bound(x.from, x.to, "ro"))
	}
	m = append(m, bound(filepath.Join(b.dir, "work"), sandbox.WorkDir, "rw"))
	if b.env {
		mode := "ro"
		if b.writable {
			mode = "rw"
		}
		m = append(m, bound(filepath.Join(b.dir, "env"), sandbox.EnvDir, mode))
	}
	return m
}

const (
	runSize      = 8 << 20  // for sockets and pid files
	identitySize = 64 << 10 // three short files
)

func inMemory(to string, size int64, options ...string) specs.Mount {
	options = append([]string{"nosuid", "nodev", fmt.Sprintf("size=%d", size)}, options...)
	return specs.Mount{Destination: to, Type: "tmpfs", Source: "tmpfs", Options: options}
}

func bound(from, to, mode string) specs.Mount {
	return specs.Mount{Destination: to, Type: "bind", Source: from, Options: []string{"bind", mode, "nosuid", "nodev"}}
}
