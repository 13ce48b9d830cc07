package local

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Bounds of a copy.
const (
	maxCopyDepth = 256 // folders in folders: each holds two descriptors
	maxCopyTries = 8   // an entry that another process swaps meanwhile
	maxXattr     = 64 << 10
	copyPiece    = 16 << 20 // bytes of a file between two looks whether somebody still waits
)

// errSwapped is an entry that was another kind of thing when it was opened.
var errSwapped = errors.New("it changes while it is copied")

// copier copies a folder with all below it: contents, holes, links, modes,
// times, owners as far as it may, and attributes. Whoever works in the folder
// meanwhile, as the command of another run may, can swap any part of it for a
// link to what only the caller can read. So nothing is opened by a path: each
// entry is opened in the open folder it is in, follows no link, and is judged by
// its descriptor.
type copier struct {
	ctx     context.Context
	root    int                  // of the copy
	linked  map[[2]uint64]string // files with more names than one, and where they are in the copy
	between func(path string)    // for tests: called when an entry was looked at and is not open yet
}

// copyFolder copies the folder from, a path without links, into to, which it makes.
func copyFolder(ctx context.Context, from, to string, between func(string)) error {
	src, err := unix.Openat2(unix.AT_FDCWD, from, &unix.OpenHow{Flags: unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS})
	if err != nil {
		return err
	}
	defer unix.Close(src)
	if err := os.Mkdir(to, 0o700); err != nil {
		return err
	}
	dst, err := unix.Open(to, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(dst)
	c := &copier{ctx: ctx, root: dst, linked: map[[2]uint64]string{}, between: between}
	return c.folder(src, dst, ".", 0)
}

// folder copies what is in an open folder into another one.
func (c *copier) folder(src, dst int, path string, depth int) error {
	if depth > maxCopyDepth {
		return &copyError{path, fmt.Errorf("more than %d folders deep", maxCopyDepth)}
	}
	var st unix.Stat_t
	if err := unix.Fstat(src, &st); err != nil {
		return err
	}
	names, err := namesIn(src)
	if err != nil {
		return &copyError{path, err}
	}
	for _, name := range names {
		if err := c.ctx.Err(); err != nil {
			return err
		}
		if err := c.entry(src, dst, name, filepath.Join(path, name), depth); err != nil {
			return err
		}
	}
	return describe(src, dst, &st)
}

// namesIn lists an open folder.
func namesIn(dir int) ([]string, error) {
	buf, names := make([]byte, 32<<10), []string(nil)
	for {
		n, err := unix.ReadDirent(dir, buf)
		if err != nil || n <= 0 {
			return names, err
		}
		_, _, names = unix.ParseDirent(buf[:n], -1, names)
	}
}

// entry copies one entry of an open folder. One that is gone meanwhile is none.
func (c *copier) entry(src, dst int, name, path string, depth int) error {
	for range maxCopyTries {
		var st unix.Stat_t
		err := unix.Fstatat(src, name, &st, unix.AT_SYMLINK_NOFOLLOW)
		if err == nil {
			if c.between != nil {
				c.between(path)
			}
			err = c.one(src, dst, name, path, depth, &st)
		}
		var below *copyError
		switch {
		case errors.As(err, &below), errors.Is(err, context.Canceled), err == nil:
			return err
		case errors.Is(err, unix.ENOENT):
			return nil
		case !errors.Is(err, errSwapped) && !errors.Is(err, unix.ELOOP) && !errors.Is(err, unix.ENOTDIR):
			return &copyError{path, err}
		}
	}
	return &copyError{path, errSwapped}
}

// copyError says which entry could not be copied.
type copyError struct {
	path string
	err  error
}

// Error implements error.
func (e *copyError) Error() string { return e.path + ": " + e.err.Error() }

// Unwrap returns the cause.
func (e *copyError) Unwrap() error { return e.err }

func (c *copier) one(src, dst int, name, path string, depth int, st *unix.Stat_t) error {
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		return c.below(src, dst, name, path, depth)
	case unix.S_IFREG:
		return c.file(src, dst, name, path)
	case unix.S_IFLNK:
		target := make([]byte, unix.PathMax)
		n, err := unix.Readlinkat(src, name, target)
		if errors.Is(err, unix.EINVAL) {
			return errSwapped
		}
		if err == nil {
			err = unix.Symlinkat(string(target[:n]), dst, name)
		}
		if err != nil {
			return err
		}
		own(st, func(uid, gid int) error { return unix.Fchownat(dst, name, uid, gid, unix.AT_SYMLINK_NOFOLLOW) })
		return unix.UtimesNanoAt(dst, name, []unix.Timespec{st.Atim, st.Mtim}, unix.AT_SYMLINK_NOFOLLOW)
	}
	// A pipe, a socket that nobody listens at, or a device, which no box opens.
	if err := unix.Mknodat(dst, name, st.Mode, int(st.Rdev)); err != nil {
		return err
	}
	own(st, func(uid, gid int) error { return unix.Fchownat(dst, name, uid, gid, unix.AT_SYMLINK_NOFOLLOW) })
	return unix.UtimesNanoAt(dst, name, []unix.Timespec{st.Atim, st.Mtim}, unix.AT_SYMLINK_NOFOLLOW)
}

