package gvisor

import (
	"context"
	"errors"
	"log/slog"
	"os"

	"cofferdam"
	"cofferdam/sandbox"
	"cofferdam/sandbox/snapshot"

	"golang.org/x/sys/unix"
)

// rest is what a box does instead of running.
type rest struct {
	paused bool
	onDisk bool
	// ends are the box's own ends of its pipes while it is on disk: what is in
	// the pipes stays there, and the host does not take the box for ended.
	ends [2]*os.File
	// written names what was written to disk as it was then: whatever is written to
	// it later changes a time that only the kernel sets.
	written string
}

// Names of what a box holds while it is on disk.
const suspendedDir = "suspended"

// conflict refuses a step that the box's state does not allow.
func conflict(b *box, op, what string) error {
	return b.Conflict("gvisor."+op, what+" box "+string(b.spec.ID))
}

// failed is the error of a step that did not work.
func failed(b *box, op, what string, err error) error {
	return sandbox.Wrap("gvisor."+op, what+" box "+string(b.spec.ID), "look at its state; a box that has failed is destroyed and made anew", err)
}

// begin holds the box for a step that stops it. step is held by the caller.
func (b *box) begin(op, what, why string) error {
	if b.rest.paused || b.rest.onDisk || b.Life.Move(sandbox.Suspending, why, sandbox.ByCaller) != nil {
		return conflict(b, op, what)
	}
	b.Host.Hold("the box is " + why)
	return nil
}

// Pause stops all of the box's processes where they are: gVisor's kernel stops
// its tasks, and then its own process is stopped, so that it costs no time.
func (b *box) Pause(context.Context) error {
	b.step.Lock()
	defer b.step.Unlock()
	if b.rest.paused {
		return nil
	}
	if err := b.begin("Pause", "pause", "being paused"); err != nil {
		return err
	}
	b.Host.Hold("the box is paused")
	err := b.container.Pause()
	if err == nil {
		err = sandbox.Signal(b.container.SandboxPid(), unix.SIGSTOP)
	}
	if err != nil {
		return errors.Join(failed(b, "Pause", "pause", err), b.GoOn("it could not be paused", sandbox.ByDriver))
	}
	b.rest.paused = true
	return b.Life.Move(sandbox.Suspended, "it is paused", sandbox.ByCaller)
}

// Resume lets a paused or suspended box go on.
func (b *box) Resume(ctx context.Context) error {
	b.step.Lock()
	defer b.step.Unlock()
	switch {
	case b.Life.Now().State.Over(), b.Life.Now().State == sandbox.Stopping:
		return conflict(b, "Resume", "resume")
	case b.rest.paused:
		err := sandbox.Signal(b.container.SandboxPid(), unix.SIGCONT)
		if err == nil {
			err = b.container.Resume()
		}
		if err != nil {
			return failed(b, "Resume", "resume", err)
		}
		b.rest.paused = false
		return b.GoOn("it was resumed", sandbox.ByCaller)
	case b.rest.onDisk:
		return b.restore(ctx)
	}
	return nil
}

// Suspend writes the box's memory to disk and ends its processes on the host.
// One that is paused must be resumed first.
func (b *box) Suspend(ctx context.Context) error {
	b.step.Lock()
	defer b.step.Unlock()
	if b.rest.onDisk {
		return nil
	}
	if err := b.begin("Suspend", "suspend", "being written to disk"); err != nil {
		return err
	}
	if err := b.toDisk(ctx); err != nil {
		if b.Life.Now().State.Over() {
			return failed(b, "Suspend", "suspend", err)
		}
		return errors.Join(failed(b, "Suspend", "suspend", err), b.GoOn("it could not be written to disk", sandbox.ByDriver))
	}
	b.Host.Hold("the box is suspended")
	return b.Life.Move(sandbox.Suspended, "its memory is on disk", sandbox.ByCaller)
}

