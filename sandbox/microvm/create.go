package microvm

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"runtime"
	"time"

	"cofferdam"
	"cofferdam/sandbox"
	"cofferdam/sandbox/guest"
	"cofferdam/sandbox/microvm/vmm"
	"cofferdam/sandbox/mount"
	"cofferdam/sandbox/netns"
)

// startPatience is how long pid 1 may take to answer: an emulated machine on a
// loaded host needs many times the two seconds of an idle one.
const startPatience = 2 * time.Minute

// Create makes a box and returns when it can run commands.
func (d *Driver) Create(ctx context.Context, spec sandbox.Spec) (sandbox.Box, error) {
	if err := d.checkSpec(&spec); err != nil {
		return nil, err
	}
	if err := d.checker.refuse(ctx, spec.Tier); err != nil {
		return nil, err
	}
	place, err := d.Reserve(spec.ID)
	if err != nil {
		return nil, err
	}
	b := &box{
		d: d, spec: spec, Life: sandbox.NewLife(), created: time.Now(), folder: folder{d.o.Root, string(spec.ID), d.o.user(place)}, console: newConsole(), wire: new(wire),
	}
	if err := b.build(ctx); err != nil {
		// Whatever ctx says, what was built so far must go.
		if left := b.tearDown("it could not be started"); left != nil {
			d.o.Log.ErrorContext(ctx, "removing what is left of a box that did not start", slog.Any("box", spec.ID), slog.Any("err", left))
		}
		d.Forget(spec.ID, nil)
		return nil, sandbox.Wrap("microvm.Create", "start box "+string(spec.ID), "cofferdam doctor checks this host", err)
	}
	d.Settle(b)
	return b, nil
}

// build puts a box together. Everything it makes is known to tearDown.
func (b *box) build(ctx context.Context) error {
	for _, dir := range []string{b.path(""), b.path("view"), b.memoryDir()} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
	}
	boot, err := b.d.bootFiles()
	if err != nil {
		return missing("kernel for machines", err.Error(), fixKernel, err)
	}
	b.boot = boot
	if b.root, err = b.d.root(ctx, b.spec.Image); err != nil {
		return err
	}
	if err := b.holdEnv(); err != nil {
		return missing("environment image", err.Error(), "remove the image so that it is made again", err)
	}
	if b.spec.Snapshot != "" {
		return b.fork(ctx)
	}
	if err := b.makeDisks(ctx); err != nil {
		return err
	}
	if b.d.monitor.Traits().SharesMemory {
		if err := b.makeMemory(b.spec.Limits.Memory); err != nil {
			return err
		}
	}
	var w, r *os.File
	if b.link, w, r, err = newLink(); err != nil {
		return err
	}
	if b.Host, err = guest.NewHost(w, r, b.journalDir(), b.options()); err != nil {
		return errors.Join(err, w.Close(), r.Close())
	}
	if err := b.run(ctx, ""); err != nil {
		return errors.Join(err, lastWords(ctx, b.console, b.machine(), vmm.EndPatience))
	}
	ctx, cancel := context.WithTimeout(ctx, startPatience)
	defer cancel()
	if err := b.Host.Ready(ctx); err != nil {
		return errors.Join(err, lastWords(ctx, b.console, b.machine(), vmm.EndPatience))
	}
	return b.Life.Move(sandbox.Ready, "it was made", sandbox.ByDriver)
}

// options are those of the host's half of the talk.
func (b *box) options() guest.Options {
	return guest.Options{
		Config: guest.Config{
			UID: sandbox.UserID, GID: sandbox.UserID,
			OpenFiles: b.spec.Limits.OpenFiles, PIDs: b.spec.Limits.PIDs,
			Sized:     []string{"/tmp", sandbox.HomeDir, "/dev/shm"},
			OwnKernel: true, Disks: writableDisks(b.spec),
			Identity: b.identity(),
		},
		Life:  b.Life,
		Watch: func(cofferdam.ExecID) func(*sandbox.Result) { return guest.Explain },
	}
}

// writableDisks are the folders of the box that can be full as a disk is.
func writableDisks(s sandbox.Spec) []string {
	if s.SetupPhase {
		return []string{sandbox.WorkDir, sandbox.EnvDir}
	}
	return []string{sandbox.WorkDir}
}

// identity is who the box is: new for each, also for a copy.
func (b *box) identity() guest.Identity {
	return guest.Identity{Dir: guest.MachineIdentity, Hostname: b.spec.Hostname, MachineID: hex.EncodeToString(random(16)), Time: time.Now(), Seed: random(64)}
}

func random(n int) []byte {
	p := make([]byte, n)
	_, _ = rand.Read(p) // never fails
	return p
}