// below copies a folder in a folder.
func (c *copier) below(src, dst int, name, path string, depth int) error {
	const flags = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC
	from, err := unix.Openat(src, name, flags, 0)
	if err != nil {
		return err
	}
	defer unix.Close(from)
	if err := unix.Mkdirat(dst, name, 0o700); err != nil {
		return err
	}
	to, err := unix.Openat(dst, name, flags, 0)
	if err != nil {
		return err
	}
	defer unix.Close(to)
	return c.folder(from, to, path, depth+1)
}

// file copies a file, or links it to the copy of another name that it has.
func (c *copier) file(src, dst int, name, path string) error {
	// A pipe in its place would make this wait for ever.
	fd, err := unix.Openat(src, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENXIO) { // a socket by now
		return errSwapped
	}
	if err != nil {
		return err
	}
	from := os.NewFile(uintptr(fd), path)
	defer from.Close()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return errSwapped
	}
	key := [2]uint64{uint64(st.Dev), st.Ino}
	if first, ok := c.linked[key]; ok && st.Nlink > 1 {
		return unix.Linkat(c.root, first, dst, name, 0)
	}
	fd, err = unix.Openat(dst, name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	to := os.NewFile(uintptr(fd), path)
	err = errors.Join(c.fill(from, to, st.Size), describe(int(from.Fd()), fd, &st))
	if st.Nlink > 1 {
		c.linked[key] = path
	}
	return errors.Join(err, to.Close())
}

// fill copies contents: shared until one of them is written where the file
// system can, else without what is only a hole.
func (c *copier) fill(from, to *os.File, size int64) error {
	if unix.IoctlFileClone(int(to.Fd()), int(from.Fd())) == nil {
		return nil
	}
	for at := int64(0); at < size; {
		if err := c.ctx.Err(); err != nil {
			return err
		}
		data, err := from.Seek(at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) { // nothing but a hole is left
			break
		}
		if err != nil {
			return err
		}
		hole, err := from.Seek(data, unix.SEEK_HOLE)
		if err != nil {
			return err
		}
		hole = min(hole, size, data+copyPiece)
		if _, err = from.Seek(data, io.SeekStart); err == nil {
			_, err = to.Seek(data, io.SeekStart)
		}
		if err == nil {
			_, err = io.CopyN(to, from, hole-data)
		}
		if errors.Is(err, io.EOF) { // it was cut meanwhile
			break
		}
		if err != nil {
			return err
		}
		at = hole
	}
	return to.Truncate(size)
}

// describe gives to, a file or folder, the attributes, owner, mode and times of from.
func describe(from, to int, st *unix.Stat_t) error {
	names := make([]byte, maxXattr)
	n, err := unix.Flistxattr(from, names)
	if err != nil {
		n = 0 // the file system has none
	}
	for name := range strings.SplitSeq(string(names[:n]), "\x00") {
		if !strings.HasPrefix(name, "user.") && !strings.HasPrefix(name, "system.posix_acl_") {
			continue
		}
		value := make([]byte, maxXattr)
		if n, err := unix.Fgetxattr(from, name, value); err == nil {
			_ = unix.Fsetxattr(to, name, value[:n], 0) // the copy's file system may have none
		}
	}
	own(st, func(uid, gid int) error { return unix.Fchown(to, uid, gid) })
	if err := unix.Fchmod(to, st.Mode&0o7777); err != nil {
		return err
	}
	return unix.UtimesNanoAt(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", to), []unix.Timespec{st.Atim, st.Mtim}, 0)
}

// own gives a copy the owner of the original; only root can give files away.
func own(st *unix.Stat_t, change func(uid, gid int) error) {
	if int(st.Uid) != os.Geteuid() || int(st.Gid) != os.Getegid() {
		_ = change(int(st.Uid), int(st.Gid)) // the caller's own then, as it is with cp
	}
}
