package gvisor

import (
	"bytes"
	"context"
	"debug/buildinfo"
	"debug/elf"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"sync"
	"time"

	"cofferdam/sandbox/cgroup"
	"cofferdam/sandbox/mount"

	"cofferdam/sandbox"
	"cofferdam/sandbox/netns"
	"cofferdam/sandbox/quota"
	"cofferdam/sandbox/watch"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

const gvisorModule = "gvisor.dev/gvisor"

// Check examines the host for what the boxes of o need, without making one and
// without touching a state folder that another process may use.
func Check(ctx context.Context, o Options) []sandbox.Finding {
	return (&checker{o: o, parent: "/cofferdam-check"}).all(ctx)
}

// checker examines the host.
type checker struct {
	o      Options
	parent string // of control groups

	mu      sync.Mutex
	proved  bool   // the platform ran a program; guarded by mu
	version string // of gVisor in o.Runsc; guarded by mu
}

// probe is one check: its name, and what it finds.
type probe struct {
	name string
	run  func(context.Context) (detail, fix string, err error)
}

// quick lists the checks that cost nothing to speak of.
func (c *checker) quick() []probe {
	return []probe{
		{"root", c.root},
		{"tun-device", c.tun},
		{"gvisor-program", c.runsc},
		{"init-program", c.init},
		{"control-groups", c.groups},
		{"sized-disk", c.disk},
		{"state-folder", c.state},
	}
}

// all runs every check.
func (c *checker) all(ctx context.Context) []sandbox.Finding {
	var list []sandbox.Finding
	failed := false
	for _, p := range append(c.quick(), probe{"network-namespace", c.namespace}, probe{"gvisor-systrap", c.systrap}) {
		f := sandbox.Finding{Name: p.name, Level: sandbox.OK}
		var err error
		switch f.Detail, f.Fix, err = p.run(ctx); {
		case err != nil:
			f.Level, f.Detail, failed = sandbox.Fail, err.Error(), true
		case f.Fix != "":
			f.Level = sandbox.Warn
		}
		if failed && p.name == "gvisor-systrap" && f.Level == sandbox.Fail {
			f.Detail = "not proved: " + f.Detail
		}
		list = append(list, f)
	}
	return list
}

// refuse returns the first failing check as the error of Create.
func (c *checker) refuse(ctx context.Context) error {
	probes := c.quick()
	c.mu.Lock()
	if !c.proved {
		probes = append(probes, probe{"gvisor-systrap", c.systrap})
	}
	c.mu.Unlock()
	for _, p := range probes {
		if _, fix, err := p.run(ctx); err != nil {
			return missing("layer "+p.name, err.Error(), fix, err)
		}
	}
	return nil
}

func (c *checker) root(context.Context) (string, string, error) {
	if os.Geteuid() != 0 {
		return "", "run the keeper as root, or by cofferdam-keeper as an ordinary user with a range of ids", fmt.Errorf("runs as uid %d, and boxes need mounts and network namespaces", os.Geteuid())
	}
	if c.o.User {
		return "uid 0 of an ordinary user's namespace", "", nil
	}
	return "runs as root", "", nil
}

func (c *checker) tun(context.Context) (string, string, error) {
	const fix = "load the kernel module: modprobe tun; in a container, pass --device /dev/net/tun; for ordinary users: chmod 0666 /dev/net/tun, as udev does"
	f, err := os.OpenFile("/dev/net/tun", os.O_RDWR, 0)
	if err != nil {
		return "", fix, err
	}
	return "/dev/net/tun opens", "", f.Close()
}

// runsc checks that the sandbox program is there, static, and of the very
// version that this program was linked with: they share formats.
func (c *checker) runsc(context.Context) (string, string, error) {
	const fix = "build and install all programs of one release together: make build"
	if err := executable(c.o.Runsc); err != nil {
		return "", fix, err
	}
	c.mu.Lock()
	known := c.version
	c.mu.Unlock()
	if known != "" {
		return "gVisor " + known, "", nil
	}
	info, err := buildinfo.ReadFile(c.o.Runsc)
	if err != nil {
		return "", fix, fmt.Errorf("%s is not a program of ours: %w", c.o.Runsc, err)
	}
	version := moduleVersion(info)
	if version == "" {
		return "", fix, fmt.Errorf("%s does not contain gVisor", c.o.Runsc)
	}
	if own, ok := debug.ReadBuildInfo(); ok && moduleVersion(own) != "" && moduleVersion(own) != version {
		return "", fix, fmt.Errorf("%s has gVisor %s, this program %s", c.o.Runsc, version, moduleVersion(own))
	}
	for _, s := range info.Settings {
		if s.Key == "CGO_ENABLED" && s.Value != "0" {
			return "", fix, fmt.Errorf("%s is not static, so that it cannot start itself inside its empty root", c.o.Runsc)
		}
	}
	c.mu.Lock()
	c.version = version
	c.mu.Unlock()
	return "gVisor " + version, "", nil
}

func moduleVersion(info *debug.BuildInfo) string {
	for _, m := range info.Deps {
		if m.Path == gvisorModule {
			return m.Version
		}
	}
	return ""
}

// kernel says what boxes see as their kernel.
func (c *checker) kernel() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return "gVisor " + c.version + ", systrap"
}

func (c *checker) init(context.Context) (string, string, error) {
	const fix = "build and install all programs of one release together: make build"
	if err := executable(c.o.Init); err != nil {
		return "", fix, err
	}
	f, err := elf.Open(c.o.Init)
	if err != nil {
		return "", fix, fmt.Errorf("%s is not a program: %w", c.o.Init, err)
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			return "", fix, fmt.Errorf("%s is not static, so that it cannot run in every image", c.o.Init)
		}
	}
	return c.o.Init, "", nil
}

