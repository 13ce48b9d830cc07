package watch

import (
	"errors"
	"io"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"cofferdam"
)

// removeDepth is how many folders below each other Remove has open at a time.
const removeDepth = 64

// Remove removes what is at path with all that is below it, as os.RemoveAll does,
// which has a descriptor for each folder above another: a box can nest them deeper
// than a process may have files open. Preconditions: nobody writes to it any more.
func Remove(path string) error {
	err := os.Remove(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case !errors.Is(err, unix.ENOTEMPTY) && !errors.Is(err, unix.EEXIST):
		return err
	}
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return &fs.PathError{Op: "open", Path: path, Err: err}
	}
	top := os.NewFile(uintptr(fd), path)
	if err := errors.Join(empty(top, top, removeDepth), top.Close()); err != nil {
		return err
	}
	return os.Remove(path)
}

// empty removes all that is in a folder. What lies more than depth below it is moved
// to top, where its turn comes again.
func empty(top, dir *os.File, depth int) error {
	for found := true; found; {
		if _, err := dir.Seek(0, io.SeekStart); err != nil {
			return err
		}
		found = false
		for {
			names, err := dir.Readdirnames(namesAt)
			for _, name := range names {
				found = true
				if err := drop(top, dir, name, depth); err != nil {
					return err
				}
			}
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// drop removes what has a name in a folder.
func drop(top, dir *os.File, name string, depth int) error {
	at := int(dir.Fd())
	file := unix.Unlinkat(at, name, 0)
	if file == nil || errors.Is(file, unix.ENOENT) {
		return nil
	}
	switch err := unix.Unlinkat(at, name, unix.AT_REMOVEDIR); {
	case err == nil, errors.Is(err, unix.ENOENT):
		return nil
	case errors.Is(err, unix.ENOTDIR):
		return &fs.PathError{Op: "remove", Path: name, Err: file}
	case !errors.Is(err, unix.ENOTEMPTY) && !errors.Is(err, unix.EEXIST):
		return &fs.PathError{Op: "remove", Path: name, Err: err}
	}
	if depth == 0 {
		if err := unix.Renameat(at, name, int(top.Fd()), cofferdam.NewID("r")); err != nil { // a name that nobody can have taken
			return &fs.PathError{Op: "move", Path: name, Err: err}
		}
		return nil
	}
	fd, err := unix.Openat(at, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return &fs.PathError{Op: "open", Path: name, Err: err}
	}
	in := os.NewFile(uintptr(fd), name)
	if err := errors.Join(empty(top, in, depth-1), in.Close()); err != nil {
		return err
	}
	if err := unix.Unlinkat(at, name, unix.AT_REMOVEDIR); err != nil && !errors.Is(err, unix.ENOENT) {
		return &fs.PathError{Op: "remove", Path: name, Err: err}
	}
	return nil
}
