package firecracker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"cofferdam/sandbox/cage"
	"cofferdam/sandbox/microvm/vmm"
)

// firstLook is how often is looked whether the jailer is done.
const firstLook = 2 * time.Millisecond

// machine is one that Firecracker runs.
type machine struct {
	vmm.Served           // its program is pid 1 around the jailer and what it leaves
	saved      vmm.Saved // where the monitor writes one, outside its jail
	endLog     func()
}

// Start implements vmm.Monitor.
func (m *Monitor) Start(ctx context.Context, v vmm.Machine) (vmm.Running, error) {
	if _, err := m.Version(ctx); err != nil {
		return nil, err
	}
	r := &machine{Served: vmm.Served{UID: v.UID}}
	return vmm.Begin(ctx, v, r, func(ctx context.Context) error { return r.start(ctx, m, v) })
}

// start does the work; End removes what it has made, also after an error.
func (r *machine) start(ctx context.Context, m *Monitor, v vmm.Machine) (err error) {
	if r.Network, err = vmm.NewNetwork(v.UID, v.Network); err != nil {
		return err
	}
	program, keep, err := r.program(m, v)
	if err != nil {
		return err
	}
	if r.Program, err = program.Start(); err != nil {
		return fmt.Errorf("starting jailer: %w", err)
	}
	go keep(r.Program)
	ctx, cancel := r.Program.While(ctx)
	defer cancel()
	if r.PID, err = r.monitor(ctx); err != nil {
		return err
	}
	r.Serve("Firecracker", "")
	go r.API.Watch(r.Program, "/")
	if v.Incoming != nil {
		return nil // Load asks for the rest
	}
	if err := r.API.Ask(ctx, boot(v)...); err != nil {
		return err
	}
	return r.Confined(ctx, "/", "Running")
}

// program makes the files of the jail and says how its jailer is started.
func (r *machine) program(m *Monitor, v vmm.Machine) (cage.Program, func(*cage.Process), error) {
	none := cage.Program{}
	root := m.root(v)
	if err := errors.Join(os.MkdirAll(root, 0o700), v.Lend()); err != nil {
		return none, nil, err
	}
	log, keep, endLog, err := v.Pipe("log")
	if err != nil {
		return none, nil, err
	}
	r.endLog = endLog
	binds := []cage.Bind{
		{From: v.Kernel, To: inKernel}, {From: v.Initrd, To: inInitrd}, {From: log, To: inLog, Writable: true},
	}
	for _, d := range v.Disks {
		binds = append(binds, cage.Bind{From: d.File.Name(), To: inDisk(d.Serial), Writable: d.Writable})
	}
	for _, f := range []struct {
		name, to string
		path     *string
	}{{"state", toState, &r.saved.State}, {"memory", toMemory, &r.saved.Memory}} {
		if *f.path, err = v.Own(f.name); err != nil {
			return none, nil, err
		}
		binds = append(binds, cage.Bind{From: *f.path, To: f.to, Writable: true})
	}
	if v.Incoming != nil {
		binds = append(binds, cage.Bind{From: v.Incoming.State, To: inState}, cage.Bind{From: v.Incoming.Memory, To: inMemory})
	}
	network := fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), r.Network.Namespace.Fd())
	return cage.Program{
		Path: m.Init, Args: append([]string{"hold", m.Jailer}, m.arguments(v, network)...),
		UID: v.UID, Root: root, Binds: binds, Jailer: true, Output: v.Console,
	}, keep, nil
}

// monitor waits until the jailer has left the monitor, as it should run.
func (r *machine) monitor(ctx context.Context) (pid int, err error) {
	for {
		list, listed := vmm.Children(r.Program.PID)
		if err = listed; err == nil && len(list) == 1 {
			if err = vmm.Dropped(list[0], r.UID); err == nil {
				return list[0], nil
			}
		}
		select {
		case <-time.After(firstLook):
		case <-ctx.Done():
			return 0, fmt.Errorf("waiting for what the jailer starts: %w: %w", context.Cause(ctx), err)
		}
	}
}

// PIDs implements vmm.Running.
func (r *machine) PIDs() []int { return []int{r.Program.PID, r.PID} }

// Pause implements vmm.Running.
func (r *machine) Pause(ctx context.Context) error { return r.API.Ask(ctx, pause) }

// Resume implements vmm.Running.
func (r *machine) Resume(ctx context.Context) error { return r.API.Ask(ctx, resume) }

// Save implements vmm.Running. The monitor writes where it can write nothing else;
// what it has written is copied, so that it cannot change it later.
func (r *machine) Save(ctx context.Context, to vmm.Saved) error {
	if err := r.API.Ask(ctx, save); err != nil {
		return err
	}
	return errors.Join(take(r.saved.State, to.State), take(r.saved.Memory, to.Memory))
}

// take copies a file of the monitor's and empties it. Monitors of other users read
// the copy, which lies in a folder that nobody else enters.
func take(from, to string) error {
	src, err := os.OpenFile(from, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer src.Close()
	dst, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o444)
	if err != nil {
		return err
	}
	_, err = io.Copy(dst, src)
	return errors.Join(err, dst.Chmod(0o444), dst.Close(), src.Truncate(0))
}

// Load implements vmm.Running.
func (r *machine) Load(ctx context.Context) error {
	if err := r.API.Ask(ctx, load()...); err != nil {
		return err
	}
	return r.Confined(ctx, "/", "Paused")
}

// End implements vmm.Running.
func (r *machine) End() {
	r.Served.End()
	if r.endLog != nil {
		r.endLog()
	}
}
