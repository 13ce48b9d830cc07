package process

import (
	"context"
	"errors"
	"os"

	"cofferdam"
	"cofferdam/sandbox"
	"cofferdam/sandbox/mount"
	"cofferdam/sandbox/quota"
	"cofferdam/sandbox/volume"
)

// makeWorkspace makes a workspace that cannot grow beyond its size: by project
// quota where the file system of the state folder has it, else as an image. One of an
// ordinary user that is kept can, and is watched.
func (b *box) makeWorkspace(ctx context.Context) (err error) {
	dir, size := b.path("work"), b.spec.Limits.Disk
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if b.spec.Workspace != "" {
		if b.kept, err = b.d.keeps.Attach(ctx, volume.Of(b.spec), ""); err != nil {
			return err
		}
		b.spec.Limits.Disk = b.kept.Size
		if b.d.o.User {
			b.guard()
			return mount.Bind(b.kept.Image, dir, false)
		}
		if err := mount.Image(b.kept.Image, dir, false); err != nil {
			return err
		}
		return volume.Empty(dir)
	}
	if b.d.o.User { // who can mount nothing else that has a size
		return mount.Sized(opCreate, b.path("work"), size)
	}
	if quota.Enforced(b.dir) {
		if b.project, err = b.d.projects.Begin(dir, size, size/mount.BytesPerInode(size)); err != nil {
			return err
		}
		return os.Chown(dir, sandbox.UserID, sandbox.UserID)
	}
	image := b.path("work.img")
	if err := mount.Make(ctx, image, size, false); err != nil {
		return err
	}
	if err := mount.Image(image, dir, false); err != nil {
		return err
	}
	return volume.Empty(dir)
}

// workspaceError makes err one that a person can read.
func workspaceError(err error) error {
	var known *cofferdam.Error
	if errors.As(err, &known) {
		return err
	}
	return missing(opCreate, layerDisk, err)
}
