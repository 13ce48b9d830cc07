package microvm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"time"

	"cofferdam/sandbox/guest"
	"cofferdam/sandbox/netns"
)

// qemuProgram is where Debian and its kin have it.
const qemuProgram = "/usr/bin/qemu-system-x86_64"

// qemuStart is how long QEMU may take for its first word.
const qemuStart = 20 * time.Second

// qemu is the monitor of this driver.
type qemu struct {
	mu    sync.Mutex
	known string // guarded by mu
}

var qemuVersion = regexp.MustCompile(`QEMU emulator version ([0-9]+\.[0-9]+)(\.[0-9]+)?`)

func (q *qemu) version(ctx context.Context) (string, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.known != "" {
		return q.known, nil
	}
	cmd := exec.CommandContext(ctx, qemuProgram, "--version")
	cmd.Env = []string{"PATH=/usr/bin:/bin"}
	out, err := cmd.Output()
	if err != nil {
		return "", err
	}
	m := qemuVersion.FindStringSubmatch(string(out))
	if m == nil {
		return "", fmt.Errorf("%s does not say its version: %.80q", qemuProgram, out)
	}
	q.known = "QEMU " + m[1] + m[2]
	return q.known, nil
}

// Names of things inside the monitor's root.
const (
	inMemory = "/vm/memory"
	inKernel = "/vm/kernel"
	inInitrd = "/vm/initrd"
)

// qemuVM is a machine that QEMU runs.
type qemuVM struct {
	p   *process
	qmp *qmp
}

// start implements monitor.
func (q *qemu) start(ctx context.Context, m machine) (running, error) {
	ours, theirs, err := socketPair()
	if err != nil {
		return nil, err
	}
	defer ours.Close() // the connection has a duplicate
	g := program{
		path: qemuProgram, uid: m.uid, root: m.dir,
		files: []*os.File{theirs, m.serial, m.console, m.network},
		binds: []bound{{from: m.memory, to: inMemory, writable: true}, {from: m.kernel, to: inKernel}, {from: m.initrd, to: inInitrd}},
	}
	g.most = m.size
	for _, d := range m.disks {
		g.files = append(g.files, d.file)
		if info, err := d.file.Stat(); err == nil && d.writable {
			g.most = max(g.most, info.Size())
		}
	}
	if m.kvm {
		g.nodes = []node{{kvmDevice}}
	}
	g.args = m.arguments()
	p, err := g.start()
	theirs.Close() // so that its end is seen
	if err != nil {
		return nil, fmt.Errorf("starting monitor: %w", err)
	}
	v := &qemuVM{p: p}
	starting, cancel := context.WithTimeout(ctx, qemuStart)
	defer cancel()
	if v.qmp, err = dialQMP(starting, ours); err == nil {
		err = confined(p.pid, m.uid)
	}
	if err != nil {
		p.kill()
		return nil, errors.Join(err, fmt.Errorf("it printed: %.500s", p.words()))
	}
	return v, nil
}

// arguments are QEMU's, for a root as start makes it. Descriptor 3 is the
// monitor's own, then serial, console, network and the disks.
func (m machine) arguments() []string {
	accel, cpu := "tcg,thread=multi", "qemu64,+ssse3,+sse4.1,+sse4.2,+popcnt,+aes,+rdrand,+fsgsbase"
	if m.kvm {
		accel, cpu = "kvm", "host"
	}
	args := []string{
		"-M", "microvm,memory-backend=memory,x-option-roms=off,auto-kernel-cmdline=on", "-accel", accel, "-cpu", cpu,
		"-m", fmt.Sprintf("%dM", m.size>>20), "-smp", fmt.Sprint(m.cpus),
		"-nodefaults", "-no-user-config", "-nographic", "-no-reboot",
		"-sandbox", "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny",
		"-object", fmt.Sprintf("memory-backend-file,id=memory,size=%dM,mem-path=%s,share=on", m.size>>20, inMemory),
		"-kernel", inKernel, "-initrd", inInitrd, "-append", m.commandLine(),
		"-chardev", "socket,id=qmp,fd=3", "-mon", "chardev=qmp,mode=control",
		"-chardev", "socket,id=console,fd=5", "-serial", "chardev:console",
		"-device", "virtio-serial-device,max_ports=2",
		"-chardev", "socket,id=serial,fd=4", "-device", "virtserialport,chardev=serial,name=" + guest.PortName,
		"-netdev", "stream,id=net,server=off,addr.type=fd,addr.str=6",
		"-device", fmt.Sprintf("virtio-net-device,netdev=net,mac=%s,host_mtu=%d", netns.BoxMAC, netns.MTU),
		"-object", "rng-builtin,id=rng", "-device", "virtio-rng-device,rng=rng",
	}
	for i, d := range m.disks {
		readonly := "on"
		if d.writable {
			readonly = "off"
		}
		args = append(args,
			"-add-fd", fmt.Sprintf("fd=%d,set=%d", 7+i, i+1),
			"-blockdev", fmt.Sprintf("driver=file,node-name=f%d,filename=/dev/fdset/%d,read-only=%s,locking=off,discard=unmap", i, i+1, readonly),
			"-blockdev", fmt.Sprintf("driver=raw,node-name=d%d,file=f%d,read-only=%s,discard=unmap", i, i, readonly),
			"-device", fmt.Sprintf("virtio-blk-device,drive=d%d,serial=%s", i, d.serial),
		)
	}
	if m.incoming {
		args = append(args, "-incoming", "defer")
	}
	return args
}

