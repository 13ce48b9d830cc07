package volume

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// ErrHeld is of a folder that another holds in a way that does not go together
// with how it is wanted.
var ErrHeld = errors.New("another holds it")

// Share holds a folder that others may share at the same time, until what it
// returns is closed: nobody has it alone meanwhile, whichever process asks. What
// is returned is the folder that had that path then; a later rename changes nothing.
func Share(dir string) (*os.File, error) { return hold(dir, unix.LOCK_SH) }

// Alone holds a folder that nobody else may hold.
func Alone(dir string) (*os.File, error) { return hold(dir, unix.LOCK_EX) }

// hold locks a folder, not its path: the lock ends with the process, and goes
// along when the folder is renamed. It does not wait.
func hold(dir string, how int) (*os.File, error) {
	for {
		fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if err != nil {
			return nil, &os.PathError{Op: "open", Path: dir, Err: err}
		}
		f := os.NewFile(uintptr(fd), dir)
		err = unix.Flock(fd, how|unix.LOCK_NB)
		if errors.Is(err, unix.EWOULDBLOCK) {
			err = ErrHeld
		}
		if err != nil {
			return nil, errors.Join(&os.PathError{Op: "lock", Path: dir, Err: err}, f.Close())
		}
		var locked, now unix.Stat_t
		if err := errors.Join(unix.Fstat(fd, &locked), unix.Lstat(dir, &now)); err != nil {
			return nil, errors.Join(&os.PathError{Op: "look at", Path: dir, Err: err}, f.Close())
		}
		if locked.Dev == now.Dev && locked.Ino == now.Ino {
			return f, nil
		}
		if err := f.Close(); err != nil { // it was moved away before it was locked
			return nil, err
		}
	}
}
