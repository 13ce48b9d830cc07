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

// find finds a box for a comparison of workspaces.
func (d *Driver) find(ctx context.Context, id cofferdam.BoxID) (cofferdam.Scope, snapshot.Taker, error) {
	found, err := d.Open(ctx, id)
	if err != nil {
		return cofferdam.Scope{}, nil, err
	}
	b := found.(*box)
	return b.spec.Scope, func(ctx context.Context, t sandbox.Take) (*snapshot.Stored, error) {
		b.step.Lock()
		defer b.step.Unlock()
		return takeOf(ctx, b, t)
	}, nil
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