// commandLine is the kernel's. Without tsc_early_khz an emulated machine on a
// busy host may hang while it measures its clock.
func (m machine) commandLine() string {
	words := []string{"console=ttyS0", "quiet", "loglevel=4", "reboot=t", "panic=-1", "tsc=reliable", "no_timer_check", "random.trust_cpu=on"}
	if !m.kvm {
		words = append(words, "mitigations=off") // of a processor that is emulated
		if khz := hostKHz(); khz > 0 {
			words = append(words, fmt.Sprintf("tsc_early_khz=%d", khz))
		}
	}
	return strings.Join(words, " ")
}

func (v *qemuVM) process() *process { return v.p }

func (v *qemuVM) pause(ctx context.Context) error { return v.qmp.call(ctx, "stop", nil, nil) }

func (v *qemuVM) resume(ctx context.Context) error { return v.qmp.call(ctx, "cont", nil, nil) }

// shared leaves out memory that is in a file of its own.
var sharedMemory = map[string]any{
	"capabilities": []map[string]any{{"capability": "x-ignore-shared", "state": true}},
}

// migrationPoll is how often the monitor is asked how far it is: a state of
// 70 KiB takes about 10 ms.
const migrationPoll = 2 * time.Millisecond

func (v *qemuVM) save(ctx context.Context, to *os.File) error {
	if err := v.qmp.call(ctx, "migrate-set-capabilities", sharedMemory, nil); err != nil {
		return err
	}
	if err := v.qmp.lend(ctx, "state", to); err != nil {
		return err
	}
	if err := v.qmp.call(ctx, "migrate", map[string]string{"uri": "fd:state"}, nil); err != nil {
		return err
	}
	return v.settle(ctx)
}

func (v *qemuVM) load(ctx context.Context, from *os.File) error {
	if err := v.qmp.call(ctx, "migrate-set-capabilities", sharedMemory, nil); err != nil {
		return err
	}
	if err := v.qmp.lend(ctx, "state", from); err != nil {
		return err
	}
	if err := v.qmp.call(ctx, "migrate-incoming", map[string]string{"uri": "fd:state"}, nil); err != nil {
		return err
	}
	return v.settle(ctx)
}

// settle waits for a migration's end.
func (v *qemuVM) settle(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, qmpPatience)
	defer cancel()
	for {
		var s struct {
			Status string `json:"status"`
			Error  string `json:"error-desc"`
		}
		if err := v.qmp.call(ctx, "query-migrate", nil, &s); err != nil {
			return err
		}
		switch s.Status {
		case "completed":
			return nil
		case "failed", "cancelled":
			return fmt.Errorf("the monitor's state: %s %.200s", s.Status, s.Error)
		}
		select {
		case <-time.After(migrationPoll):
		case <-ctx.Done():
			return fmt.Errorf("the monitor's state: %s: %w", s.Status, ctx.Err())
		}
	}
}

func (v *qemuVM) end() {
	v.p.kill()
	_ = v.qmp.close() // nobody is at the other end
}
