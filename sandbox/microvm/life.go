package microvm

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"

	"cofferdam"
	"cofferdam/sandbox"
	"cofferdam/sandbox/microvm/vmm"
	"cofferdam/sandbox/snapshot"
)

// How a box stands still; "" while it runs.
const (
	isPaused    = "paused"
	isSuspended = "suspended"
)

// suspendedDir holds what a suspended box is, below its folder.
const suspendedDir = "suspended"

// Names of what a machine at rest is: in the folder of a suspended box, and in
// that of a snapshot.
const (
	stateFile  = "state"  // of its devices and processors
	memoryCopy = "memory" // sparse
)

// conflict refuses a step that the box's state does not allow.
func (b *box) conflict(op string) error {
	return b.Conflict("microvm."+op, op+" of box "+string(b.spec.ID))
}

// failed is the error of a step that did not work.
func (b *box) failed(op string, err error) error {
	return sandbox.Wrap("microvm."+op, op+" of box "+string(b.spec.ID), "look at its state; a box that has failed is destroyed and made anew", err)
}

// begin holds the box for a step that stops it. Its step lock is held.
func (b *box) begin(op, why string) error {
	if b.rest != "" || b.Life.Move(sandbox.Suspending, why, sandbox.ByCaller) != nil {
		return b.conflict(op)
	}
	b.Host.Hold("the box is " + why)
	return nil
}

// standStill says that the box stands still from here on.
func (b *box) standStill(how, why string) error {
	b.rest = how
	b.Host.Hold("the box is " + how)
	return b.Life.Move(sandbox.Suspended, why, sandbox.ByCaller)
}

// Pause stops the machine's processors.
func (b *box) Pause(ctx context.Context) error {
	b.step.Lock()
	defer b.step.Unlock()
	if b.rest == isPaused {
		return nil
	}
	if err := b.begin("Pause", "being paused"); err != nil {
		return err
	}
	// The caller may go away: what is asked of the machine is done or refused, not in doubt.
	ctx = context.WithoutCancel(ctx)
	if err := onMachine(b, func(vm vmm.Running) error { return vm.Pause(ctx) }); err != nil {
		return errors.Join(b.failed("Pause", err), b.GoOn("it could not be paused", sandbox.ByDriver))
	}
	return b.standStill(isPaused, "it is paused")
}

// Suspend writes the machine's memory to disk and ends its monitor.
func (b *box) Suspend(ctx context.Context) error {
	b.step.Lock()
	defer b.step.Unlock()
	if b.rest == isSuspended {
		return nil
	}
	if err := b.begin("Suspend", "being written to disk"); err != nil {
		return err
	}
	dir := b.path(suspendedDir)
	err := errors.Join(b.d.snapshots.Room(memoryUsed(b)), os.RemoveAll(dir), os.Mkdir(dir, 0o700))
	if err == nil {
		err = b.stopAndWrite(ctx, dir)
	}
	if err != nil {
		return errors.Join(b.failed("Suspend", b.d.snapshots.Explain(err)), b.wake(ctx), b.GoOn("it could not be written to disk", sandbox.ByDriver), os.RemoveAll(dir))
	}
	b.link.part()
	vm := b.machine()
	_ = b.setMachine(nil) // first: its end is meant
	if vm != nil {
		vm.End()
	}
	err = errors.Join(b.d.groups.End(string(b.spec.ID)), os.RemoveAll(b.memoryFile()))
	var unseen error
	b.resting, unseen = touched(b) // without it the box is refused when it is resumed
	return errors.Join(err, unseen, b.standStill(isSuspended, "its memory is on disk"))
}

// touched names what a suspended box goes on from as it is: its memory and its
// disks. Whatever is written to them later changes a time that only the kernel sets.
func touched(b *box) (string, error) {
	var all []string
	for _, path := range []string{b.path(suspendedDir), b.path("machine.img"), b.workDisk()} {
		one, err := snapshot.Touched(path)
		if err != nil {
			return "", err
		}
		all = append(all, one)
	}
	return strings.Join(all, " "), nil
}

// untouched refuses to go on from what is not what was written: it would be the box.
// It is not read for that, so that a large box is back as soon as a small one.
func untouched(b *box) error {
	now, err := touched(b)
	if err == nil && now == b.resting {
		return nil
	}
	return &cofferdam.Error{
		Op: "microvm.Resume", Kind: cofferdam.Tampered, Subject: "resume of box " + string(b.spec.ID), Err: err,
		Reason: "its memory or its workspace on disk is not what was written", Hint: "destroy it, and find out who can write to the state folder",
	}
}

