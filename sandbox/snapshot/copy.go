package snapshot

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"

	"golang.org/x/sys/unix"

	"cofferdam"
)

// Tree is the one folder of a snapshot that may hold anything: a workspace that
// is no image. Everywhere else there are files alone.
const Tree = "work"

// Image is a workspace that is an image of a file system.
const Image = "work.img"

// digest is of all that a snapshot is: its description and its files.
func (s *Stored) digest(ctx context.Context) (cofferdam.Digest, error) {
	plain := *s
	plain.Digest = ""
	data, err := json.Marshal(plain)
	if err != nil {
		return "", err
	}
	h := sha256.New()
	h.Write(data)
	err = filepath.WalkDir(s.dir, func(path string, e fs.DirEntry, err error) error { // in order of their names
		switch {
		case err != nil:
			return err
		case path == s.Path(Tree) && e.IsDir():
			fmt.Fprintf(h, "%q\n", path[len(s.dir):])
			if err := hashTree(ctx, h, path); err != nil {
				return err
			}
			return fs.SkipDir
		case e.IsDir(), isSaid(path[len(s.dir)+1:]):
			return ctx.Err()
		}
		fmt.Fprintf(h, "%q\n", path[len(s.dir):])
		return hashSparse(h, path)
	})
	if err != nil {
		return "", err
	}
	return cofferdam.DigestOfSum([32]byte(h.Sum(nil))), nil
}

// Copy copies a file of ours to one that is not there yet.
func Copy(from, to string) error { return copyTo(from, to, unix.O_CREAT|unix.O_EXCL) }

// Fill is Copy to a file that is there, and empty.
func Fill(from, to string) error { return copyTo(from, to, 0) }

// copyTo copies as a clone that shares the blocks where the file system can do
// that, else the parts that hold something.
func copyTo(from, to string, flags int) (err error) {
	src, err := os.OpenFile(from, os.O_RDONLY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer src.Close()
	dst, err := os.OpenFile(to, os.O_WRONLY|unix.O_NOFOLLOW|flags, 0o600)
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
		_, err := io.Copy(io.NewOffsetWriter(dst, off), io.NewSectionReader(src, off, end-off))
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
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s is not a file", path)
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

// CopyTree copies what is in a folder, whatever it is: names, links, holes,
// owners, times and attributes. Nothing in it is followed.
func (st *Store) CopyTree(ctx context.Context, from, to string) error {
	if err := st.run(ctx, "/usr/bin/cp", "-a", "--reflink=auto", "--sparse=auto", "--", from+"/.", to); err != nil {
		return fmt.Errorf("copying folder: %w", err)
	}
	return nil
}

// run runs a program to its end; what it says of its failure is in the error.
func (st *Store) run(ctx context.Context, program string, args ...string) error {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = []string{"PATH=/usr/bin:/bin", "LC_ALL=C.UTF-8"}
	var said bytes.Buffer
	cmd.Stderr = &said
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%w: %.300s", err, bytes.TrimSpace(said.Bytes()))
	}
	return nil
}

// Touched names a file, or all files of a folder, as they are: what is written
// to one of them changes a time that only the kernel sets.
func Touched(path string) (string, error) {
	return touched(path, func(string) bool { return false })
}

// stampOf is the same for the files of a snapshot but what is said of it, whatever
// the snapshot's folder is called.
func stampOf(dir string) (string, error) {
	return touched(dir, func(name string) bool { return name == "." || isSaid(name) })
}

// whole is the stamp of a snapshot's files together with what its description says.
func whole(files string, said []byte) string { return fmt.Sprintf("%s %x", files, sha256.Sum256(said)) }

// touched leaves out what skip says; names are those below path.
func touched(path string, skip func(name string) bool) (string, error) {
	h := sha256.New()
	err := filepath.WalkDir(path, func(name string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		below, err := filepath.Rel(path, name)
		if err != nil || skip(below) {
			return err
		}
		var st unix.Stat_t
		if err := unix.Lstat(name, &st); err != nil {
			return &fs.PathError{Op: "looking at", Path: name, Err: err}
		}
		fmt.Fprintf(h, "%q %d %d %o %d %d %d\n", below, st.Dev, st.Ino, st.Mode, st.Size, st.Ctim.Nano(), st.Mtim.Nano())
		return nil
	})
	return hex.EncodeToString(h.Sum(nil)), err
}

// Blocks is what a file takes on disk, in bytes.
func Blocks(path string) (int64, error) {
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return 0, &os.PathError{Op: "looking at", Path: path, Err: err}
	}
	return st.Blocks * 512, nil
}
