package gvisor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"cofferdam/sandbox"
	"cofferdam/sandbox/quota"
	"cofferdam/sandbox/snapshot"
)

// memoryDir is in the folder of a snapshot, beside the workspace.
const memoryDir = "memory"

// workImage is a box's workspace in the box's folder, where that is no kept one.
const workImage = "work.img"

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
		return sandbox.Snapshot{}, failed(b, "Snapshot", "take snapshot of", err)
	}
	return s.Snapshot, nil
}

// takeOf is a snapshot of the box that is not kept yet. step is held by the caller.
func takeOf(ctx context.Context, b *box, t sandbox.Take) (*snapshot.Stored, error) {
	if b.spec.SetupPhase {
		return nil, invalid("snapshot of box "+string(b.spec.ID), "its setup phase writes to an image that others will read", "take it of a box that has the environment")
	}
	if now := b.Life.Now().State; now.Over() || now == sandbox.Stopping { // its workspace is gone: what lies there now is the host's
		return nil, conflict(b, "Snapshot", "take snapshot of")
	}
	need := used(b)
	if t.Memory {
		need += b.memory()
	}
	s, err := b.d.snapshots.Add(t, b.spec, need)
	if err != nil {
		return nil, err
	}
	if s.Memory {
		s.Kernel = b.d.checker.kernel()
		s.Key, err = b.d.key(b.spec)
	}
	if err == nil {
		err = b.take(ctx, s)
	}
	if err != nil {
		return nil, failed(b, "Snapshot", "take snapshot of", errors.Join(b.d.snapshots.Explain(err), b.d.snapshots.Drop(s)))
	}
	return s, nil
}

// take stops the box, writes down its memory and its workspace, and lets it go
// on. The box comes to rest first, so that a copy begins between two frames.
func (b *box) take(ctx context.Context, s *snapshot.Stored) (err error) {
	if err := syncAll(b.path("work")); err != nil { // what is written now need not be while it stands still
		return err
	}
	if !s.Memory && (b.rest.paused || b.rest.onDisk) { // nothing writes to it
		return copyWorkspace(ctx, b, s)
	}
	if err := b.begin("Snapshot", "take snapshot of", "being copied"); err != nil {
		return err
	}
	stopped := time.Now()
	defer func() {
		s.Paused = time.Since(stopped)
		err = errors.Join(err, b.GoOn("its snapshot was taken", sandbox.ByDriver))
	}()
	if err := b.Host.Quiet(ctx); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.Host.Wake(context.WithoutCancel(ctx), identity(b.spec))) }()
	s.Guest = b.Host.State()
	if err := b.container.Pause(); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.container.Resume()) }()
	if s.Memory { // first: gVisor writes to the workspace what it still has of it
		if err := os.Mkdir(s.Path(memoryDir), 0o700); err != nil {
			return err
		}
		if err := writeDown(b.d.conf, b.container, s.Path(memoryDir)); err != nil {
			return err
		}
	}
	return copyWorkspace(ctx, b, s)
}

// copyWorkspace copies the workspace of a box that stands still.
func copyWorkspace(ctx context.Context, b *box, s *snapshot.Stored) error {
	if b.d.o.User || b.project != 0 || b.kept != nil && quota.Enforced(b.dir) {
		return b.d.snapshots.CopyTree(ctx, b.path("work"), s.Path(snapshot.Tree))
	}
	// Nobody else writes to the workspace, and the box stands still: what is on
	// disk after this is all of it. To freeze the file system as well costs 40 ms.
	if err := syncAll(b.path("work")); err != nil {
		return err
	}
	return snapshot.Copy(b.disk(), s.Path(snapshot.Image))
}

// openSnapshot returns a snapshot that this gVisor can read. It is not removed
// until release is called.
func (d *Driver) openSnapshot(ctx context.Context, spec sandbox.Spec) (s *snapshot.Stored, release func(), err error) {
	s, release, err = d.snapshots.OpenMemory(ctx, spec)
	if err == nil && s.Kernel != d.checker.kernel() {
		release()
		return nil, nil, missing("snapshot "+string(s.ID), fmt.Sprintf("it was written by %s, and this is %s", s.Kernel, d.checker.kernel()), "remove it and take a new one", nil)
	}
	return s, release, err
}