// stopAndWrite brings the talk to rest, stops the machine and writes it down.
// After it, also after an error, wake lets it go on.
func (b *box) stopAndWrite(ctx context.Context, dir string) error {
	if err := b.Host.Quiet(ctx); err != nil {
		return err
	}
	ctx = context.WithoutCancel(ctx) // half a talk with a monitor leaves both in doubt
	if err := onMachine(b, func(vm vmm.Running) error { return vm.Pause(ctx) }); err != nil {
		return err
	}
	if b.traits().Reconnects {
		b.link.part()
	}
	to := savedIn(dir)
	if err := onMachine(b, func(vm vmm.Running) error { return vm.Save(ctx, to) }); err != nil || !b.traits().SharesMemory {
		return err
	}
	return snapshot.Copy(b.memoryFile(), to.Memory)
}

// savedIn is what is saved in a folder.
func savedIn(dir string) vmm.Saved {
	return vmm.Saved{State: filepath.Join(dir, stateFile), Memory: filepath.Join(dir, memoryCopy)}
}

func (b *box) traits() vmm.Traits { return b.d.monitor.Traits() }

// wake lets a machine go on that stopAndWrite stopped.
func (b *box) wake(ctx context.Context) error {
	ctx = context.WithoutCancel(ctx) // a box that was stopped must not stay so
	if err := onMachine(b, func(vm vmm.Running) error { return vm.Resume(ctx) }); err != nil {
		return err
	}
	if !b.traits().Reconnects {
		return b.Host.Wake(ctx, b.identity())
	}
	return b.greet(ctx)
}

// lineTries is how often a line that ends before pid 1 has answered is made anew:
// the guest's kernel hears that its lines of before are gone, and may take a new
// one for one of them.
const lineTries = 3

// greet joins to pid 1 anew and tells it to go on.
func (b *box) greet(ctx context.Context) (failed error) {
	ctx, cancel := context.WithTimeout(ctx, startPatience)
	defer cancel()
	b.link.part()
	who := b.identity() // the same with each try: pid 1 may hear two of them
	for range lineTries {
		ended, err := b.joinLine(ctx)
		if err != nil {
			return err
		}
		waking, stop := context.WithCancel(ctx)
		go func() {
			select {
			case <-ended:
				stop()
			case <-waking.Done():
			}
		}()
		failed = b.Host.Wake(waking, who)
		stop()
		if failed == nil {
			b.link.keep()
			return nil
		}
	}
	return failed
}

// Resume lets a paused or suspended box go on. Once begun it is done: a caller who
// goes away meanwhile must not cost the box its life.
func (b *box) Resume(ctx context.Context) error {
	ctx = context.WithoutCancel(ctx)
	b.step.Lock()
	defer b.step.Unlock()
	switch now := b.Life.Now().State; {
	case now.Over(), now == sandbox.Stopping:
		return b.conflict("Resume")
	case b.rest == isPaused:
		if err := onMachine(b, func(vm vmm.Running) error { return vm.Resume(ctx) }); err != nil {
			return b.failed("Resume", err)
		}
		b.rest = ""
		return b.GoOn("it was resumed", sandbox.ByCaller)
	case b.rest == isSuspended:
		return fromDisk(ctx, b)
	}
	return nil
}

// fromDisk lets a suspended box go on. One that cannot is failed.
func fromDisk(ctx context.Context, b *box) error {
	err := untouched(b)
	if err == nil {
		if err = b.awaken(ctx, b.path(suspendedDir)); err != nil {
			err = errors.Join(err, lastWords(ctx, b.console, b.machine(), vmm.EndPatience))
		}
	}
	if err != nil {
		_ = b.Life.Move(sandbox.Failed, "it could not be resumed: "+err.Error(), sandbox.ByDriver)
		return errors.Join(b.failed("Resume", err), b.Host.Close("the box could not be resumed"))
	}
	b.rest, b.resting = "", ""
	if err := os.RemoveAll(b.path(suspendedDir)); err != nil {
		return b.failed("Resume", err)
	}
	return b.GoOn("it was resumed from disk", sandbox.ByCaller)
}

// awaken starts a machine from what stopAndWrite wrote, under the box's own
// identity: pid 1 takes clock, entropy and name before it says anything.
func (b *box) awaken(ctx context.Context, dir string) error {
	filled := func() error { return nil }
	if b.traits().SharesMemory {
		var err error
		if filled, err = b.fillMemory(filepath.Join(dir, memoryCopy), b.spec.Limits.Memory); err != nil {
			return err
		}
	}
	err := b.run(ctx, dir) // the monitor starts while its memory is filled
	if err := errors.Join(err, filled()); err != nil {
		return err
	}
	if err := onMachine(b, func(vm vmm.Running) error { return vm.Load(ctx) }); err != nil {
		return err
	}
	if !b.traits().Reconnects {
		if _, err := b.joinLine(ctx); err != nil {
			return err
		}
		b.link.keep()
	}
	return b.wake(ctx)
}
