// Package qemu runs machines with QEMU's microvm board, with KVM or emulated.
//
// It gives QEMU descriptors, no paths: of the host it sees its own program and
// the kernel to start. Its invariant: a machine is only handed out once QEMU was
// seen to run as a user of its own, without rights and under its seccomp filter.
package qemu

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"sync"
	"time"

	"cofferdam/sandbox/cage"
	"cofferdam/sandbox/guest"
	"cofferdam/sandbox/microvm/vmm"
	"cofferdam/sandbox/netns"
)

// qemuProgram is where Debian and its kin have it.
const qemuProgram = "/usr/bin/qemu-system-x86_64"

// qemuStart is how long QEMU may take for its first word.
const qemuStart = 20 * time.Second

// patience bounds one command: each is a matter of milliseconds, but for a host
// that is overloaded.
const patience = 20 * time.Second

// Monitor is QEMU.
type Monitor struct {
	mu    sync.Mutex
	known string // guarded by mu
}

var qemuVersion = regexp.MustCompile(`QEMU emulator version ([0-9]+\.[0-9]+)(\.[0-9]+)?`)

// Version implements vmm.Monitor.
func (q *Monitor) Version(ctx context.Context) (string, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.known != "" {
		return q.known, nil
	}
	said, err := vmm.SaysVersion(ctx, qemuProgram)
	if err != nil {
		return "", err
	}
	m := qemuVersion.FindStringSubmatch(said)
	if m == nil {
		return "", fmt.Errorf("%s does not say its version: %.80q", qemuProgram, said)
	}
	q.known = "QEMU " + m[1] + m[2]
	return q.known, nil
}

// Traits implements vmm.Monitor.
func (*Monitor) Traits() vmm.Traits {
	return vmm.Traits{
		Name: Name, Fix: "install qemu-system-x86 (7.2 or newer)", Emulates: true, SharesMemory: true,
		Flags: []string{"machine=microvm", "monitor-namespaces=mount,pid,net,ipc,uts", "monitor-user=own", "monitor-seccomp=on", "monitor-root=read-only"},
	}
}

// Name is the monitor's in settings.
const Name = "qemu"

// Names of things inside the monitor's root.
const (
	inMemory = "/vm/memory"
	inKernel = "/vm/kernel"
	inInitrd = "/vm/initrd"
)

// Bounds of a QEMU that no control group holds. Its own memory is what it
// translated, 8 MiB of stack for each of its threads, and some.
const (
	ownMemory = 1 << 30 // bytes
	ownTasks  = 256     // one for each processor, and those of its input and output
)

// translated bounds what an emulator keeps of the guest's code that it has
// translated, in bytes: QEMU itself would take up to 1 GiB, and a control group
// leaves a monitor 256 MiB.
const translated = 128 << 20

// machine is one that QEMU runs.
type machine struct {
	p        *cage.Process
	qmp      *qmp
	line     *os.File // pid 1's talk
	incoming *vmm.Saved
}

// Start implements vmm.Monitor.
func (q *Monitor) Start(ctx context.Context, m vmm.Machine) (vmm.Running, error) {
	ours, theirs, err := vmm.SocketPair()
	if err != nil {
		return nil, err
	}
	defer ours.Close() // the connection has a duplicate
	line, serial, err := vmm.SocketPair()
	if err != nil {
		theirs.Close()
		return nil, err
	}
	g := cage.Program{
		Path: qemuProgram, UID: m.UID, Root: m.Dir, Most: m.Largest(),
		Files: []*os.File{theirs, serial, m.Console, m.Network},
		Binds: []cage.Bind{{From: m.Memory, To: inMemory, Writable: true}, {From: m.Kernel, To: inKernel}, {From: m.Initrd, To: inInitrd}},
	}
	for _, d := range m.Disks {
		g.Files = append(g.Files, d.File)
	}
	if m.KVM {
		g.Nodes = []string{vmm.KVM}
	}
	if m.Alone {
		g.Memory, g.Tasks = ownMemory, ownTasks
	}
	g.Args = arguments(m)
	p, err := g.Start()
	theirs.Close() // so that its end is seen
	serial.Close()
	if err != nil {
		line.Close()
		return nil, fmt.Errorf("starting monitor: %w", err)
	}
	v := &machine{p: p, line: line, incoming: m.Incoming}
	starting, cancel := context.WithTimeout(ctx, qemuStart)
	defer cancel()
	if v.qmp, err = dialQMP(starting, ours); err != nil {
		err = errors.Join(err, p.LastWords(starting, vmm.EndPatience))
	} else {
		err = vmm.Confined(p.PID, m.UID)
	}
	if err != nil {
		p.Kill()
		line.Close()
		return nil, err
	}
	return v, nil
}

