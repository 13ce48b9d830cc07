package process

import (
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"cofferdam"
	"cofferdam/sandbox"
	"cofferdam/sandbox/cgroup"
	"cofferdam/sandbox/mount"
	"cofferdam/sandbox/netns"
	"cofferdam/sandbox/quota"
	"cofferdam/sandbox/wall"
	"cofferdam/sandbox/watch"
)

// More layers that boxes of a keeper need.
const (
	layerRoot   = "root"
	layerGroups = "control-groups"
	layerDisk   = "sized-disk"
	layerState  = "state-folder"
)

// Check examines the host for what boxes of o need, without making one and
// without touching a state folder that another process may use.
func Check(ctx context.Context, o Options) []sandbox.Finding {
	c := newChecker(o)
	return c.all(ctx)
}

// checker examines the host. Its fields are where things are, so that a test
// can say that one is missing.
type checker struct {
	o        Options
	euid     int
	proc     string                // /proc/self
	most     func(what int) uint64 // the most that this process may ask of a limit
	tun      string
	groups   string
	landlock func() int
	seccomp  func() error
}

func newChecker(o Options) checker {
	return checker{o: o, euid: os.Geteuid(), proc: "/proc/self", most: hardLimit, tun: "/dev/net/tun", groups: cgroup.Root, landlock: wall.LandlockVersion, seccomp: seccompOffered}
}

// probe is one check: the layer, and what it finds.
type probe struct {
	layer string
	run   func() (detail string, err error)
}

// quick lists the checks that cost nothing to speak of.
func (c *checker) quick() []probe {
	return []probe{
		{layerRoot, c.root},
		{layerIDs, c.ids},
		{layerInit, c.program},
		{wall.LayerLandlock, c.rules},
		{wall.LayerSeccomp, c.filter},
		{wall.LayerTAP, c.tap},
		{layerGroups, c.bounds},
		{layerDisk, c.disk},
		{layerState, c.state},
	}
}

// all runs every check.
func (c *checker) all(context.Context) []sandbox.Finding {
	var list []sandbox.Finding
	inner := c.o.User
	for _, p := range append(c.quick(), probe{wall.LayerNetwork, namespace}, probe{layerUser, userNamespace}) {
		f := sandbox.Finding{Name: "process-" + p.layer, Level: sandbox.OK}
		var err error
		if f.Detail, err = p.run(); err != nil {
			f.Level, f.Detail, f.Fix = sandbox.Fail, err.Error(), fixOf(p.layer, err)
			switch {
			case p.layer == layerUser && !inner:
				f.Level = sandbox.Warn // only boxes of ordinary users need it
			case p.layer == layerGroups && c.o.Watched:
				inner = true
				f.Level, f.Detail, f.Fix = sandbox.Warn, "none: "+f.Detail+"; memory of boxes is watched, the processor is not bounded, and no box can be paused", watchedFix
			case p.layer == layerGroups && c.o.User:
				f.Fix = delegate
			}
		}
		list = append(list, f)
	}
	return list
}

// refuse returns the first failing check as the error of Create.
func (c *checker) refuse(context.Context) error {
	for _, p := range c.quick() {
		_, err := p.run()
		switch {
		case err == nil, p.layer == layerGroups && c.o.Watched:
		case p.layer == layerGroups && c.o.User:
			return &cofferdam.Error{Op: opCreate, Kind: cofferdam.Unavailable, Subject: "layer " + layerGroups, Reason: err.Error(), Hint: delegate, Err: err}
		default:
			return missing(opCreate, p.layer, err)
		}
	}
	return nil
}

func (c *checker) root() (string, error) {
	if c.euid != 0 {
		return "", fmt.Errorf("runs as uid %d: control groups and workspaces with a size need root", c.euid)
	}
	if c.o.User {
		return "uid 0 of an ordinary user's namespace", nil
	}
	if data, err := os.ReadFile(c.proc + "/uid_map"); err == nil && strings.Join(strings.Fields(string(data)), " ") != "0 0 4294967295" {
		return "", errors.New("runs in a user namespace, where commands cannot have marks and boxes no limits")
	}
	return "runs as root", nil
}

