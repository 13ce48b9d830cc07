package microvm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"

	"golang.org/x/sys/unix"

	"cofferdam/sandbox"
)

// Programs that this driver runs, with the package that has each.
const (
	mkfsExt4  = "mkfs.ext4"
	mkfsErofs = "mkfs.erofs"
)

// findProgram looks where programs are installed; a service's PATH often lacks sbin.
func findProgram(name string) (string, error) {
	for _, dir := range []string{"/usr/sbin/", "/usr/bin/", "/usr/local/sbin/", "/usr/local/bin/"} {
		if info, err := os.Stat(dir + name); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return dir + name, nil
		}
	}
	return "", fmt.Errorf("there is no program %s", name)
}

// bytesPerInode is how much of a workspace there is for each file in it, as in
// boxes of the other tiers.
func bytesPerInode(size int64) int64 {
	if size < 512<<20 {
		return 4 << 10
	}
	return 16 << 10
}

// makeDisk makes a sparse image with an empty ext4 of the given size, which
// belongs to the user of boxes. It has no journal: a workspace does not outlive
// its box without a snapshot, which is taken of a disk at rest.
func makeDisk(ctx context.Context, path string, size int64) (err error) {
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
	program, err := findProgram(mkfsExt4)
	if err != nil {
		return err
	}
	owner := fmt.Sprintf("lazy_itable_init=1,nodiscard,root_owner=%d:%d", sandbox.UserID, sandbox.UserID)
	return run(ctx, program, "-q", "-F", "-m", "0", "-i", fmt.Sprint(bytesPerInode(size)), "-O", "^has_journal,^resize_inode", "-E", owner, path)
}

// run runs a program to its end; what it printed is in the error.
func run(ctx context.Context, program string, args ...string) error {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w: %.300s", program, err, bytes.TrimSpace(out.Bytes()))
	}
	return nil
}

// space is how many bytes are free where dir lies.
func space(dir string) (int64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, &os.PathError{Op: "looking at", Path: dir, Err: err}
	}
	return int64(st.Bavail) * st.Bsize, nil
}
