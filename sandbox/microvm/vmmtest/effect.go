package vmmtest

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Readable opens a file to read, and refuses one that could be written.
func Readable(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if w, err := os.OpenFile(path, os.O_WRONLY, 0); err == nil {
		w.Close()
		return fmt.Errorf("%s can be written", path)
	}
	return nil
}

// Write writes a file, which may be there.
func Write(path, text string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}

// Holds wants a file that can only be read to have a text.
func Holds(path, want string) error {
	got, err := os.ReadFile(path)
	if err == nil && string(got) != want {
		err = fmt.Errorf("%s holds %q", path, got)
	}
	return errors.Join(err, Readable(path))
}

// Listen is the host's end of a vsock device: it echoes what comes, whatever the port.
func Listen(path string) error {
	l, err := net.Listen("unix", path)
	if err != nil {
		return err
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				var port int
				if _, err := fmt.Fscanf(c, "CONNECT %d\n", &port); err == nil {
					fmt.Fprintf(c, "OK %d\n", port+1)
					_, _ = io.Copy(c, c)
				}
			}()
		}
	}()
	return nil
}

// TakeTAP takes a network device by its name, for as long as the process lives.
func TakeTAP(name string) error {
	f, err := os.OpenFile("/dev/net/tun", os.O_RDWR, 0)
	if err != nil {
		return err
	}
	r, err := unix.NewIfreq(name)
	if err != nil {
		return err
	}
	r.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI | unix.IFF_VNET_HDR)
	return unix.IoctlIfreq(int(f.Fd()), unix.TUNSETIFF, r) // it stays open
}

// Filter sets a filter of system calls that allows all of them, in every thread.
func Filter() error {
	allow := []unix.SockFilter{{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW}}
	program := unix.SockFprog{Len: 1, Filter: &allow[0]}
	_, _, e := syscall.AllThreadsSyscall(unix.SYS_PRCTL, unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&program)))
	if e != 0 {
		return e
	}
	return nil
}
