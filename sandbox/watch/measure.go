package watch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// Bounds of what is measured. Source: docs/SPECIFICATION.md, "Boxes of an ordinary
// user's keeper".
const (
	// MaxDepth is how many folders below each other are gone into: each holds a
	// descriptor. What lies deeper cannot be counted, so it may not be there.
	MaxDepth = 256
	namesAt  = 512 // once
)

// ErrUncounted is of a folder that holds what Measure does not count: it nests more
// than MaxDepth deep, or has more than twice the files that it may have.
var ErrUncounted = errors.New("it cannot be counted")

// Usage is what a folder holds.
type Usage struct {
	Bytes int64 // of the host's disk
	Files int64 // and folders
}

// Exceeds says whether u is more than most in one way or the other.
func (u Usage) Exceeds(most Usage) bool { return u.Bytes > most.Bytes || u.Files > most.Files }

// Measure returns what a folder holds that may hold most; a file with several
// names counts once. It follows no link, stays below dir whatever is moved
// meanwhile, and gives up with ErrUncounted where it would not come to an end. A
// file that has no name any more is not seen.
func Measure(ctx context.Context, dir string, most Usage) (Usage, error) {
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return Usage{}, &fs.PathError{Op: "open", Path: dir, Err: err}
	}
	m := measure{ctx: ctx, most: 2 * most.Files, linked: map[uint64]bool{}}
	err = m.folder(os.NewFile(uintptr(fd), dir), MaxDepth)
	return m.Usage, err
}

// measure is a count under way.
type measure struct {
	Usage
	ctx    context.Context
	most   int64           // files
	linked map[uint64]bool // files with several names that were counted, by number
}

// folder adds an open folder and all below it, and closes it.
func (m *measure) folder(f *os.File, depth int) error {
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return err
	}
	m.Bytes += st.Blocks * 512
	if depth == 0 {
		return fmt.Errorf("%w: folders are nested more than %d deep", ErrUncounted, MaxDepth)
	}
	for {
		names, err := f.Readdirnames(namesAt)
		for _, name := range names {
			if err := m.entry(f, name, st.Dev, depth); err != nil {
				return err
			}
		}
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, unix.ENOENT): // the kernel says that of one that has been removed meanwhile
			return nil
		case err != nil:
			return err
		case m.ctx.Err() != nil:
			return context.Cause(m.ctx)
		}
	}
}

// entry adds what has a name in an open folder of a device.
func (m *measure) entry(in *os.File, name string, device uint64, depth int) error {
	var st unix.Stat_t
	err := unix.Fstatat(int(in.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW)
	if errors.Is(err, unix.ENOENT) { // it has just gone
		return nil
	}
	if err != nil {
		return &fs.PathError{Op: "look at", Path: name, Err: err}
	}
	if m.Files++; m.Files > m.most {
		return fmt.Errorf("%w: it holds more than %d files", ErrUncounted, m.most)
	}
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		fd, err := unix.Openat(int(in.Fd()), name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		switch {
		case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ELOOP): // it is another by now
			return nil
		case err != nil:
			return &fs.PathError{Op: "open", Path: name, Err: err}
		}
		return m.folder(os.NewFile(uintptr(fd), name), depth-1)
	}
	if st.Dev != device || m.linked[st.Ino] {
		return nil
	}
	if st.Nlink > 1 {
		m.linked[st.Ino] = true
	}
	m.Bytes += st.Blocks * 512
	return nil
}