// toDisk writes the box down and ends its processes. After an error it runs, or
// its host says that it is lost.
func (b *box) toDisk(ctx context.Context) error {
	image := b.path(suspendedDir)
	if err := b.d.snapshots.Room(b.memory()); err != nil {
		return err
	}
	if err := errors.Join(os.RemoveAll(image), os.Mkdir(image, 0o700)); err != nil {
		return err
	}
	if err := b.Host.Quiet(ctx); err != nil {
		return err
	}
	ends, err := b.Host.Ends()
	if err == nil {
		if err = b.write(image); err != nil {
			closeAll(ends[:])
		}
	}
	if err != nil {
		return errors.Join(err, b.Host.Wake(context.WithoutCancel(ctx), identity(b.spec)), os.RemoveAll(image))
	}
	b.rest.ends, b.rest.onDisk = ends, true
	runs := b.container.Destroy()
	if err = errors.Join(runs, b.d.groups.End(string(b.name))); err != nil {
		// Something of it still runs beside what was written: neither may go on.
		b.fail("its processes did not end: "+err.Error(), "the box could not be suspended")
	}
	if runs != nil { // it is watched until it is destroyed, which ends what is left
		return err
	}
	if err == nil {
		if b.rest.written, err = snapshot.Touched(image); err != nil {
			b.fail("what was written of it cannot be looked at: "+err.Error(), "the box could not be suspended")
		}
	}
	b.container = nil
	b.pid.Store(0)
	return err
}

// write stops the box and writes it down. It is not told to end with that: gVisor
// would end it also when the disk is full. After an error it runs.
func (b *box) write(image string) error {
	if err := b.container.Pause(); err != nil {
		return err
	}
	if err := writeDown(b.d.conf, b.container, image); err != nil {
		return errors.Join(b.d.snapshots.Explain(err), b.container.Resume())
	}
	return nil
}

// fail ends a box that can neither run nor rest any more.
func (b *box) fail(why, lost string) {
	_ = b.Life.Move(sandbox.Failed, why, sandbox.ByDriver) // refused once it is over; first, for the end of its pipes says less
	closeAll(b.rest.ends[:])
	b.rest = rest{}
	if err := b.Host.Close(lost); err != nil {
		b.d.o.Log.Error("closing a box that failed", slog.Any("box", b.name), slog.Any("err", err))
	}
}

// restore lets a box that is on disk go on. One that cannot is failed. Once begun
// it is done: a caller who goes away meanwhile must not cost the box its life.
func (b *box) restore(ctx context.Context) error {
	ctx = context.WithoutCancel(ctx)
	if err := b.untouched(); err != nil {
		b.fail("it could not be resumed: its memory on disk is not what was written", "the box could not be resumed")
		return err
	}
	err := dropPackets(b.net)
	if err == nil {
		err = b.net.Renew()
	}
	if err == nil {
		err = limit(b) // its groups ended with its processes
	}
	if err == nil {
		b.container, err = launch(b, b.path(suspendedDir), b.rest.ends)
	}
	if err == nil {
		closeAll(b.rest.ends[:])
		b.rest = rest{}
		err = b.Host.Wake(ctx, identity(b.spec))
	}
	if err != nil {
		err = short(b, err)
		b.fail("it could not be resumed: "+err.Error(), "the box could not be resumed")
		return failed(b, "Resume", "resume", err)
	}
	if err := os.RemoveAll(b.path(suspendedDir)); err != nil {
		return failed(b, "Resume", "resume", err)
	}
	return b.GoOn("it was resumed from disk", sandbox.ByCaller)
}

// untouched refuses memory on disk that is not what was written: it would go on as
// the box. It is not read for that, so that a large box is back as soon as a small one.
func (b *box) untouched() error {
	now, err := snapshot.Touched(b.path(suspendedDir))
	if err == nil && now == b.rest.written {
		return nil
	}
	return &cofferdam.Error{
		Op: "gvisor.Resume", Kind: cofferdam.Tampered, Subject: "resume box " + string(b.spec.ID), Err: err,
		Reason: "its memory on disk is not what was written", Hint: "destroy it, and find out who can write to the state folder",
	}
}
