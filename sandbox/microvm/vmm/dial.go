package vmm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"cofferdam/sandbox/guest"
)

// dialPause is how often a socket is looked for that is not there yet.
const dialPause = 5 * time.Millisecond

// Dial connects to a socket that a monitor made below root, within its jail. The
// monitor may have put anything there in the meantime: a link, or another's
// socket, leads nowhere. What is not there yet is waited for.
func Dial(ctx context.Context, root, path string, uid int) (*os.File, error) {
	for {
		f, err := dialOnce(root, path, uid)
		if err == nil || !notYet(err) {
			return f, err
		}
		select {
		case <-time.After(dialPause):
		case <-ctx.Done():
			return nil, fmt.Errorf("waiting for socket %s of the monitor: %w: %w", path, context.Cause(ctx), err)
		}
	}
}

// notYet says whether another try may do.
func notYet(err error) bool {
	for _, e := range []error{unix.ENOENT, unix.ECONNREFUSED, unix.EAGAIN} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

func dialOnce(root, path string, uid int) (*os.File, error) {
	base, err := unix.Open(root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: root, Err: err}
	}
	defer unix.Close(base)
	socket, err := unix.Openat2(base, strings.TrimPrefix(path, "/"), &unix.OpenHow{
		Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	})
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	defer unix.Close(socket)
	var st unix.Stat_t
	if err := unix.Fstat(socket, &st); err != nil {
		return nil, &os.PathError{Op: "look at", Path: path, Err: err}
	}
	if st.Mode&unix.S_IFMT != unix.S_IFSOCK || int(st.Uid) != uid {
		return nil, fmt.Errorf("%s is no socket of the monitor: mode %o, user %d", path, st.Mode, st.Uid)
	}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("open socket: %w", err)
	}
	// By its descriptor: what is at the path by now does not matter.
	if err := unix.Connect(fd, &unix.SockaddrUnix{Name: "/proc/self/fd/" + strconv.Itoa(socket)}); err != nil {
		return nil, errors.Join(&os.PathError{Op: "connect to", Path: path, Err: err}, unix.Close(fd))
	}
	return os.NewFile(uintptr(fd), path), nil
}

// maxWelcome bounds the monitor's answer to CONNECT: "OK" and a port number.
const maxWelcome = 32

// welcomePatience is how long one answer may take; a guest that does not listen
// yet is refused at once.
const welcomePatience = 5 * time.Second

// DialGuest connects to pid 1 through a monitor's vsock socket, and waits until
// it listens: Firecracker and Cloud Hypervisor speak the same words.
func DialGuest(ctx context.Context, root, path string, uid int) (*os.File, error) {
	for {
		f, err := Dial(ctx, root, path, uid)
		if err != nil {
			return nil, err
		}
		err = welcome(f)
		if err == nil {
			return f, nil
		}
		f.Close()
		if !errors.Is(err, errNotListening) {
			return nil, err
		}
		select {
		case <-time.After(dialPause):
		case <-ctx.Done():
			return nil, fmt.Errorf("waiting for pid 1 of the machine: %w", context.Cause(ctx))
		}
	}
}

var errNotListening = errors.New("nobody listens in the machine")

// welcome asks for the guest's port. It reads no byte beyond the answer.
func welcome(f *os.File) error {
	if err := f.SetDeadline(time.Now().Add(welcomePatience)); err != nil {
		return err
	}
	if _, err := fmt.Fprintf(f, "CONNECT %d\n", guest.VsockPort); err != nil {
		return errNotListening // it closed the connection already
	}
	var line []byte
	for b := make([]byte, 1); len(line) < maxWelcome; {
		n, err := f.Read(b)
		if n == 0 || err != nil {
			if len(line) == 0 {
				return errNotListening
			}
			return fmt.Errorf("the monitor's answer to CONNECT ends after %.40q", line)
		}
		if b[0] == '\n' {
			port, ok := bytes.CutPrefix(line, []byte("OK "))
			if _, err := strconv.ParseUint(string(port), 10, 32); !ok || err != nil {
				return fmt.Errorf("the monitor answers CONNECT by %.40q", line)
			}
			return f.SetDeadline(time.Time{})
		}
		line = append(line, b[0])
	}
	return fmt.Errorf("the monitor's answer to CONNECT does not end: %.40q", line)
}
