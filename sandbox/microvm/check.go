package microvm

import (
	"cmp"
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"

	"cofferdam/sandbox"
	"cofferdam/sandbox/cgroup"
	"cofferdam/sandbox/microvm/qemu"
	"cofferdam/sandbox/mount"
	"cofferdam/sandbox/wall"
)

// What mends a missing layer.
const (
	fixKernel   = "install linux-image-cloud-amd64, or name a kernel with the keeper's --kernel"
	fixErofs    = "install erofs-utils"
	fixExt4     = "install e2fsprogs"
	fixInit     = "build and install all programs of one release together: make build"
	fixKVM      = "run on a machine whose processor virtualises, with the kvm modules loaded; or ask for tier microvm-emulated, which is no security boundary"
	fixLandlock = "use Linux 5.19 or newer with landlock in its lsm= list"
	fixCgroups  = "mount the cgroup controllers cpu, memory and pids, writable"
	fixRoot     = "run server and keeper as root: sudo cofferdam serve; or ask for tier microvm-emulated, which is no security boundary"
)

// checker examines the host.
type checker struct {
	d *Driver

	host string // the root of what is looked at of the host; "": /

	mu    sync.Mutex
	proof *kvmProof // guarded by mu; nil: not tried by this process
}

// probe is one check: its name, what it finds, and its fix if it fails.
type probe struct {
	name string
	run  func(context.Context) (detail, fix string, err error)
}

// spare is the error of a probe without whose layer machines run, and say so.
type spare struct{ error }

// needed are the checks without which no machine starts.
func (c *checker) needed() []probe {
	return []probe{
		{"microvm-root", c.root},
		{"microvm-monitor", func(ctx context.Context) (string, string, error) {
			v, err := c.d.monitor.Version(ctx)
			return v, c.d.monitor.Traits().Fix, err
		}},
		{"microvm-kernel", func(context.Context) (string, string, error) {
			k, err := c.d.kernel()
			return k.version, fixKernel, err
		}},
		{"microvm-init", c.init},
		{"microvm-landlock", func(context.Context) (string, string, error) {
			v := wall.LandlockVersion()
			if v < wall.MinLandlock {
				return "", fixLandlock, fmt.Errorf("the kernel has version %d of Landlock, and %d is needed to enclose what reads an image", v, wall.MinLandlock)
			}
			return fmt.Sprintf("version %d", v), fixLandlock, nil
		}},
		{"microvm-erofs", installed(mkfsErofs, fixErofs)},
		{"microvm-ext4", installed(mount.Mkfs, fixExt4)},
		{"microvm-control-groups", func(context.Context) (string, string, error) {
			g, err := cgroup.Find(cgroup.Root, c.d.groups.Parent(), controllers)
			if err != nil && c.d.o.Watched {
				err = spare{fmt.Errorf("%w; a machine has its memory and its processors all the same, and their time is not bounded", err)}
			}
			if g.V2 {
				return "version 2", fixCgroups, err
			}
			return "version 1", fixCgroups, err
		}},
	}
}

func installed(program, fix string) func(context.Context) (string, string, error) {
	return func(context.Context) (string, string, error) {
		path, err := mount.FindProgram(program)
		return path, fix, err
	}
}

func (c *checker) root(context.Context) (string, string, error) {
	const fix = "run the keeper as root"
	if os.Geteuid() != 0 {
		return "", fix, fmt.Errorf("runs as uid %d, and a monitor needs namespaces and a user of its own", os.Geteuid())
	}
	who := "runs as root"
	if c.d.o.User {
		who = "runs as uid 0 of an ordinary user's namespace"
	}
	if target, err := os.Readlink("/lib"); err != nil || !strings.HasSuffix(target, "usr/lib") {
		return "", "use a system whose /lib is in /usr", errors.New("/lib is not merged into /usr, where a monitor finds its libraries")
	}
	return who, fix, nil
}

