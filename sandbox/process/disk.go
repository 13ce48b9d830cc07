package process

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"cofferdam"
	"cofferdam/sandbox"
	"cofferdam/sandbox/disk"
	"cofferdam/sandbox/quota"
)

// How the size of a workspace is held, as Status says it among the flags.
const (
	sizedByQuota = "workspace=project-quota"
	sizedByImage = "workspace=image"
)

// findMkfs looks where it is installed; a service's PATH often lacks sbin.
func findMkfs() (string, error) {
	for _, dir := range []string{"/usr/sbin/", "/sbin/", "/usr/local/sbin/", "/usr/bin/"} {
		if executable(dir+"mkfs.ext4") == nil {
			return dir + "mkfs.ext4", nil
		}
	}
	return "", errors.New("there is no program mkfs.ext4")
}

// bytesPerInode is how much of a workspace there is for each file in it.
func bytesPerInode(size int64) int64 {
	if size < 512<<20 {
		return 4 << 10
	}
	return 16 << 10
}

// makeWorkspace makes a workspace that cannot grow beyond its size: by project
// quota where the file system of the state folder has it, else as an image.
func (b *box) makeWorkspace(ctx context.Context) (err error) {
	dir, size := b.path("work"), b.spec.Limits.Disk
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if b.spec.Workspace != "" {
		if b.kept, err = b.d.keeps.Attach(ctx, disk.Of(b.spec), ""); err != nil {
			return err
		}
		if err := mountImage(b.kept.Image, dir); err != nil {
			return err
		}
		b.spec.Limits.Disk = b.kept.Size
		return disk.Empty(dir)
	}
	if quota.Enforced(b.dir) {
		if b.project, err = b.d.projects.Begin(dir, size, size/bytesPerInode(size)); err != nil {
			return err
		}
		return os.Chown(dir, sandbox.UserID, sandbox.UserID)
	}
	image := b.path("work.img")
	if err := makeImage(ctx, image, size); err != nil {
		return err
	}
	if err := mountImage(image, dir); err != nil {
		return err
	}
	return os.Remove(filepath.Join(dir, "lost+found")) // a workspace starts empty
}

// workspaceError makes err one that a person can read.
func workspaceError(err error) error {
	var known *cofferdam.Error
	if errors.As(err, &known) {
		return err
	}
	return missing(opCreate, layerDisk, err)
}

// makeImage makes a sparse image with an empty file system: no journal, since a
// workspace does not outlive its box; all of it belongs to the box's user.
func makeImage(ctx context.Context, path string, size int64) error {
	program, err := findMkfs()
	if err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	if err := errors.Join(f.Truncate(size), f.Close()); err != nil {
		return err
	}
	owner := fmt.Sprintf("root_owner=%d:%d", sandbox.UserID, sandbox.UserID)
	cmd := exec.CommandContext(ctx, program, "-q", "-F", "-m", "0", "-i", fmt.Sprint(bytesPerInode(size)), "-O", "^has_journal,^resize_inode",
		"-E", "lazy_itable_init=1,nodiscard,"+owner, path)
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("mkfs.ext4: %w: %s", err, bytes.TrimSpace(out))
	}
	return nil
}

// mountImage mounts an image at dir. The loop device goes when it is unmounted.
func mountImage(image, dir string) error {
	back, err := os.OpenFile(image, os.O_RDWR|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer back.Close()
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("find loop device: %w", err)
	}
	defer control.Close()
	// Another process may take the free device first; 64 losses in a row mean
	// something else is wrong.
	for range 64 {
		n, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
		if err != nil {
			return fmt.Errorf("find loop device: %w", err)
		}
		loop, err := os.OpenFile(fmt.Sprintf("/dev/loop%d", n), os.O_RDWR, 0)
		if err != nil {
			return err
		}
		c := unix.LoopConfig{Fd: uint32(back.Fd())}
		c.Info.Flags = unix.LO_FLAGS_AUTOCLEAR
		err = unix.IoctlLoopConfigure(int(loop.Fd()), &c)
		if err == nil {
			// What a box deletes is given back to the host.
			err = unix.Mount(loop.Name(), dir, "ext4", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOATIME, "discard")
			return errors.Join(err, loop.Close())
		}
		if err := errors.Join(loop.Close()); err != nil {
			return err
		}
		if !errors.Is(err, unix.EBUSY) {
			return fmt.Errorf("attach loop device: %w", err)
		}
	}
	return errors.New("other programs take every free loop device")
}

// unmount takes the file system at dir away. Nothing uses it any more, but the
// kernel may need a moment to notice that a process ended.
func unmount(dir string) error {
	for i := range 20 {
		err := unix.Unmount(dir, unix.UMOUNT_NOFOLLOW)
		switch {
		case err == nil, errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOENT): // none there
			return nil
		case !errors.Is(err, unix.EBUSY):
			return &os.PathError{Op: "unmount", Path: dir, Err: err}
		}
		time.Sleep(time.Duration(i) * time.Millisecond)
	}
	if err := unix.Unmount(dir, unix.UMOUNT_NOFOLLOW|unix.MNT_DETACH); err != nil {
		return &os.PathError{Op: "detach", Path: dir, Err: err}
	}
	return nil
}

// mountsUnder lists the mounts below folder, the latest first.
func mountsUnder(folder string) ([]string, error) {
	data, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	var found []string
	for line := range strings.Lines(string(data)) {
		if f := strings.Fields(line); len(f) > 4 {
			dir := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(f[4])
			if dir != folder && sandbox.Within(folder, dir) {
				found = append([]string{dir}, found...)
			}
		}
	}
	return found, nil
}

// space says what is left on the file system of dir, in bytes, and whether it
// is full: without a free block or without a free inode.
func space(dir string) (free int64, full bool) {
	var st unix.Statfs_t
	if unix.Statfs(dir, &st) != nil {
		return 0, false // it is gone
	}
	free = int64(st.Bavail) * st.Bsize
	// The last of it does not count: ext4 keeps some for itself.
	return free, free < 1<<20 || st.Bavail <= st.Blocks/500 || st.Ffree == 0 && st.Files > 0
}
