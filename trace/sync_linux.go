package trace

import (
	"errors"

	"golang.org/x/sys/unix"
)

// Sync makes all that was written durable, the file's size included.
func (f dataFile) Sync() error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var serr error
	err = raw.Control(func(fd uintptr) {
		for {
			if serr = unix.Fdatasync(int(fd)); !errors.Is(serr, unix.EINTR) {
				return
			}
		}
	})
	return errors.Join(err, serr)
}
