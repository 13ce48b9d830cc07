package microvm

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"cofferdam"
	"cofferdam/sandbox"
	"cofferdam/sandbox/cgroup"
	"cofferdam/sandbox/guest"
	"cofferdam/sandbox/microvm/vmm"
	"cofferdam/sandbox/volume"
)

// box is one box. Its fields are set while it is built, before others see it.
type box struct {
	d    *Driver
	spec sandbox.Spec // complete: every limit is set
	*sandbox.Life
	*guest.Host
	created time.Time
	folder
	boot    bootFiles
	root    string       // disk with its image, shared with others
	env     *os.File     // the environment that it reads; nil for none, and for a setup
	kept    *volume.Hold // of the workspace that outlives it; nil for none
	console *console
	link    *link
	wire    *wire

	step    sync.Mutex // held while it is paused, suspended, resumed or copied
	rest    string     // how it stands still, "" while it runs; guarded by step
	resting string     // names what is on disk of a suspended one, as it was written; guarded by step

	mu   sync.Mutex
	vm   vmm.Running // nil while it is suspended; guarded by mu
	gone bool        // everything it had is removed; guarded by mu

	written bool // it was told to write what outlives it; guarded by mu
}

var _ sandbox.Box = (*box)(nil)

// machine is nil while the box is suspended, and once it is destroyed.
func (b *box) machine() vmm.Running {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.vm
}

// setMachine ends a machine that was started for a box that is gone by now.
func (b *box) setMachine(vm vmm.Running) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.gone && vm != nil {
		vm.End()
		return errGone
	}
	b.vm = vm
	return nil
}

var errGone = &cofferdam.Error{Op: "microvm", Kind: cofferdam.Unavailable, Subject: "machine of the box", Reason: "the box was destroyed meanwhile", Hint: "start a new one"}

// onMachine calls do with the machine, unless the box was destroyed meanwhile:
// Destroy waits for no step.
func onMachine(b *box, do func(vmm.Running) error) error {
	if vm := b.machine(); vm != nil {
		return do(vm)
	}
	return errGone
}

// noteEnd writes to the log that a machine ended which nobody had ended.
func noteEnd(b *box, vm vmm.Running) {
	<-vm.Process().Ended
	if b.machine() == vm {
		said := lastWords(context.Background(), b.console, vm, vmm.EndPatience)
		b.d.o.Log.Warn("a machine ended by itself", slog.Any("box", b.spec.ID), slog.Any("err", said))
	}
}

// ID returns the box's name.
func (b *box) ID() cofferdam.BoxID { return b.spec.ID }

// Status says what the box really is.
func (b *box) Status(ctx context.Context) (sandbox.Status, error) {
	s := sandbox.Status{
		ID: b.spec.ID, Tier: b.spec.Tier, Kernel: b.kernel(ctx), Flags: flags(b.traits(), b.d.groups), Limits: b.spec.Limits, Image: b.spec.Image,
		Created: b.created, Changes: b.Life.Changes(), Workspace: b.kept.About(),
	}
	last := s.Changes[len(s.Changes)-1]
	s.State, s.Reason = last.State, last.Reason
	return s, ctx.Err()
}

// kernel names what the box sees as its kernel, and what runs it.
func (b *box) kernel(ctx context.Context) string {
	version, err := b.d.monitor.Version(ctx)
	if err != nil {
		version = b.traits().Name
	}
	if b.spec.Tier == sandbox.MicroVM {
		return "Linux " + b.boot.version + ", " + version + ", KVM"
	}
	return "Linux " + b.boot.version + ", " + version + ", emulated: no security boundary"
}

// limitsOwn is a machine that no control group holds: it has its memory and as many
// processors as it asked for, its monitor has bounds of its own, and nothing bounds
// their share of the host's processors.
const limitsOwn = "limits=own"

// flags are the monitor and what holds it, and how the workspace has its size.
func flags(t vmm.Traits, g cgroup.Groups) []string {
	list := append(append([]string{"monitor=" + t.Name}, t.Flags...), "workspace=disk")
	if g.None() {
		list = append(list, limitsOwn)
	}
	return list
}

