package cloudhypervisor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"cofferdam/sandbox/cage"
	"cofferdam/sandbox/microvm/vmm"
)

// machine is one that Cloud Hypervisor runs.
type machine struct {
	vmm.Served
	v       vmm.Machine
	console *os.File // a duplicate of the driver's
}

// Start implements vmm.Monitor.
func (m *Monitor) Start(ctx context.Context, v vmm.Machine) (vmm.Running, error) {
	if _, err := m.Version(ctx); err != nil {
		return nil, err
	}
	r := &machine{Served: vmm.Served{UID: v.UID}, v: v}
	return vmm.Begin(ctx, v, r, func(ctx context.Context) error { return r.start(ctx, m.Program) })
}

// arguments are the monitor's. What it is to run, it is told by its API.
func arguments() []string {
	return []string{"--api-socket", "path=" + vmm.APISocket, "--seccomp", "true"}
}

// start does the work; End removes what it has made, also after an error.
func (r *machine) start(ctx context.Context, path string) (err error) {
	if r.Network, err = vmm.NewNetwork(r.v.UID, r.v.Network); err != nil {
		return err
	}
	if r.console, err = vmm.Duplicate(r.v.Console); err != nil {
		return err
	}
	program, err := r.program(path)
	if err != nil {
		return err
	}
	if r.Program, err = program.Start(); err != nil {
		return fmt.Errorf("starting monitor: %w", err)
	}
	r.PID = r.Program.PID
	r.Serve("Cloud Hypervisor", prefix)
	var alive map[string]any
	if err := r.API.Call(ctx, "GET", "/vmm.ping", nil, &alive, 0); err != nil { // once it serves, it has become what it is
		return err
	}
	if err := vmm.Dropped(r.PID, r.UID); err != nil {
		return err
	}
	go r.API.Watch(r.Program, "/vmm.ping")
	if r.v.Incoming != nil {
		return r.unpack() // Load asks for the rest
	}
	if err := r.API.Ask(ctx, boot(r.v)...); err != nil {
		return err
	}
	return r.proved(ctx, "Running")
}

// program is the monitor in a root of its own. Its two folders on the disk are
// closed to it but while it saves.
func (r *machine) program(path string) (cage.Program, error) {
	g := cage.Program{
		Path: inProgram, Args: arguments(), UID: r.v.UID, Root: r.folder("root"), Most: r.v.Largest(), Scratch: vmm.RunDir,
		Nodes: []string{vmm.KVM, "/dev/net/tun"}, Namespace: r.Network.Namespace, Landlock: true, Write: []string{vmm.RunDir, inSave},
		Binds: []cage.Bind{
			{From: path, To: inProgram},
			{From: r.v.Kernel, To: inKernel},
			{From: r.v.Initrd, To: inInitrd},
			{From: "/dev/urandom", To: "/dev/urandom", Writable: true},
			{From: r.folder("save"), To: inSave, Writable: true},
			{From: r.folder("load"), To: inLoad},
		},
	}
	for _, d := range r.v.Disks {
		g.Binds = append(g.Binds, cage.Bind{From: d.File.Name(), To: inDisk(d.Serial), Writable: d.Writable})
		if d.Writable {
			g.Write = append(g.Write, inDisk(d.Serial))
		}
	}
	err := errors.Join(os.Mkdir(r.folder("root"), 0o700), os.Mkdir(r.folder("save"), 0o700), os.Mkdir(r.folder("load"), 0o755), r.v.Lend())
	if err == nil && r.v.Incoming != nil {
		// In its place when the folder is shown: the monitor sees one folder.
		err = os.WriteFile(filepath.Join(r.folder("load"), memoryFile), nil, 0o444)
		g.Binds = append(g.Binds, cage.Bind{From: r.v.Incoming.Memory, To: filepath.Join(inLoad, memoryFile)})
	}
	return g, err
}

func (r *machine) folder(name string) string { return filepath.Join(r.v.Dir, name) }

// proved wants each thread of the monitor where it should be, once the monitor
// has a machine, and takes up what the machine's kernel prints.
func (r *machine) proved(ctx context.Context, state string) error {
	if err := r.Confined(ctx, "/vm.info", state); err != nil {
		return err
	}
	serial, err := r.Dial(ctx, inSerial)
	if err != nil {
		return err
	}
	go func() {
		defer serial.Close()
		_, _ = io.Copy(r.console, serial) // its end is the machine's
	}()
	return nil
}

// PIDs implements vmm.Running.
func (r *machine) PIDs() []int { return []int{r.PID} }

// Pause implements vmm.Running.
func (r *machine) Pause(ctx context.Context) error { return r.API.Ask(ctx, pause) }

// Resume implements vmm.Running.
func (r *machine) Resume(ctx context.Context) error { return r.API.Ask(ctx, resume) }

// Save implements vmm.Running.
func (r *machine) Save(ctx context.Context, to vmm.Saved) error {
	dir := r.folder("save")
	if err := os.Chown(dir, r.v.UID, r.v.UID); err != nil {
		return err
	}
	err := r.API.Ask(ctx, save)
	err = errors.Join(err, os.Chown(dir, 0, 0))
	if err == nil {
		err = pack(dir, to)
	}
	return errors.Join(err, empty(dir))
}

// Load implements vmm.Running.
func (r *machine) Load(ctx context.Context) error {
	if err := r.API.Ask(ctx, load); err != nil {
		return err
	}
	return r.proved(ctx, "Paused")
}

// unpack lays out what Load is to load.
func (r *machine) unpack() error { return unpack(r.v.Incoming.State, r.folder("load")) }

// End implements vmm.Running.
func (r *machine) End() {
	r.Served.End()
	if r.console != nil {
		r.console.Close()
	}
}
