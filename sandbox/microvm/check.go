package microvm

import (
	"cmp"
	"cofferdam/sandbox/mount"
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"cofferdam/sandbox"
)

// Levels of a finding.
const (
	levelOK   = "ok"
	levelWarn = "warn"
	levelFail = "fail"
)

// What mends a missing layer.
const (
	fixKernel  = "install linux-image-cloud-amd64, or name a kernel with the keeper's --kernel"
	fixErofs   = "install erofs-utils"
	fixExt4    = "install e2fsprogs"
	fixInit    = "build and install all programs of one release together: make build"
	fixKVM     = "run on a machine whose processor virtualises, with the kvm modules loaded; or ask for tier microvm-emulated, which is no security boundary"
	fixCgroups = "mount the cgroup controllers cpu, memory and pids, writable"
)

// checker examines the host.
type checker struct {
	d *Driver

	mu    sync.Mutex
	proof *kvmProof // guarded by mu; nil: not tried by this process
}

// probe is one check: its name, what it finds, and its fix if it fails. A fix
// without an error is a warning.
type probe struct {
	name string
	run  func(context.Context) (detail, fix string, err error)
}

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
		{"microvm-erofs", installed(mkfsErofs, fixErofs)},
		{"microvm-ext4", installed(mount.Mkfs, fixExt4)},
		{"microvm-control-groups", func(context.Context) (string, string, error) {
			g, err := findCgroups(c.d.cgroups.parent)
			if g.v2 {
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
	if target, err := os.Readlink("/lib"); err != nil || !strings.HasSuffix(target, "usr/lib") {
		return "", "use a system whose /lib is in /usr", errors.New("/lib is not merged into /usr, where a monitor finds its libraries")
	}
	return "runs as root", fix, nil
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
	if err != nil {
		return sandbox.Finding{Name: p.name, Level: levelFail, Detail: err.Error(), Fix: fix}
	}
	return sandbox.Finding{Name: p.name, Level: levelOK, Detail: detail}
}

// Check examines the host. What only tier microvm needs is a warning here: an
// emulated machine runs without it. Create refuses that tier by the same list.
func (d *Driver) Check(ctx context.Context) ([]sandbox.Finding, error) {
	var list []sandbox.Finding
	whole := true
	for _, p := range d.checker.needed() {
		f := p.finding(ctx)
		whole = whole && f.Level != levelFail
		list = append(list, f)
	}
	if whole {
		f := probe{"microvm-kvm", d.checker.kvm}.finding(ctx)
		if f.Level == levelFail {
			f.Level = levelWarn
		}
		list = append(list, f)
	}
	for _, f := range hostFindings("/") {
		if f.Level == levelFail {
			f.Level = levelWarn
		}
		list = append(list, f)
	}
	return list, ctx.Err()
}

// refuse returns the first missing layer of a tier as the error of Create.
func (c *checker) refuse(ctx context.Context, t sandbox.Tier) error {
	if f := c.tierLacks(ctx, t); f != nil {
		return missing("layer "+f.Name+" of tier "+string(t), f.Detail, f.Fix, nil)
	}
	return nil
}

// tierLacks is the first finding that forbids a tier, or nil.
func (c *checker) tierLacks(ctx context.Context, t sandbox.Tier) *sandbox.Finding {
	probes := c.needed()
	if t == sandbox.MicroVM {
		probes = append(probes, probe{"microvm-kvm", c.kvm})
	}
	for _, p := range probes {
		if f := p.finding(ctx); f.Level == levelFail {
			return &f
		}
	}
	if t == sandbox.MicroVM {
		for _, f := range hostFindings("/") {
			if f.Level == levelFail {
				return &f
			}
		}
	}
	return nil
}

// hostFindings says what of a host weakens machines of several tenants: memory
// that reaches a disk, or that two machines share, and processors that do.
// root is "/", but in tests.
func hostFindings(root string) []sandbox.Finding {
	read := func(path string) string {
		data, err := os.ReadFile(filepath.Join(root, path))
		if err != nil {
			return ""
		}
		return strings.TrimSpace(string(data))
	}
	var list []sandbox.Finding
	add := func(name string, bad bool, level, good, detail, fix string) {
		f := sandbox.Finding{Name: name, Level: levelOK, Detail: good}
		if bad {
			f = sandbox.Finding{Name: name, Level: level, Detail: detail, Fix: fix}
		}
		list = append(list, f)
	}
	swaps := strings.Count(read("proc/swaps"), "\n")
	add("host-swap", swaps > 0, levelFail, "none", fmt.Sprintf("%d swap devices: a machine's memory may reach a disk", swaps), "swapoff -a, and remove swap from /etc/fstab")
	smt := read("sys/devices/system/cpu/smt/active")
	add("host-smt", smt == "1", levelFail, "off", "two machines may share a core", "boot with nosmt, or write off to /sys/devices/system/cpu/smt/control")
	ksm := read("sys/kernel/mm/ksm/run")
	add("host-ksm", ksm == "1", levelFail, "off", "equal pages of two machines are merged, which tells one about the other", "write 2 to /sys/kernel/mm/ksm/run")
	nx := read("sys/module/kvm/parameters/nx_huge_pages")
	add("host-nx-huge-pages", nx == "N" || nx == "never", levelFail, cmp.Or(nx, "no kvm module"), "a guest can halt the processor", "load kvm with nx_huge_pages=auto")
	var weak []string
	found, _ := filepath.Glob(filepath.Join(root, "sys/devices/system/cpu/vulnerabilities/*")) // the pattern is good
	for _, path := range found {
		data, err := os.ReadFile(path)
		if text := strings.TrimSpace(string(data)); err == nil && strings.HasPrefix(text, "Vulnerable") {
			weak = append(weak, filepath.Base(path))
		}
	}
	add("host-mitigations", len(weak) > 0, levelFail, "every known weakness of the processor is mitigated or absent",
		"vulnerable to "+strings.Join(weak, ", "), "boot without mitigations=off and install the processor's microcode")
	return list
}
