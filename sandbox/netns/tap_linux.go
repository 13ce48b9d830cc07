package netns

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// tunPath is the device that makes TAP interfaces.
const tunPath = "/dev/net/tun"

// openQueue opens one queue of the TAP device in the namespace of the calling
// thread, making the device if it is not there.
func openQueue() (*os.File, error) {
	fd, err := unix.Open(tunPath, unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: tunPath, Err: err}
	}
	req, err := unix.NewIfreq(Device)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("naming tap: %w", err), unix.Close(fd))
	}
	req.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI | unix.IFF_MULTI_QUEUE)
	if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, req); err != nil {
		return nil, errors.Join(fmt.Errorf("making tap: %w", err), unix.Close(fd))
	}
	return os.NewFile(uintptr(fd), tunPath), nil
}

// detach takes a queue out of service: nothing is delivered to it any more,
// whoever holds a descriptor of it.
func detach(queue *os.File) error {
	req, err := unix.NewIfreq(Device)
	if err != nil {
		return fmt.Errorf("naming tap: %w", err)
	}
	req.SetUint16(unix.IFF_DETACH_QUEUE)
	return control(queue, func(fd int) error {
		err := unix.IoctlIfreq(fd, unix.TUNSETQUEUE, req)
		if errors.Is(err, unix.EINVAL) { // it was detached before
			return nil
		}
		return err
	})
}

// duplicate returns a second descriptor of the same queue.
func duplicate(queue *os.File) (*os.File, error) {
	var dup *os.File
	err := control(queue, func(fd int) error {
		n, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
		if err == nil {
			dup = os.NewFile(uintptr(n), tunPath)
		}
		return err
	})
	return dup, err
}

// control calls fn with the descriptor of f without making f blocking, as
// os.File.Fd would.
func control(f *os.File, fn func(fd int) error) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var inner error
	if err := raw.Control(func(fd uintptr) { inner = fn(int(fd)) }); err != nil {
		return err
	}
	return inner
}
