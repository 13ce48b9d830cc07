package gvisor

import (
	"context"
	"errors"
	"os"

	"cofferdam"
	"cofferdam/sandbox"
	"cofferdam/sandbox/mount"
	"cofferdam/sandbox/snapshot"
	"cofferdam/sandbox/volume"
)

// Snapshots returns every snapshot that is whole.
func (d *Driver) Snapshots(ctx context.Context) ([]sandbox.Snapshot, error) {
	return d.snapshots.Snapshots(ctx)
}

// SignSnapshot keeps a note beside a snapshot.
func (d *Driver) SignSnapshot(ctx context.Context, id sandbox.SnapshotID, note []byte) error {
	return d.snapshots.SignSnapshot(ctx, id, note)
}

// RemoveSnapshot removes a snapshot. Boxes that were made from it go on.
func (d *Driver) RemoveSnapshot(_ context.Context, id sandbox.SnapshotID) error {
	return d.snapshots.Remove(id)
}

// Differences compares workspaces.
func (d *Driver) Differences(ctx context.Context, c sandbox.Compare) (sandbox.Differences, error) {
	return d.snapshots.Differences(ctx, c, func(ctx context.Context) (*snapshot.Stored, error) {
		found, err := d.Open(ctx, c.Box)
		if err != nil {
			return nil, err
		}
		b := found.(*box)
		if b.spec.Scope != c.Scope { // who is not told that it is there
			return nil, &cofferdam.Error{Op: "gvisor.Differences", Kind: cofferdam.NotFound, Subject: "box " + string(c.Box), Reason: "there is no such box"}
		}
		b.step.Lock()
		defer b.step.Unlock()
		return takeOf(ctx, b, sandbox.Take{ID: sandbox.SnapshotID(cofferdam.NewID("s"))})
	})
}

// RestoreWorkspace puts a kept workspace back.
func (d *Driver) RestoreWorkspace(ctx context.Context, r sandbox.Restore) error {
	return d.snapshots.Restore(ctx, r, func(s *snapshot.Stored) error {
		return d.keeps.Replace(ctx, r.Workspace, r.Epoch, s.Size, func(path string, size int64) error {
			if _, err := os.Lstat(s.Path(snapshot.Image)); err == nil {
				return snapshot.Copy(s.Path(snapshot.Image), path)
			}
			if d.o.User {
				return errors.Join(volume.MakeFolder(ctx, path, size), d.snapshots.CopyTree(ctx, s.Path(snapshot.Tree), path))
			}
			return d.fillImage(ctx, s.Path(snapshot.Tree), path, size)
		})
	})
}

// fillImage makes an image that holds what is in a folder.
func (d *Driver) fillImage(ctx context.Context, from, image string, size int64) (err error) {
	if err := d.templates.kept(ctx, image, size); err != nil {
		return err
	}
	dir, err := os.MkdirTemp(d.boxDir(""), "fill-") // what is mounted there by a keeper that is killed, the next one takes away
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.Remove(dir)) }()
	if err := mount.Image(image, dir, false); err != nil {
		return err
	}
	err = errors.Join(volume.Empty(dir), d.snapshots.CopyTree(ctx, from, dir), syncAll(dir))
	return errors.Join(err, mount.Unmount(dir))
}
