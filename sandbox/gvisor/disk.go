package gvisor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"time"

	"cofferdam/sandbox"

	"golang.org/x/sys/unix"
)

// mkfsProgram makes the file systems of boxes. Its options: no journal, since
// a workspace does not outlive its box; tables are initialised when used; the
// whole of it belongs to the user of the box.
const mkfsProgram = "mkfs.ext4"

// findMkfs looks where it is installed; a service's PATH often lacks sbin.
func findMkfs() (string, error) {
	for _, dir := range []string{"/usr/sbin/", "/sbin/", "/usr/local/sbin/", "/usr/bin/"} {
		if executable(dir+mkfsProgram) == nil {
			return dir + mkfsProgram, nil
		}
	}
	return "", fmt.Errorf("there is no program %s", mkfsProgram)
}

// How the size of a workspace is held, as Status says it among the flags.
const (
	sizedByQuota = "workspace=project-quota"
	sizedByImage = "workspace=image"
)

// bytesPerInode is how much of a workspace there is for each file in it: what
// mkfs.ext4 chooses, so that a small workspace is not out of files first.
func bytesPerInode(size int64) int64 {
	if size < 512<<20 {
		return 4 << 10
	}
	return 16 << 10
}

// inodes is how many files and folders a workspace may have.
func inodes(size int64) int64 { return size / bytesPerInode(size) }

func mkfsArgs(path string, size int64) []string {
	owner := fmt.Sprintf("root_owner=%d:%d", sandbox.UserID, sandbox.UserID)
	return []string{
		"-q", "-F", "-m", "0", "-i", fmt.Sprint(bytesPerInode(size)), "-O", "^has_journal,^resize_inode",
		"-E", "lazy_itable_init=1,nodiscard," + owner, path,
	}
}

// makeImage makes a sparse image with an empty file system of the given size.
func makeImage(ctx context.Context, path string, size int64) (err error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(path))
		}
	}()
	err = errors.Join(f.Truncate(size), f.Close())
	if err != nil {
		return err
	}
	program, err := findMkfs()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, program, mkfsArgs(path, size)...)
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := start(cmd); err != nil {
		return fmt.Errorf("starting %s: %w", mkfsProgram, err)
	}
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("%s: %w: %s", mkfsProgram, err, bytes.TrimSpace(out.Bytes()))
	}
	return nil
}

// mountImage mounts an image at dir. The loop device goes when it is unmounted.
func mountImage(image, dir string, readonly bool) error {
	loop, err := attachLoop(image, readonly)
	if err != nil {
		return fmt.Errorf("attaching loop device: %w", err)
	}
	defer loop.Close()
	flags := uintptr(unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOATIME)
	data := "discard" // what a box deletes is given back to the host
	if readonly {
		flags, data = flags|unix.MS_RDONLY, ""
	}
	if err := unix.Mount(loop.Name(), dir, "ext4", flags, data); err != nil {
		return fmt.Errorf("mounting %s: %w", image, err)
	}
	return nil
}

// attachLoop opens a free loop device with image behind it.
func attachLoop(image string, readonly bool) (*os.File, error) {
	mode, flags := os.O_RDWR, uint32(unix.LO_FLAGS_AUTOCLEAR)
	if readonly {
		mode, flags = os.O_RDONLY, flags|unix.LO_FLAGS_READ_ONLY
	}
	back, err := os.OpenFile(image, mode|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	defer back.Close()
	// Another process may take the free device first; 64 losses in a row mean
	// something else is wrong.
	for range 64 {
		n, err := freeLoop()
		if err != nil {
			return nil, err
		}
		loop, err := os.OpenFile(fmt.Sprintf("/dev/loop%d", n), mode, 0)
		if err != nil {
			return nil, err
		}
		err = configureLoop(loop, back, flags)
		if err == nil {
			return loop, nil
		}
		if err := errors.Join(loop.Close()); err != nil {
			return nil, err
		}
		if !errors.Is(err, unix.EBUSY) {
			return nil, err
		}
	}
	return nil, errors.New("other programs take every free device")
}

// freeLoop returns the number of a loop device that nobody uses now.
func freeLoop() (int, error) {
	ctl, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		return 0, err
	}
	defer ctl.Close()
	n, err := unix.IoctlRetInt(int(ctl.Fd()), unix.LOOP_CTL_GET_FREE)
	if err != nil {
		return 0, fmt.Errorf("finding free device: %w", err)
	}
	return n, nil
}

// configureLoop puts back behind loop. Direct input and output keeps the data
// from being cached twice; some file systems cannot do it.
func configureLoop(loop, back *os.File, flags uint32) error {
	var err error
	for _, direct := range []uint32{unix.LO_FLAGS_DIRECT_IO, 0} {
		c := unix.LoopConfig{Fd: uint32(back.Fd())}
		c.Info.Flags = flags | direct
		if err = unix.IoctlLoopConfigure(int(loop.Fd()), &c); !errors.Is(err, unix.EINVAL) {
			return err
		}
	}
	return err
}

// mountFolder mounts a folder on itself, with the flags that an image has: what
// is in it can then be linked or renamed to nowhere else.
func mountFolder(dir string) error {
	if err := unix.Mount(dir, dir, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("binding %s: %w", dir, err)
	}
	flags := uintptr(unix.MS_BIND | unix.MS_REMOUNT | unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOATIME)
	if err := unix.Mount("", dir, "", flags, ""); err != nil {
		return fmt.Errorf("restricting %s: %w", dir, err)
	}
	return nil
}

// unmount takes the file system at dir away. Nothing uses it any more, but the
// kernel may need a moment to notice that a process ended.
func unmount(dir string) error {
	const tries = 20
	for i := range tries {
		err := unix.Unmount(dir, unix.UMOUNT_NOFOLLOW)
		switch {
		case err == nil, errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOENT): // none there
			return nil
		case !errors.Is(err, unix.EBUSY):
			return &os.PathError{Op: "unmounting", Path: dir, Err: err}
		}
		time.Sleep(time.Duration(i) * time.Millisecond)
	}
	if err := unix.Unmount(dir, unix.UMOUNT_NOFOLLOW|unix.MNT_DETACH); err != nil {
		return &os.PathError{Op: "detaching", Path: dir, Err: err}
	}
	return nil
}

// space says what is left on the file system of dir, and whether it is full:
// without a free block or without a free inode.
func space(dir string) (free int64, full bool, err error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, false, &os.PathError{Op: "looking at", Path: dir, Err: err}
	}
	free = int64(st.Bavail) * st.Bsize
	// The last of it does not count: ext4 keeps some for itself, and a
	// file that grows by whole buffers stops short of the rest.
	return free, free < 1<<20 || st.Bavail <= st.Blocks/500 || st.Ffree == 0 && st.Files > 0, nil
}

// isFull says whether the file system of dir is full; one that is gone is not.
func isFull(dir string) bool {
	_, full, err := space(dir)
	return full && err == nil
}

// flush puts an image on the disk of the host, so that it survives a loss of
// power: it is used again, and has no journal.
func flush(image string) error {
	f, err := os.OpenFile(image, os.O_RDWR, 0)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