// makeDisks makes the workspace, and the disk from which pid 1 learns what the
// box is.
func (b *box) makeDisks(ctx context.Context) error {
	size := b.spec.Limits.Disk
	if b.spec.Workspace != "" {
		if err := b.keep(ctx); err != nil {
			return err
		}
	} else if err := mount.Room("microvm.Create", b.path(""), size); err != nil {
		return err
	} else if err := mount.Make(ctx, b.path("work.img"), size, false); err != nil {
		return missing("workspace with a size", err.Error(), "install e2fsprogs; the state folder must be writable", err)
	}
	m := guest.Machine{
		Time: time.Now(), Seed: random(64), Hostname: b.spec.Hostname, Temp: b.spec.Limits.Temp, Shared: sandbox.SharedMemory(b.spec.Limits),
		Files: append(ownFiles(b.spec.Image), b.spec.Files...), MTU: netns.MTU,
	}
	if b.spec.Env != "" {
		m.Env = "ro"
		if b.spec.SetupPhase {
			m.Env = "rw"
			if _, err := os.Lstat(b.spec.Env); errors.Is(err, os.ErrNotExist) {
				if err := mount.Make(ctx, b.spec.Env, size, false); err != nil {
					return missing("environment image", err.Error(), "install e2fsprogs; its folder must be writable", err)
				}
			}
		}
	}
	data, err := guest.AppendMachine(nil, m)
	if err != nil {
		return err
	}
	return os.WriteFile(b.path("machine.img"), data, 0o600)
}

// run starts the machine and joins it to link, wire and console. With from, a
// folder, it waits for what was saved there to be loaded.
func (b *box) run(ctx context.Context, from string) error {
	m := vmm.Machine{
		ID: string(b.spec.ID), KVM: b.spec.Tier == sandbox.MicroVM, UID: b.user, Dir: b.path("view"), Kernel: b.boot.kernel, Initrd: b.boot.initrd,
		Memory: b.memoryFile(), Size: b.spec.Limits.Memory,
		CPUs:  min(int(math.Ceil(b.spec.Limits.CPU)), runtime.NumCPU()),
		Group: b.d.group(b.spec.Limits), Alone: b.d.groups.None(),
	}
	if from != "" {
		saved := savedIn(from)
		m.Incoming = &saved
	}
	// What a monitor before left there goes: this one gets an empty folder.
	if err := errors.Join(os.RemoveAll(m.Dir), os.Mkdir(m.Dir, 0o700)); err != nil {
		return err
	}
	var ours, theirs [2]*os.File
	var err error
	defer func() { closeAll(theirs[:]) }()
	for i := range ours {
		if ours[i], theirs[i], err = vmm.SocketPair(); err != nil {
			closeAll(ours[:])
			return err
		}
	}
	m.Console, m.Network = theirs[0], theirs[1]
	if m.Disks, err = b.drives(); err != nil {
		closeAll(ours[:])
		return err
	}
	defer func() {
		for _, d := range m.Disks {
			d.File.Close()
		}
	}()
	vm, err := b.d.monitor.Start(ctx, m)
	if err != nil {
		closeAll(ours[:])
		return missing("monitor of the machine", err.Error(), "cofferdam doctor checks this host", err)
	}
	if err := b.setMachine(vm); err != nil {
		closeAll(ours[:])
		return err
	}
	b.console.follow(ours[0])
	b.wire.attach(ours[1])
	go noteEnd(b, vm)
	if err := b.d.hold(string(b.spec.ID), vm.PIDs(), b.spec.Limits); err != nil {
		return missing("control groups", err.Error(), "mount the memory, cpu and pids controllers writable", err)
	}
	if from != "" {
		return nil
	}
	_, err = b.joinLine(ctx)
	return err
}

// joinLine joins the link to pid 1 of the machine; ended is closed once that line
// has ended.
func (b *box) joinLine(ctx context.Context) (ended <-chan struct{}, err error) {
	ctx, cancel := context.WithTimeout(ctx, startPatience)
	defer cancel()
	err = onMachine(b, func(vm vmm.Running) error {
		end, err := vm.Line(ctx)
		if err == nil {
			ended = b.link.attach(end)
		}
		return err
	})
	return ended, err
}

// lastWords are those of a machine that did not start: its kernel's, and its
// monitor's, whose end may be seen only after that of its line.
func lastWords(ctx context.Context, c *console, vm vmm.Running, patience time.Duration) error {
	if vm == nil {
		return nil
	}
	said := vm.Process().LastWords(ctx, patience)
	if vm.Process().Over() {
		select {
		case <-c.over: // all of it is read
		case <-time.After(patience):
		}
	}
	return fmt.Errorf("its console: %s; %w", c.last(), said)
}

func closeAll(files []*os.File) {
	for _, f := range files {
		if f != nil {
			f.Close()
		}
	}
}

// drives opens the disks of the box.
func (b *box) drives() (list []vmm.Drive, err error) {
	defer func() {
		if err != nil {
			for _, d := range list {
				d.File.Close()
			}
		}
	}()
	disks := []struct {
		serial, path string
		writable     bool
	}{
		{guest.DiskMachine, b.path("machine.img"), false},
		{guest.DiskRoot, b.root, false},
		{guest.DiskWork, b.workDisk(), true},
	}
	for _, d := range disks {
		mode := os.O_RDONLY
		if d.writable {
			mode = os.O_RDWR
		}
		f, err := os.OpenFile(d.path, mode, 0)
		if err != nil {
			return list, err
		}
		list = append(list, vmm.Drive{Serial: d.serial, File: f, Writable: d.writable})
	}
	if b.spec.Env != "" {
		f, err := b.openEnv()
		if err != nil {
			return list, err
		}
		list = append(list, vmm.Drive{Serial: guest.DiskEnv, File: f, Writable: b.spec.SetupPhase})
	}
	return list, nil
}
