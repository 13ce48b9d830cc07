package gvisor

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"os/exec"

	"golang.org/x/sys/unix"
)

// copySparse copies a file of ours: as a clone that shares the blocks where the
// file system can do that, else the parts that hold something.
func copySparse(from, to string) (err error) {
	src, err := os.OpenFile(from, os.O_RDONLY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer src.Close()
	dst, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o600)
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
	return eachData(src, info.Size(), func(off, end int64) error {
		if _, err := dst.Seek(off, io.SeekStart); err != nil {
			return err
		}
		_, err := io.Copy(dst, io.NewSectionReader(src, off, end-off))
		return err
	})
}

// eachData calls fn with each part of f that is not a hole.
func eachData(f *os.File, size int64, fn func(off, end int64) error) error {
	for at := int64(0); at < size; {
		off, err := unix.Seek(int(f.Fd()), at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) { // no more
			return nil
		}
		if err != nil {
			return err
		}
		end, err := unix.Seek(int(f.Fd()), off, unix.SEEK_HOLE)
		if err != nil {
			return err
		}
		if err := fn(off, end); err != nil {
			return err
		}
		at = end
	}
	return nil
}

// hashChunk is the unit in which what is zero does not count.
const hashChunk = 64 << 10

// hashSparse adds a file's size and all of it that is not zero to h: the same
// for a file and its copy, wherever their holes are.
func hashSparse(h hash.Hash, path string) error {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	fmt.Fprintf(h, "%d\n", info.Size())
	zero, buf, next := make([]byte, hashChunk), make([]byte, hashChunk), int64(0)
	return eachData(f, info.Size(), func(off, end int64) error {
		for at := max(next, off-off%hashChunk); at < end; at += hashChunk {
			n, err := f.ReadAt(buf, at)
			if err != nil && !errors.Is(err, io.EOF) {
				return err
			}
			next = at + hashChunk
			if bytes.Equal(buf[:n], zero[:n]) {
				continue
			}
			h.Write(binary.BigEndian.AppendUint64(nil, uint64(at)))
			h.Write(buf[:n])
		}
		return nil
	})
}

// copyTree copies what is in a folder, whatever it is: names, links, holes,
// owners, times and attributes. Nothing in it is followed.
func copyTree(ctx context.Context, from, to string) error {
	cmd := exec.CommandContext(ctx, "/usr/bin/cp", "-a", "--reflink=auto", "--sparse=auto", "--", from+"/.", to)
	cmd.Env = []string{"PATH=/usr/bin:/bin", "LC_ALL=C.UTF-8"}
	var out bytes.Buffer
	cmd.Stderr = &out
	if err := start(cmd); err != nil {
		return err
	}
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("copying folder: %w: %.300s", err, bytes.TrimSpace(out.Bytes()))
	}
	return nil
}

// hashTree adds all that is in a folder to h, as an archive of it has it.
func hashTree(ctx context.Context, h hash.Hash, dir string) error {
	cmd := exec.CommandContext(ctx, "/usr/bin/tar", "--create", "--sort=name", "--format=posix", "--numeric-owner", "--xattrs",
		"--pax-option=delete=atime,delete=ctime", "--directory="+dir, ".")
	cmd.Env = []string{"PATH=/usr/bin:/bin", "LC_ALL=C.UTF-8"}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = h, &out
	if err := start(cmd); err != nil {
		return err
	}
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("reading folder: %w: %.300s", err, bytes.TrimSpace(out.Bytes()))
	}
	return nil
}

// freeze makes the file system at dir write all it has and change nothing until
// the returned function is called.
func freeze(dir string) (thaw func() error, err error) {
	const fiFreeze, fiThaw = 0xC0045877, 0xC0045878 // linux/fs.h
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	if _, err := unix.IoctlRetInt(int(f.Fd()), fiFreeze); err != nil {
		return nil, errors.Join(fmt.Errorf("freezing workspace: %w", err), f.Close())
	}
	return func() error {
		_, err := unix.IoctlRetInt(int(f.Fd()), fiThaw)
		return errors.Join(err, f.Close())
	}, nil
}

// syncAll writes what the file system at dir still has in memory.
func syncAll(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(unix.Syncfs(int(f.Fd())), f.Close())
}
