package microvm

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"time"

	"cofferdam/sandbox"
	"cofferdam/sandbox/guest"
	"cofferdam/sandbox/microvm/vmm"
	"cofferdam/sandbox/snapshot"
)

// machineCopy is in the folder of a snapshot, beside the workspace and what a machine
// at rest has.
const machineCopy = "machine.img"

// Snapshot takes the box, or its workspace, as it is under a new id while it goes on
// running.
func (b *box) Snapshot(ctx context.Context, t sandbox.Take) (sandbox.Snapshot, error) {
	b.step.Lock()
	defer b.step.Unlock()
	s, err := takeOf(ctx, b, t)
	if err != nil {
		return sandbox.Snapshot{}, err
	}
	if err := b.d.snapshots.Keep(ctx, s); err != nil {
		return sandbox.Snapshot{}, b.failed("Snapshot", err)
	}
	return s.Snapshot, nil
}

// takeOf is a snapshot of the box that is not kept yet. step is held by the caller.
func takeOf(ctx context.Context, b *box, t sandbox.Take) (*snapshot.Stored, error) {
	if b.spec.SetupPhase {
		return nil, invalid("snapshot of box "+string(b.spec.ID), "its setup phase writes to an image that others will read", "take it of a box that has the environment")
	}
	need, err := snapshot.Blocks(b.workDisk())
	if err != nil {
		return nil, b.failed("Snapshot", err)
	}
	if t.Memory {
		need += memoryUsed(b)
	}
	s, err := b.d.snapshots.Add(t, b.spec, need)
	if err != nil {
		return nil, b.failed("Snapshot", err)
	}
	if s.Memory {
		s.Key, err = b.key(ctx)
	}
	if err == nil {
		err = b.take(ctx, s)
	}
	if err != nil {
		return nil, b.failed("Snapshot", errors.Join(b.d.snapshots.Explain(err), b.d.snapshots.Drop(s)))
	}
	return s, nil
}

// take stops the machine, writes it down with its workspace, and lets it go on.
// What the machine has not yet written to its disk is in its memory.
func (b *box) take(ctx context.Context, s *snapshot.Stored) (err error) {
	if !s.Memory && b.rest == isSuspended { // its disk has all that it wrote
		return snapshot.Copy(b.workDisk(), s.Path(snapshot.Image))
	}
	if err := b.begin("Snapshot", "being copied"); err != nil {
		return err
	}
	stopped := time.Now()
	defer func() {
		err = errors.Join(err, b.wake(ctx))
		s.Paused = time.Since(stopped)
		err = errors.Join(err, b.GoOn("its snapshot was taken", sandbox.ByDriver))
	}()
	if !s.Memory {
		return takeWorkspace(ctx, b, s.Path(snapshot.Image))
	}
	if err := b.stopAndWrite(ctx, s.Path("")); err != nil {
		return err
	}
	s.Guest = b.Host.State()
	return errors.Join(snapshot.Copy(b.workDisk(), s.Path(snapshot.Image)), snapshot.Copy(b.path("machine.img"), s.Path(machineCopy)))
}

// takeWorkspace copies the workspace alone: pid 1 has the machine write all of it,
// and its kernel writes nothing of its own accord while it stands still.
func takeWorkspace(ctx context.Context, b *box, to string) error {
	if err := b.Host.Quiet(ctx); err != nil {
		return err
	}
	ctx = context.WithoutCancel(ctx) // half a talk with a monitor leaves both in doubt
	if err := onMachine(b, func(vm vmm.Running) error { return vm.Pause(ctx) }); err != nil {
		return err
	}
	return snapshot.Copy(b.workDisk(), to)
}

// key names all that boxes must have in common so that one can go on as another:
// everything but id and hostname, and kernel, monitor, root and environment as they are.
func (b *box) key(ctx context.Context) (string, error) {
	version, err := b.d.monitor.Version(ctx)
	if err != nil {
		return "", err
	}
	s := b.spec
	s.ID, s.Snapshot, s.Digest, s.Hostname, s.Workspace, s.Epoch = "", "", "", "", "", 0
	spec, err := json.Marshal(s)
	if err != nil {
		return "", err
	}
	env, err := b.envKey()
	if err != nil {
		return "", err
	}
	return hashed(spec, []byte(version), []byte(b.boot.digest), []byte(filepath.Base(b.root)), []byte(env)), nil
}

// fork makes the box as a copy of its snapshot that goes on under an identity of
// its own: memory, workspace and network are its own, name, machine id, entropy
// and clock are new.
func (b *box) fork(ctx context.Context) error {
	s, release, err := b.d.snapshots.OpenMemory(ctx, b.spec)
	if err != nil {
		return err
	}
	defer release()
	key, err := b.key(ctx)
	if err != nil {
		return err
	}
	if key != s.Key || b.spec.SetupPhase {
		return invalid("snapshot "+string(s.ID), "it is of a box with another tier, image, environment, files or limits, or one of them has changed",
			"ask for what the box had that it was taken of")
	}
	work, err := snapshot.Blocks(s.Path(snapshot.Image))
	if err == nil {
		err = b.d.snapshots.Room(work)
	}
	if err == nil {
		err = errors.Join(snapshot.Copy(s.Path(snapshot.Image), b.path("work.img")), snapshot.Copy(s.Path(machineCopy), b.path("machine.img")))
	}
	if err != nil {
		return err
	}
	var w, r *os.File
	if b.link, w, r, err = newLink(); err != nil {
		return err
	}
	if b.Host, err = guest.RestoreHost(w, r, b.journalDir(), b.options(), s.Guest); err != nil {
		return errors.Join(err, w.Close(), r.Close())
	}
	if err := b.awaken(ctx, s.Path("")); err != nil {
		return errors.Join(err, lastWords(ctx, b.console, b.machine(), vmm.EndPatience))
	}
	err = b.Life.Move(sandbox.Ready, "it goes on from a snapshot", sandbox.ByDriver)
	b.Host.Release()
	return err
}
