package gvisor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"cofferdam"
	"cofferdam/sandbox"
	"cofferdam/sandbox/mount"
	"cofferdam/sandbox/volume"
	"cofferdam/sandbox/watch"

	"golang.org/x/sys/unix"
)

// envFolder is an environment that is a folder of the host's, as Status says it
// among the flags: an ordinary user can mount no image.
const envFolder = "environment=folder"

// makeEnv mounts what a setup made, or makes it for one.
func makeEnv(ctx context.Context, b *box) error {
	path, setup := b.spec.Env, b.spec.SetupPhase
	switch {
	case path == "":
		return nil
	case b.d.o.User:
		return bindEnv(ctx, b)
	}
	if _, err := os.Lstat(path); setup && errors.Is(err, fs.ErrNotExist) {
		if err := makeImage(ctx, path, b.spec.Limits.Disk); err != nil {
			return missing("environment image", err.Error(), "install e2fsprogs; its folder must be writable", err)
		}
	}
	if err := b.mount(path, "env", setup); err != nil {
		return missing("environment image", err.Error(), "remove the image so that it is made again", err)
	}
	return nil
}

// bindEnv gives the box a folder as its environment. A setup has it alone, and what
// it holds is counted; others share it, and none of them can write. As long as a box
// has it, its files are not removed: see volume.Share.
func bindEnv(ctx context.Context, b *box) (err error) {
	path, setup, size := b.spec.Env, b.spec.SetupPhase, b.spec.Limits.Disk
	hold := volume.Share
	if setup {
		hold = volume.Alone
		if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
			if err := volume.MakeFolder(ctx, path, size); err != nil {
				return missing("environment folder", err.Error(), "the folder that it is in must be writable", err)
			}
		}
	}
	if b.env, err = hold(path); err != nil {
		if errors.Is(err, volume.ErrHeld) {
			return &cofferdam.Error{
				Op: "gvisor.Create", Kind: cofferdam.Conflict, Subject: "environment", Reason: "a setup writes to it, or a setup wants it that others have",
				Hint: "wait until that box is gone, or end it", Err: err,
			}
		}
		return missing("environment folder", err.Error(), "remove the environment so that it is made again", err)
	}
	if setup {
		used, err := watch.Measure(ctx, path, volume.Allowed(size))
		if err == nil {
			err = mount.Room("gvisor.Create", path, size-used.Bytes)
		}
		if err != nil {
			return sandbox.Wrap("gvisor.Create", "environment folder", "remove it so that it is made again", err)
		}
		b.folders = append(b.folders, watch.NewFolder(b.path("env"), volume.Allowed(size), used.Bytes, guards(b)))
	}
	// By what is held, not by its path, which may be another's by now.
	if err := mount.Bind(fmt.Sprintf("/proc/self/fd/%d", b.env.Fd()), b.path("env"), !setup); err != nil {
		return missing("environment folder", err.Error(), "the state folder must be on a local disk, and its file system one that user namespaces can bind", err)
	}
	return nil
}

// leaveEnv gives the environment up, once it is mounted no more; what a setup wrote
// is on the host's disk then.
func leaveEnv(b *box) error {
	switch {
	case !b.d.o.User && b.spec.SetupPhase:
		return mount.Flush(b.spec.Env)
	case b.env == nil:
		return nil
	}
	if b.spec.SetupPhase {
		if err := unix.Syncfs(int(b.env.Fd())); err != nil {
			return &os.PathError{Op: "writing to disk", Path: b.spec.Env, Err: err}
		}
	}
	err := b.env.Close()
	b.env = nil
	return err
}