// Wire lends a fresh end of the box's network: a socket that reads and writes
// one Ethernet frame at a time, as a queue of a TAP does.
func (b *box) Wire(ctx context.Context) (*os.File, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	end, err := b.wire.lend()
	if err != nil {
		return nil, &cofferdam.Error{
			Op: "microvm.Wire", Kind: cofferdam.Unavailable, Subject: "wire of box " + string(b.spec.ID),
			Reason: err.Error(), Hint: "the box is gone; start a new one", Err: err,
		}
	}
	return end, nil
}

// Destroy ends the box and removes all it had. What ctx says does not stop it
// halfway.
func (b *box) Destroy(context.Context) error {
	if !b.Life.Now().State.Over() {
		// Refused only by a state in which it is being ended already.
		_ = b.Life.Move(sandbox.Stopping, "it is being destroyed", sandbox.ByCaller)
	}
	if err := b.tearDown("the box was destroyed"); err != nil {
		return &cofferdam.Error{
			Op: "microvm.Destroy", Kind: cofferdam.Internal, Subject: "destroy box " + string(b.spec.ID),
			Reason: err.Error(), Hint: "restart the keeper: it ends what is left", Err: err,
		}
	}
	if b.Life.Now().State == sandbox.Stopping {
		_ = b.Life.Move(sandbox.Stopped, "it was destroyed", sandbox.ByCaller)
	}
	_ = b.Life.Move(sandbox.Deleted, "nothing is left of it", sandbox.ByDriver)
	return nil
}

// tearDown removes whatever build made, in the reverse order, and goes on
// when a part fails. It may be called again after an error.
func (b *box) tearDown(reason string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.gone {
		return nil
	}
	errs := []error{b.finishWriting()}
	if b.vm != nil {
		b.vm.End()
		b.vm = nil
	}
	if b.Host != nil {
		errs = append(errs, b.Host.Close(reason))
	}
	if b.link != nil {
		b.link.close()
	}
	b.wire.close()
	closeAll([]*os.File{b.env}) // closing it again does nothing
	errs = append(errs, b.d.groups.End(string(b.spec.ID)), b.flushEnv(), b.letGo())
	for _, dir := range []string{b.memoryDir(), b.journalDir(), b.path("")} {
		errs = append(errs, os.RemoveAll(dir))
	}
	err := errors.Join(errs...)
	if b.gone = err == nil; b.gone {
		b.d.Forget(b.spec.ID, b)
	}
	return err
}

// lastPatience is how long a machine that is being ended may take to write.
const lastPatience = 20 * time.Second

// finishWriting has the machine write what it holds of what outlives it: of an
// environment, which whoever destroys a box whose setup did not end well throws
// away, and of a kept workspace, which has a journal for the case that it cannot.
func (b *box) finishWriting() error {
	if !b.spec.SetupPhase && b.kept == nil || b.written || b.Host == nil || b.vm == nil {
		return nil
	}
	b.written = true // it is tried once: what cannot answer is ended all the same
	select {
	case <-b.Host.Done():
		return nil // it ended by itself, and its commands say so
	default:
	}
	ctx, cancel := context.WithTimeout(context.Background(), lastPatience)
	defer cancel()
	b.Host.Hold("the box is being destroyed")
	if err := b.Host.Quiet(ctx); err != nil {
		return fmt.Errorf("its disks may lack what was written last: %w", err)
	}
	return nil
}

// flushEnv puts an environment image on the disk of the host, so that it
// survives a loss of power: it is used again, and has no journal.
func (b *box) flushEnv() error {
	if !b.spec.SetupPhase {
		return nil
	}
	f, err := os.OpenFile(b.spec.Env, os.O_RDWR, 0)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	// A monitor that opened it by its name had it as its own.
	return errors.Join(f.Chown(0, 0), f.Sync(), f.Close())
}
