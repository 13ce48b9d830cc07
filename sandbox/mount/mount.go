// Package mount makes file systems of a real size for boxes, and puts them in
// their place and away again.
//
// It knows nothing of boxes: its callers say which image goes where. The
// invariant: an image is mounted without set-user-id programs and devices, and
// what Unmount has returned for is gone from this mount namespace.
package mount

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"cofferdam/sandbox"
)

// FindProgram looks where programs are installed; a service's PATH often lacks
// sbin.
func FindProgram(name string) (string, error) {
	for _, dir := range []string{"/usr/sbin/", "/sbin/", "/usr/local/sbin/", "/usr/bin/", "/usr/local/bin/"} {
		if info, err := os.Stat(dir + name); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return dir + name, nil
		}
	}
	return "", fmt.Errorf("there is no program %s", name)
}

// Mkfs makes the file systems; e2fsprogs has it.
const Mkfs = "mkfs.ext4"

// BytesPerInode is how much of a workspace there is for each file in it: what
// mkfs.ext4 chooses, so that a small workspace is not out of files first.
func BytesPerInode(size int64) int64 {
	if size < 512<<20 {
		return 4 << 10
	}
	return 16 << 10
}

// Make makes a sparse image with an empty file system of a size in bytes, which
// belongs to the user of boxes. Without a journal it is for what does not outlive
// its box. After an error nothing is left.
func Make(ctx context.Context, path string, size int64, journal bool) (err error) {
	program, err := FindProgram(Mkfs)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(path))
		}
	}()
	if err := errors.Join(f.Truncate(size), f.Close()); err != nil {
		return err
	}
	features, extended := "^has_journal,^resize_inode", "lazy_itable_init=1,nodiscard"
	if journal {
		features, extended = "has_journal,^resize_inode", "lazy_itable_init=1,lazy_journal_init=1,nodiscard"
	}
	owner := fmt.Sprintf(",root_owner=%d:%d", sandbox.UserID, sandbox.UserID)
	cmd := exec.CommandContext(ctx, program, "-q", "-F", "-m", "0", "-i", fmt.Sprint(BytesPerInode(size)), "-O", features, "-E", extended+owner, path)
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w: %.300s", Mkfs, err, bytes.TrimSpace(out.Bytes()))
	}
	return nil
}

// Image mounts an image at dir. The loop device goes when it is unmounted.
func Image(image, dir string, readonly bool) error {
	loop, err := AttachLoop(image, readonly)
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

// AttachLoop opens a free loop device with image behind it.
func AttachLoop(image string, readonly bool) (*os.File, error) {
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
		n, err := FreeLoop()
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

// FreeLoop returns the number of a loop device that nobody uses now.
func FreeLoop() (int, error) {
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

// Folder mounts a folder on itself, with the flags that an image has: what is in
// it can then be linked or renamed to nowhere else.
func Folder(dir string) error { return Bind(dir, dir, false) }

// Bind mounts a folder at dir, with the flags that an image has. After an error
// nothing is mounted.
func Bind(folder, dir string, readonly bool) error {
	if err := unix.Mount(folder, dir, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("binding %s: %w", folder, err)
	}
	flags := uintptr(unix.MS_BIND | unix.MS_REMOUNT | unix.MS_NOSUID | unix.MS_NODEV)
	if readonly {
		flags |= unix.MS_RDONLY
	}
	err := unix.Mount("", dir, "", flags|unix.MS_NOATIME, "")
	if errors.Is(err, unix.EPERM) { // in a user namespace what the host's mount has of these stays as it is
		err = unix.Mount("", dir, "", flags|lockedFlags(dir), "")
	}
	if err != nil {
		return errors.Join(fmt.Errorf("restricting %s: %w", dir, err), Unmount(dir))
	}
	return nil
}

// lockedFlags are those of the mount at dir that a user namespace may not change.
func lockedFlags(dir string) (flags uintptr) {
	var st unix.Statfs_t
	if unix.Statfs(dir, &st) != nil {
		return 0
	}
	for _, f := range []struct{ has, flag uintptr }{
		{unix.ST_RDONLY, unix.MS_RDONLY},
		{unix.ST_NOEXEC, unix.MS_NOEXEC},
		{unix.ST_NOATIME, unix.MS_NOATIME},
		{unix.ST_NODIRATIME, unix.MS_NODIRATIME},
		{unix.ST_RELATIME, unix.MS_RELATIME},
	} {
		if uintptr(st.Flags)&f.has != 0 {
			flags |= f.flag
		}
	}
	return flags
}

// Memory mounts a tmpfs at dir that may take a part of the host's memory.
func Memory(dir string, percent int) error {
	options := fmt.Sprintf("mode=0700,size=%d%%", percent)
	if err := unix.Mount("cofferdam", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, options); err != nil {
		return fmt.Errorf("mounting tmpfs at %s: %w", dir, err)
	}
	return nil
}

// Unmount takes the file system at dir away, if there is one. Nothing uses it any
// more, but the kernel may need a moment to notice that a process ended.
func Unmount(dir string) error {
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

// Under lists the mounts below folder, the deepest and latest first.
func Under(folder string) ([]string, error) {
	data, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	var found []string
	for line := range strings.Lines(string(data)) {
		if f := strings.Fields(line); len(f) > 4 {
			if dir := unescape(f[4]); dir != folder && sandbox.Within(folder, dir) {
				found = append([]string{dir}, found...)
			}
		}
	}
	return found, nil
}

// unescape undoes the kernel's way of writing odd characters in mountinfo.
func unescape(s string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}

// Flush puts a file on the disk of the host, so that it survives a loss of
// power. One that is not there needs nothing.
func Flush(file string) error {
	f, err := os.OpenFile(file, os.O_RDWR, 0)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
