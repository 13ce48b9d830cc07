package microvm

import (
	"context"
	"errors"
	"fmt"
	"os"

	"cofferdam"
	"cofferdam/sandbox"
	"cofferdam/sandbox/shelf"
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
	now := b.life.Now()
	return &cofferdam.Error{
		Op: "microvm." + op, Kind: cofferdam.Conflict, Subject: op + " of box " + string(b.spec.ID),
		Reason: fmt.Sprintf("it is %s: %s", now.State, now.Reason), Hint: "resume it first, or start a new one if it has ended",
	}
}

// failed is the error of a step that did not work.
func (b *box) failed(op string, err error) error {
	return wrap("microvm."+op, op+" of box "+string(b.spec.ID), err)
}

// begin holds the box for a step that stops it. Its step lock is held.
func (b *box) begin(op, why string) error {
	if b.rest != "" || b.life.Move(sandbox.Suspending, why, sandbox.ByCaller) != nil {
		return b.conflict(op)
	}
	b.host.Hold("the box is " + why)
	return nil
}

// goOn ends what begin began: the box runs.
func (b *box) goOn(why, actor string) error {
	state := sandbox.Ready
	switch ever, running := b.host.Commands(); {
	case running > 0:
		state = sandbox.Busy
	case ever > 0:
		state = sandbox.Idle
	}
	err := b.life.Move(state, why, actor)
	b.host.Release()
	return err
}

// standStill says that the box stands still from here on.
func (b *box) standStill(how, why string) error {
	b.rest = how
	b.host.Hold("the box is " + how)
	return b.life.Move(sandbox.Suspended, why, sandbox.ByCaller)
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
	if err := b.machine().pause(ctx); err != nil {
		return errors.Join(b.failed("Pause", err), b.goOn("it could not be paused", sandbox.ByDriver))
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
	err := errors.Join(b.d.shelf.Room(b.memoryUsed()), os.RemoveAll(dir), os.Mkdir(dir, 0o700))
	if err == nil {
		err = b.stopAndWrite(ctx, dir)
	}
	if err != nil {
		return errors.Join(b.failed("Suspend", err), b.wake(ctx), b.goOn("it could not be written to disk", sandbox.ByDriver), os.RemoveAll(dir))
	}
	b.link.part()
	b.machine().end()
	b.setMachine(nil)
	err = errors.Join(b.d.cgroups.end(string(b.spec.ID)), os.Remove(b.memoryFile()))
	return errors.Join(err, b.standStill(isSuspended, "its memory is on disk"))
}

// stopAndWrite brings the talk to rest, stops the machine and writes it down.
// After it, also after an error, wake lets it go on.
func (b *box) stopAndWrite(ctx context.Context, dir string) error {
	if err := b.host.Quiet(ctx); err != nil {
		return err
	}
	if err := b.machine().pause(ctx); err != nil {
		return err
	}
	state, err := os.OpenFile(dir+"/"+stateFile, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	err = b.machine().save(ctx, state)
	return errors.Join(err, state.Close(), shelf.Copy(b.memoryFile(), dir+"/"+memoryCopy))
}

// wake lets a machine go on that stopAndWrite stopped.
func (b *box) wake(ctx context.Context) error {
	ctx = context.WithoutCancel(ctx) // a box that was stopped must not stay so
	if err := b.machine().resume(ctx); err != nil {
		return err
	}
	return b.host.Wake(ctx, b.identity())
}

// Resume lets a paused or suspended box go on.
func (b *box) Resume(ctx context.Context) error {
	b.step.Lock()
	defer b.step.Unlock()
	switch now := b.life.Now().State; {
	case now.Over(), now == sandbox.Stopping:
		return b.conflict("Resume")
	case b.rest == isPaused:
		if err := b.machine().resume(ctx); err != nil {
			return b.failed("Resume", err)
		}
		b.rest = ""
		return b.goOn("it was resumed", sandbox.ByCaller)
	case b.rest == isSuspended:
		return b.fromDisk(ctx)
	}
	return nil
}

// fromDisk lets a suspended box go on. One that cannot is failed.
func (b *box) fromDisk(ctx context.Context) error {
	err := b.awaken(ctx, b.path(suspendedDir))
	if err != nil {
		_ = b.life.Move(sandbox.Failed, "it could not be resumed: "+err.Error(), sandbox.ByDriver)
		return errors.Join(b.failed("Resume", err), b.host.Close("the box could not be resumed"))
	}
	b.rest = ""
	if err := os.RemoveAll(b.path(suspendedDir)); err != nil {
		return b.failed("Resume", err)
	}
	return b.goOn("it was resumed from disk", sandbox.ByCaller)
}

// awaken starts a machine from what stopAndWrite wrote, under the box's own
// identity: pid 1 takes clock, entropy and name before it says anything.
func (b *box) awaken(ctx context.Context, dir string) error {
	if err := b.copyMemory(dir + "/" + memoryCopy); err != nil {
		return err
	}
	state, err := os.Open(dir + "/" + stateFile)
	if err != nil {
		return err
	}
	defer state.Close()
	if err := b.run(ctx, state); err != nil {
		return err
	}
	return b.wake(ctx)
}