// arguments are QEMU's, for a root as start makes it. Descriptor 3 is the
// monitor's own, then serial, console, network and the disks.
func arguments(m vmm.Machine) []string {
	accel, cpu := fmt.Sprintf("tcg,thread=multi,tb-size=%d", translated>>20), "qemu64,+ssse3,+sse4.1,+sse4.2,+popcnt,+aes,+rdrand,+fsgsbase"
	if m.KVM {
		accel, cpu = "kvm", "host"
	}
	args := []string{
		"-M", "microvm,memory-backend=memory,x-option-roms=off,auto-kernel-cmdline=on", "-accel", accel, "-cpu", cpu,
		"-m", fmt.Sprintf("%dM", m.Size>>20), "-smp", fmt.Sprint(m.CPUs),
		"-nodefaults", "-no-user-config", "-nographic", "-no-reboot",
		"-sandbox", "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny",
		"-object", fmt.Sprintf("memory-backend-file,id=memory,size=%dM,mem-path=%s,share=on", m.Size>>20, inMemory),
		"-kernel", inKernel, "-initrd", inInitrd, "-append", commandLine(m),
		"-chardev", "socket,id=qmp,fd=3", "-mon", "chardev=qmp,mode=control",
		"-chardev", "socket,id=console,fd=5", "-serial", "chardev:console",
		"-device", "virtio-serial-device,max_ports=2",
		"-chardev", "socket,id=serial,fd=4", "-device", "virtserialport,chardev=serial,name=" + guest.PortName,
		"-netdev", "stream,id=net,server=off,addr.type=fd,addr.str=6",
		"-device", fmt.Sprintf("virtio-net-device,netdev=net,mac=%s,host_mtu=%d", netns.BoxMAC, netns.MTU),
		"-object", "rng-builtin,id=rng", "-device", "virtio-rng-device,rng=rng",
	}
	for i, d := range m.Disks {
		readonly := "on"
		if d.Writable {
			readonly = "off"
		}
		args = append(args,
			"-add-fd", fmt.Sprintf("fd=%d,set=%d", 7+i, i+1),
			"-blockdev", fmt.Sprintf("driver=file,node-name=f%d,filename=/dev/fdset/%d,read-only=%s,locking=off,discard=unmap", i, i+1, readonly),
			"-blockdev", fmt.Sprintf("driver=raw,node-name=d%d,file=f%d,read-only=%s,discard=unmap", i, i, readonly),
			"-device", fmt.Sprintf("virtio-blk-device,drive=d%d,serial=%s", i, d.Serial),
		)
	}
	if m.Incoming != nil {
		args = append(args, "-incoming", "defer")
	}
	return args
}

// plainKernel leaves out of an emulated machine's kernel what costs it most and
// holds nothing there: what guards against a processor that is not real, the modules
// that only label programs, counters of pressure, and clearing what is cleared again.
// A twelfth less code is translated until the first command of a copy has ended.
const plainKernel = "mitigations=off psi=0 lsm=landlock,yama audit=0 init_on_alloc=0 randomize_kstack_offset=off hardened_usercopy=off"

// commandLine is the kernel's. Without tsc_early_khz an emulated machine on a
// busy host may hang while it measures its clock.
func commandLine(m vmm.Machine) string {
	words := []string{"reboot=t"}
	if !m.KVM {
		words = append(words, plainKernel)
		if khz := vmm.HostKHz(); khz > 0 {
			words = append(words, fmt.Sprintf("tsc_early_khz=%d", khz))
		}
	}
	return vmm.CommandLine(words...)
}

// Process implements vmm.Running.
func (v *machine) Process() *cage.Process { return v.p }

// PIDs implements vmm.Running.
func (v *machine) PIDs() []int { return []int{v.p.PID} }

// Line implements vmm.Running: the serial port is there from the start.
func (v *machine) Line(context.Context) (*os.File, error) { return v.line, nil }

// Pause implements vmm.Running.
func (v *machine) Pause(ctx context.Context) error { return v.qmp.call(ctx, "stop", nil, nil) }

// Resume implements vmm.Running.
func (v *machine) Resume(ctx context.Context) error { return v.qmp.call(ctx, "cont", nil, nil) }

// sharedMemory leaves out memory that is in a file of its own.
var sharedMemory = map[string]any{
	"capabilities": []map[string]any{{"capability": "x-ignore-shared", "state": true}},
}

// migrationPoll is how often the monitor is asked how far it is: a state of
// 70 KiB takes about 10 ms.
const migrationPoll = 2 * time.Millisecond

// Save implements vmm.Running. The memory is in a file of its own already.
func (v *machine) Save(ctx context.Context, saved vmm.Saved) error {
	to, err := os.OpenFile(saved.State, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(v.migrate(ctx, "migrate", to), to.Close())
}

// Load implements vmm.Running.
func (v *machine) Load(ctx context.Context) error {
	from, err := os.Open(v.incoming.State)
	if err != nil {
		return err
	}
	return errors.Join(v.migrate(ctx, "migrate-incoming", from), from.Close())
}

// migrate writes or reads what is not in the memory file.
func (v *machine) migrate(ctx context.Context, how string, state *os.File) error {
	if err := v.qmp.call(ctx, "migrate-set-capabilities", sharedMemory, nil); err != nil {
		return err
	}
	if err := v.qmp.lend(ctx, "state", state); err != nil {
		return err
	}
	if err := v.qmp.call(ctx, how, map[string]string{"uri": "fd:state"}, nil); err != nil {
		return err
	}
	return v.settle(ctx)
}

// settle waits for a migration's end.
func (v *machine) settle(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
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

// End implements vmm.Running.
func (v *machine) End() {
	v.p.Kill()
	_ = v.qmp.close() // nobody is at the other end
	v.line.Close()    // unless the driver has
}