func (c *checker) init(context.Context) (string, string, error) {
	f, err := elf.Open(c.d.o.Init)
	if err != nil {
		return "", fixInit, fmt.Errorf("%s is no program: %w", c.d.o.Init, err)
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			return "", fixInit, fmt.Errorf("%s is not static, so that it cannot run in every machine", c.d.o.Init)
		}
	}
	return c.d.o.Init, fixInit, nil
}

// finding runs a probe whose fix only counts when it fails.
func (p probe) finding(ctx context.Context) sandbox.Finding {
	detail, fix, err := p.run(ctx)
	if err == nil {
		return sandbox.Finding{Name: p.name, Level: sandbox.OK, Detail: detail}
	}
	f := sandbox.Finding{Name: p.name, Level: sandbox.Fail, Detail: err.Error(), Fix: fix}
	if errors.As(err, &spare{}) {
		f.Level = sandbox.Warn
	}
	return f
}

// Check examines the host. What only tier microvm needs is a warning here: an
// emulated machine runs without it. Create refuses that tier by the same list.
func (d *Driver) Check(ctx context.Context) ([]sandbox.Finding, error) {
	var list []sandbox.Finding
	whole := true
	for _, p := range d.checker.needed() {
		f := p.finding(ctx)
		whole = whole && f.Level != sandbox.Fail
		list = append(list, f)
	}
	if whole || d.o.User { // that it is root's is so whatever else is missing
		f := probe{"microvm-kvm", d.checker.kvm}.finding(ctx)
		if f.Level == sandbox.Fail {
			f.Level = sandbox.Warn
		}
		list = append(list, f)
	}
	for _, f := range hostFindings(cmp.Or(d.checker.host, "/")) {
		if f.Level == sandbox.Fail {
			f.Level = sandbox.Warn
		}
		list = append(list, f)
	}
	return list, ctx.Err()
}

// refuse returns all missing layers of a tier as the error of Create.
func (c *checker) refuse(ctx context.Context, t sandbox.Tier) error {
	list := c.tierLacks(ctx, t)
	if len(list) == 0 {
		return nil
	}
	var names, reasons, fixes []string
	for _, f := range list {
		names = append(names, f.Name)
		reasons = append(reasons, f.Name+": "+f.Detail)
		fixes = append(fixes, f.Fix)
	}
	return missing(strings.Join(names, ", ")+" of tier "+string(t), strings.Join(reasons, "; "), strings.Join(fixes, "; "), nil)
}

// tierLacks are the findings that forbid a tier. No machine is started to prove
// KVM where something before it is missing.
func (c *checker) tierLacks(ctx context.Context, t sandbox.Tier) []sandbox.Finding {
	list := c.failing(ctx, c.needed())
	if t == sandbox.Emulated {
		list = append(list, c.d.Emulation()...)
	}
	if t != sandbox.MicroVM {
		return list
	}
	if len(list) == 0 || c.d.o.User {
		list = append(c.failing(ctx, []probe{{"microvm-kvm", c.kvm}}), list...)
	}
	for _, f := range hostFindings(cmp.Or(c.host, "/")) {
		if f.Level == sandbox.Fail {
			list = append(list, f)
		}
	}
	return list
}

// Emulation is what forbids tier microvm-emulated alone: a monitor that does not
// emulate.
func (d *Driver) Emulation() []sandbox.Finding {
	t := d.monitor.Traits()
	if t.Emulates {
		return nil
	}
	return []sandbox.Finding{{
		Name: "microvm-emulation", Level: sandbox.Fail, Detail: "the monitor " + t.Name + " emulates no processor",
		Fix: "run the keeper with --monitor " + qemu.Name + ", or ask for tier microvm",
	}}
}

// failing are the findings of probes that fail.
func (c *checker) failing(ctx context.Context, probes []probe) (list []sandbox.Finding) {
	for _, p := range probes {
		if f := p.finding(ctx); f.Level == sandbox.Fail {
			list = append(list, f)
		}
	}
	return list
}
