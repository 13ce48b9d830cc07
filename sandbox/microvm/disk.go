package microvm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
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

// extents calls fn with every piece of a file that holds data; holes are left out.
func extents(f *os.File, fn func(at int64, p []byte) error) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	fd, buf := int(f.Fd()), make([]byte, 1<<20)
	for at := int64(0); at < info.Size(); {
		begin, err := unix.Seek(fd, at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			return nil // nothing but a hole is left
		}
		if err != nil {
			return err
		}
		end, err := unix.Seek(fd, begin, unix.SEEK_HOLE)
		if err != nil {
			return err
		}
		for at = begin; at < end; {
			n, err := unix.Pread(fd, buf[:min(int64(len(buf)), end-at)], at)
			if err == nil && n == 0 {
				err = io.ErrUnexpectedEOF
			}
			if err == nil {
				err = fn(at, buf[:n])
			}
			if err != nil {
				return fmt.Errorf("copying %s at %d: %w", f.Name(), at, err)
			}
			at += int64(n)
		}
	}
	return nil
}

// copyFile copies a file under a new name and leaves its holes, or has the file
// system share its blocks where that can.
func copyFile(from, to string) (err error) {
	src, err := os.Open(from)
	if err != nil {
		return err
	}
	defer src.Close()
	dst, err := os.OpenFile(to, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dst.Close()) }()
	if unix.IoctlFileClone(int(dst.Fd()), int(src.Fd())) == nil {
		return nil
	}
	info, err := src.Stat()
	if err != nil {
		return err
	}
	if err := dst.Truncate(info.Size()); err != nil {
		return err
	}
	return extents(src, func(at int64, p []byte) error {
		_, err := dst.WriteAt(p, at)
		return err
	})
}

// hashSparse writes a file's data to h, with where each block of it lies. A
// block of zeros counts like a hole: a copy may have one for the other.
func hashSparse(h io.Writer, name, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	fmt.Fprintf(h, "%q %d\n", name, info.Size())
	var zeros [pageSize]byte
	return extents(f, func(at int64, p []byte) error {
		for len(p) > 0 {
			block := p[:min(len(p), pageSize-int(at%pageSize))]
			if !bytes.Equal(block, zeros[:len(block)]) {
				fmt.Fprintf(h, "%d ", at)
				_, _ = h.Write(block) // a hash takes everything
			}
			at, p = at+int64(len(block)), p[len(block):]
		}
		return nil
	})
}

// pageSize is the unit in which holes are counted.
const pageSize = 4096

// blocks is what a file takes on disk.
func blocks(path string) (int64, error) {
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return 0, &os.PathError{Op: "looking at", Path: path, Err: err}
	}
	return st.Blocks * 512, nil
}
