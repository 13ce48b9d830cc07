package cloudhypervisor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"cofferdam/sandbox/microvm/vmm"
)

// startPatience is how long the monitor may take for its first word.
const startPatience = 45 * time.Second // longer than one call may take, so that it is named

// machine is one that Cloud Hypervisor runs.
type machine struct {
	p       *vmm.Process
	v       vmm.Machine
	api     *vmm.API
	network *vmm.Network
	console *os.File // a duplicate of the driver's
}

// Start implements vmm.Monitor.
func (m *Monitor) Start(ctx context.Context, v vmm.Machine) (vmm.Running, error) {
	if _, err := m.Version(ctx); err != nil {
		return nil, err
	}
	if !v.KVM {
		return nil, errors.New("the monitor emulates no processor")
	}
	r := &machine{v: v}
	if err := r.start(ctx, m.Program); err != nil {
		words := ""
		if r.p != nil {
			words = r.p.Words()
		}
		r.End()
		return nil, errors.Join(err, fmt.Errorf("it printed: %.500s", words))
	}
	return r, nil
}

// arguments are the monitor's. What it is to run, it is told by its API.
func arguments() []string { return []string{"--api-socket", "path=" + inAPI, "--seccomp", "true"} }

// start does the work; End removes what it has made, also after an error.
func (r *machine) start(ctx context.Context, path string) (err error) {
	ctx, cancel := context.WithTimeout(ctx, startPatience)
	defer cancel()
	if r.network, err = vmm.NewNetwork(r.v.UID, r.v.Network); err != nil {
		return err
	}
	if r.console, err = vmm.Duplicate(r.v.Console); err != nil {
		return err
	}
	program, err := r.program(path)
	if err != nil {
		return err
	}
	if r.p, err = program.Start(); err != nil {
		return fmt.Errorf("starting monitor: %w", err)
	}
	r.api = vmm.NewAPI("Cloud Hypervisor", prefix, func(ctx context.Context) (*os.File, error) { return r.dial(ctx, inAPI) }, r.p.KillFor)
	var alive map[string]any
	if err := r.api.Call(ctx, "GET", "/vmm.ping", nil, &alive, 0); err != nil { // once it serves, it has become what it is
		return err
	}
	if err := vmm.Dropped(r.p.PID, r.v.UID); err != nil {
		return err
	}
	go r.api.Watch(r.p, "/vmm.ping")
	if r.v.Incoming != nil {
		return r.unpack() // Load asks for the rest
	}
	if err := ask(ctx, r.api, boot(r.v)...); err != nil {
		return err
	}
	return r.confined(ctx, "Running")
}

// program is the monitor in a root of its own. Its two folders on the disk are
// closed to it but while it saves.
func (r *machine) program(path string) (vmm.Program, error) {
	g := vmm.Program{
		Path: inProgram, Args: arguments(), UID: r.v.UID, Root: r.folder("root"), Most: r.v.Largest(), Scratch: inRun,
		Nodes: []string{vmm.KVM, "/dev/net/tun"}, Namespace: r.network.Namespace, Landlock: true, Write: []string{inRun, inSave},
		Binds: []vmm.Bind{
			{From: path, To: inProgram},
			{From: r.v.Kernel, To: inKernel},
			{From: r.v.Initrd, To: inInitrd},
			{From: "/dev/urandom", To: "/dev/urandom", Writable: true},
			{From: r.folder("save"), To: inSave, Writable: true},
			{From: r.folder("load"), To: inLoad},
		},
	}
	for _, d := range r.v.Disks {
		g.Binds = append(g.Binds, vmm.Bind{From: d.File.Name(), To: inDisk(d.Serial), Writable: d.Writable})
		if d.Writable {
			g.Write = append(g.Write, inDisk(d.Serial))
		}
	}
	err := errors.Join(os.Mkdir(r.folder("root"), 0o700), os.Mkdir(r.folder("save"), 0o700), os.Mkdir(r.folder("load"), 0o755), r.v.Lend())
	if err == nil && r.v.Incoming != nil {
		// In its place when the folder is shown: the monitor sees one folder.
		err = os.WriteFile(filepath.Join(r.folder("load"), memoryFile), nil, 0o444)
		g.Binds = append(g.Binds, vmm.Bind{From: r.v.Incoming.Memory, To: filepath.Join(inLoad, memoryFile)})
	}
	return g, err
}

func (r *machine) folder(name string) string { return filepath.Join(r.v.Dir, name) }

func (r *machine) dial(ctx context.Context, path string) (*os.File, error) {
	ctx, cancel := r.p.While(ctx)
	defer cancel()
	return vmm.Dial(ctx, r.root(), path, r.v.UID)
}

func (r *machine) root() string { return fmt.Sprintf("/proc/%d/root", r.p.PID) }

// confined proves that each thread of the monitor is where it should be, once it
// has a machine, and takes up what the machine's kernel prints.
func (r *machine) confined(ctx context.Context, state string) error {
	if err := errors.Join(r.api.StateIs(ctx, "/vm.info", state), vmm.Confined(r.p.PID, r.v.UID)); err != nil {
		return err
	}
	serial, err := r.dial(ctx, inSerial)
	if err != nil {
		return err
	}
	go func() {
		defer serial.Close()
		_, _ = io.Copy(r.console, serial) // its end is the machine's
	}()
	return nil
}

// Process implements vmm.Running.
func (r *machine) Process() *vmm.Process { return r.p }

// PIDs implements vmm.Running.
func (r *machine) PIDs() []int { return []int{r.p.PID} }

// Line implements vmm.Running.
func (r *machine) Line(ctx context.Context) (*os.File, error) {
	ctx, cancel := r.p.While(ctx)
	defer cancel()
	return vmm.DialGuest(ctx, r.root(), inVsock, r.v.UID)
}

// Pause implements vmm.Running.
func (r *machine) Pause(ctx context.Context) error { return ask(ctx, r.api, pause) }

// Resume implements vmm.Running.
func (r *machine) Resume(ctx context.Context) error { return ask(ctx, r.api, resume) }

// Save implements vmm.Running.
func (r *machine) Save(ctx context.Context, to vmm.Saved) error {
	dir := r.folder("save")
	if err := os.Chown(dir, r.v.UID, r.v.UID); err != nil {
		return err
	}
	err := ask(ctx, r.api, save)
	err = errors.Join(err, os.Chown(dir, 0, 0))
	if err == nil {
		err = pack(dir, to)
	}
	return errors.Join(err, empty(dir))
}

// Load implements vmm.Running.
func (r *machine) Load(ctx context.Context) error {
	if err := ask(ctx, r.api, load); err != nil {
		return err
	}
	return r.confined(ctx, "Paused")
}

// unpack lays out what Load is to load.
func (r *machine) unpack() error { return unpack(r.v.Incoming.State, r.folder("load")) }

// End implements vmm.Running.
func (r *machine) End() {
	if r.p != nil {
		r.p.Kill()
	}
	if r.network != nil {
		r.network.Close()
	}
	if r.console != nil {
		r.console.Close()
	}
}
