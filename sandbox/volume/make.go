package volume

import (
	"context"
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"cofferdam/sandbox/mount"
)

// Make makes a sparse image with an empty file system at path, which belongs to
// the user of boxes. It has a journal, which a workspace that dies with its box
// has not: this one is mounted again after whatever happened.
func Make(ctx context.Context, path string, size int64) error {
	return mount.Make(ctx, path, size, true)
}

// flush writes what the file system at dir has in memory, and says whether all of
// it, also what was written before, came to the image.
func flush(dir string) error {
	f, err := os.Open(dir)
	if errors.Is(err, os.ErrNotExist) { // an earlier call came further
		return nil
	}
	if err != nil {
		return err
	}
	return errors.Join(unix.Syncfs(int(f.Fd())), f.Close())
}

// Leave ends the use of the file system at dir, where the image of h is mounted:
// all of it is written, it is unmounted, and h is released. An error leaves the
// workspace held, and Leave can be called again.
func (h *Hold) Leave(dir string) error {
	err := flush(dir)
	if err == nil {
		err = unmount(dir)
	}
	return h.Release(err)
}

// unmountPatience is how long the kernel may take to notice that the last process
// of a box has ended.
const unmountPatience = 5 * time.Second

// unmount takes the file system at dir away and fails while somebody uses it: one
// that is only detached could be mounted twice.
func unmount(dir string) error {
	for end := time.Now().Add(unmountPatience); ; time.Sleep(5 * time.Millisecond) {
		err := unix.Unmount(dir, unix.UMOUNT_NOFOLLOW)
		switch {
		case err == nil, errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOENT): // none there
			return nil
		case !errors.Is(err, unix.EBUSY), time.Now().After(end):
			return &os.PathError{Op: "unmount", Path: dir, Err: err}
		}
	}
}

// Empty removes what mkfs puts into a file system: a workspace starts empty. What
// somebody has put in its place, or e2fsck into it, stays.
func Empty(dir string) error {
	path := dir + "/lost+found"
	err := unix.Rmdir(path)
	if err == nil || errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTEMPTY) || errors.Is(err, unix.ENOTDIR) {
		return nil
	}
	return &os.PathError{Op: "remove", Path: path, Err: err}
}