func (c *checker) program() (string, error) {
	if err := executable(c.o.Init); err != nil {
		return "", err
	}
	f, err := elf.Open(c.o.Init)
	if err != nil {
		return "", fmt.Errorf("%s is not a program: %w", c.o.Init, err)
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			return "", fmt.Errorf("%s is not static, so that it needs more than itself to start", c.o.Init)
		}
	}
	return c.o.Init, nil
}

func (c *checker) rules() (string, error) {
	v := c.landlock()
	if v < wall.MinLandlock {
		return "", fmt.Errorf("the kernel has version %d of Landlock, and %d is needed", v, wall.MinLandlock)
	}
	if v < 6 {
		return fmt.Sprintf("version %d, without scopes: namespaces cover the same", v), nil
	}
	return fmt.Sprintf("version %d", v), nil
}

func (c *checker) filter() (string, error) {
	if err := c.seccomp(); err != nil {
		return "", err
	}
	return "filters of system calls", nil
}

// seccompOffered asks the kernel whether it has filters, without installing one.
func seccompOffered() error {
	action := uint32(kill)
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_GET_ACTION_AVAIL, 0, uintptr(unsafe.Pointer(&action)))
	if errno != 0 {
		return fmt.Errorf("the kernel has no filter that ends a process: %w", errno)
	}
	return nil
}

func (c *checker) tap() (string, error) {
	f, err := os.OpenFile(c.tun, os.O_RDWR, 0)
	if err != nil {
		return "", err
	}
	return c.tun + " opens", f.Close()
}

func (c *checker) bounds() (string, error) {
	g, err := cgroup.Find(c.groups, "/cofferdam-check", controllers)
	switch {
	case err != nil:
		return "", err
	case g.V2:
		return "version 2", nil
	}
	return "version 1", nil
}

// disk checks that a workspace can have a real size.
func (c *checker) disk() (string, error) {
	if c.o.User {
		return "workspaces are in memory; kept ones are folders that are watched", nil
	}
	if quota.Enforced(c.nearest()) {
		return "project quotas", nil
	}
	if _, err := mount.FindProgram(mount.Mkfs); err != nil {
		return "", err
	}
	return "sized ext4 images on loop devices", unix.Access("/dev/loop-control", unix.W_OK)
}

// nearest is the state folder, or the folder above it that is there.
func (c *checker) nearest() string {
	dir := c.o.Root
	for ; dir != "/"; dir = filepath.Dir(dir) {
		if _, err := os.Stat(dir); err == nil {
			break
		}
	}
	return dir
}

func (c *checker) state() (string, error) {
	dir := c.nearest()
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return "", fmt.Errorf("%s is not a folder", dir)
	}
	if err := unix.Access(dir, unix.W_OK); err != nil {
		return "", fmt.Errorf("%s: %w", dir, err)
	}
	free, _, err := watch.Space(dir)
	return fmt.Sprintf("%s: %d MiB free", dir, free>>20), err
}

func namespace() (string, error) {
	n, err := netns.New()
	if err != nil {
		return "", err
	}
	return "with a TAP device of its own", n.Close()
}

// userNamespace tries one, as an ordinary user would have it.
func userNamespace() (string, error) {
	cmd := exec.Command("/bin/true")
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  unix.CLONE_NEWUSER | unix.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: os.Geteuid(), HostID: os.Geteuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: os.Getegid(), HostID: os.Getegid(), Size: 1}},
	}
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("making one: %w", err)
	}
	if restricted(restrictFile) {
		return "", errors.New("AppArmor refuses them to programs without a profile (kernel.apparmor_restrict_unprivileged_userns=1)")
	}
	return "for ordinary users", nil
}