func executable(path string) error {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return err
	case !info.Mode().IsRegular() || info.Mode()&0o111 == 0:
		return fmt.Errorf("%s is not an executable file", path)
	}
	return nil
}

func (c *checker) groups(context.Context) (string, string, error) {
	g, err := cgroup.Find(cgroup.Root, c.parent, controllers)
	switch {
	case err != nil && c.o.Watched:
		return "none: " + err.Error() + "; memory of boxes is watched, CPU is not bounded", "run the keeper as root", nil
	case err != nil && c.o.User:
		return "", delegate, err
	case err != nil:
		return "", "mount the cgroup controllers cpu, memory and pids at " + cgroup.Root + ", writable", err
	case g.V2:
		return "version 2", "", nil
	}
	return "version 1", "", nil
}

// disk checks that a workspace can have a real size.
func (c *checker) disk(context.Context) (string, string, error) {
	if c.o.User {
		return "workspaces are in memory; kept ones, and environments while they are set up, are folders that are watched", "run the keeper as root for kept workspaces and environments with a wall", nil
	}
	if _, err := mount.FindProgram(mount.Mkfs); err != nil {
		return "", "install e2fsprogs", err
	}
	if _, err := mount.FreeLoop(); err != nil {
		return "", "load the kernel module: modprobe loop; in a container, pass the loop devices", fmt.Errorf("loop devices: %w", err)
	}
	if quota.Enforced(c.nearest()) {
		return "project quotas for workspaces, sized ext4 images for environments", "", nil
	}
	return "sized ext4 images on loop devices", "", nil
}

// nearest is the state folder, or the folder above it that is there: it need
// not be made yet.
func (c *checker) nearest() string {
	dir := c.o.Root
	for ; dir != "/"; dir = filepath.Dir(dir) {
		if _, err := os.Stat(dir); err == nil {
			break
		}
	}
	return dir
}

func (c *checker) state(context.Context) (string, string, error) {
	dir := c.nearest()
	if err := unix.Access(dir, unix.W_OK); err != nil {
		return "", "choose a state folder that can be written", fmt.Errorf("%s: %w", dir, err)
	}
	free, _, err := watch.Space(dir)
	if err != nil {
		return "", "choose a state folder on a local disk", err
	}
	detail := fmt.Sprintf("%s: %d MiB free", dir, free>>20)
	if free < sandbox.DefaultLimits.Disk {
		return detail, "free space: a workspace may grow to " + fmt.Sprint(sandbox.DefaultLimits.Disk>>20) + " MiB", nil
	}
	return detail, "", nil
}

func (c *checker) namespace(context.Context) (string, string, error) {
	n, err := netns.New()
	if err != nil {
		return "", "mend tun-device first, if it fails too; the kernel needs network namespaces; in a container, allow CAP_NET_ADMIN and CAP_SYS_ADMIN", err
	}
	return "with a TAP device of its own", "", n.Close()
}

// probeTime bounds the proof of the platform; a slow host needs about a second.
const probeTime = 30 * time.Second

// systrap proves the platform by running a program in it: the sandbox program
// itself, which then prints its version from inside.
func (c *checker) systrap(ctx context.Context) (string, string, error) {
	const fix = "gVisor needs Linux 5.4 or later on x86-64 or arm64, with user namespaces and ptrace allowed (kernel.yama.ptrace_scope below 3)"
	if err := executable(c.o.Runsc); err != nil {
		return "", "install cofferdam-runsc", err
	}
	dir, err := os.MkdirTemp("", "cofferdam-probe-")
	if err != nil {
		return "", "make room in the folder for temporary files", err
	}
	defer os.RemoveAll(dir)
	if err := writeProbe(dir, c.o.Runsc); err != nil {
		return "", "make room in the folder for temporary files", err
	}
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, c.o.Runsc, "--root="+filepath.Join(dir, "state"), "--platform=systrap", "--network=none",
		"--ignore-cgroups", "--overlay2=none", "--host-settings=ignore", "run", "--bundle="+dir, "probe")
	cmd.Env, cmd.Dir = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}, dir
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	began := time.Now()
	if err := cmd.Run(); err != nil {
		return "", fix, fmt.Errorf("running a program in gVisor: %w: %.300s", err, bytes.TrimSpace(errs.Bytes()))
	}
	if !bytes.Contains(out.Bytes(), []byte("runsc version")) {
		return "", fix, fmt.Errorf("a program in gVisor printed nothing it should: %.100q", out.Bytes())
	}
	c.mu.Lock()
	c.proved = true
	c.mu.Unlock()
	return fmt.Sprintf("a program ran in it and ended after %d ms", time.Since(began).Milliseconds()), "", nil
}

// writeProbe writes the bundle of the smallest box: one program, no network.
func writeProbe(dir, program string) error {
	spec := specs.Spec{
		Version: specs.Version,
		Root:    &specs.Root{Path: filepath.Join(dir, "root"), Readonly: true},
		Process: &specs.Process{Args: []string{"/runsc", "--version"}, Cwd: "/", NoNewPrivileges: true},
		Mounts:  []specs.Mount{bound(program, "/runsc", "ro")},
		Linux:   &specs.Linux{},
	}
	data, err := json.Marshal(spec)
	if err != nil {
		return err
	}
	return errors.Join(
		os.Mkdir(filepath.Join(dir, "root"), 0o755),
		os.WriteFile(filepath.Join(dir, "root", "runsc"), nil, 0o755),
		os.WriteFile(filepath.Join(dir, "config.json"), data, 0o600),
	)
}
