package process

import (
	"context"
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"cofferdam"
	"cofferdam/sandbox"
	"cofferdam/sandbox/snapshot"
	"cofferdam/sandbox/volume"
)

// Snapshot takes the workspace as it is: what runs on the host's kernel cannot be
// copied.
func (b *box) Snapshot(ctx context.Context, t sandbox.Take) (sandbox.Snapshot, error) {
	if t.Memory {
		return b.Lacks.Snapshot(ctx, t)
	}
	s, err := takeOf(ctx, b, t)
	if err != nil {
		return sandbox.Snapshot{}, err
	}
	if err := b.d.snapshots.Keep(ctx, s); err != nil {
		return sandbox.Snapshot{}, b.failed("Snapshot", "take checkpoint of", err)
	}
	return s.Snapshot, nil
}

// takeOf is a checkpoint of the box that is not kept yet. Destroy waits for it.
func takeOf(ctx context.Context, b *box, t sandbox.Take) (*snapshot.Stored, error) {
	if b.d.watched {
		return nil, watchedLacks(sandbox.CanCheckpoint, "only a control group stops all processes of a box at once, in a way that none of them sees")
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if now := b.Life.Now().State; now.Over() || now == sandbox.Stopping { // its workspace is gone: what lies there now is the host's
		return nil, b.Conflict("process.Snapshot", "take checkpoint of box "+string(b.spec.ID))
	}
	s, err := b.d.snapshots.Add(t, b.spec, used(b))
	if err != nil {
		return nil, err
	}
	if err := copyStill(ctx, b, s); err != nil {
		return nil, b.failed("Snapshot", "take checkpoint of", errors.Join(b.d.snapshots.Explain(err), b.d.snapshots.Drop(s)))
	}
	return s, nil
}

// used is what the workspace takes on the host's disk, in bytes.
func used(b *box) int64 {
	var f unix.Statfs_t
	if b.d.o.User && b.spec.Workspace != "" {
		return b.kept.About().Used
	}
	if unix.Statfs(b.path("work"), &f) != nil {
		return 0 // the copy says what is wrong
	}
	return int64(f.Blocks-f.Bfree) * f.Bsize
}

// copyStill copies the workspace while all processes of the box stand still. mu is
// held.
func copyStill(ctx context.Context, b *box, s *snapshot.Stored) (err error) {
	if err := syncAll(b.path("work")); err != nil { // what is written now need not be while it stands still
		return err
	}
	if !b.paused {
		if err := b.Life.Move(sandbox.Suspending, "being copied", sandbox.ByCaller); err != nil {
			return err
		}
		b.Host.Hold("the box is being copied")
		stopped := time.Now()
		defer func() {
			err = errors.Join(err, b.d.groups.Freeze(string(b.spec.ID), false))
			s.Paused = time.Since(stopped)
			err = errors.Join(err, b.GoOn("its workspace was copied", sandbox.ByDriver))
		}()
		if err := b.d.groups.Freeze(string(b.spec.ID), true); err != nil {
			return err
		}
		if err := syncAll(b.path("work")); err != nil {
			return err
		}
	}
	switch {
	case b.d.o.User || b.project != 0:
		return b.d.snapshots.CopyTree(ctx, b.path("work"), s.Path(snapshot.Tree))
	case b.kept != nil:
		return snapshot.Copy(b.kept.Image, s.Path(snapshot.Image))
	}
	return snapshot.Copy(b.path("work.img"), s.Path(snapshot.Image))
}

// syncAll writes what the file system at dir still has in memory.
func syncAll(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(unix.Syncfs(int(f.Fd())), f.Close())
}

// find finds a box for a comparison of workspaces.
func (d *Driver) find(ctx context.Context, id cofferdam.BoxID) (cofferdam.Scope, snapshot.Taker, error) {
	found, err := d.Open(ctx, id)
	if err != nil {
		return cofferdam.Scope{}, nil, err
	}
	b := found.(*box)
	return b.spec.Scope, func(ctx context.Context, t sandbox.Take) (*snapshot.Stored, error) { return takeOf(ctx, b, t) }, nil
}

// RestoreWorkspace puts a kept workspace back.
func (d *Driver) RestoreWorkspace(ctx context.Context, r sandbox.Restore) error {
	return d.snapshots.Restore(ctx, r, func(s *snapshot.Stored) error {
		return d.keeps.Replace(ctx, r.Workspace, r.Epoch, s.Size, func(path string, size int64) error {
			if d.o.User {
				return errors.Join(volume.MakeFolder(ctx, path, size), d.snapshots.CopyTree(ctx, s.Path(snapshot.Tree), path))
			}
			return snapshot.Copy(s.Path(snapshot.Image), path)
		})
	})
}
