package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"cofferdam/sandbox/guest"
)

// kernelWord returns what the kernel's command line says after name=; it is the
// host's, and says what the machine's monitor has instead of a serial port, and
// of names for its disks.
func kernelWord(name string) string {
	line, err := os.ReadFile("/proc/cmdline")
	if err != nil {
		return ""
	}
	for word := range strings.FieldsSeq(string(line)) {
		if value, ok := strings.CutPrefix(word, name+"="); ok {
			return value
		}
	}
	return ""
}

// diskInOrder is the device of a disk whose place in order, names with commas
// between, is its only name: Firecracker gives disks no serial number of ours.
func diskInOrder(order, serial string) string {
	for i, name := range strings.Split(order, ",") {
		if name == serial && i < 'z'-'a' {
			return "/dev/vd" + string(rune('a'+i))
		}
	}
	return ""
}

// hostLine is the talk with the host where it connects over vsock: again after
// the machine was saved, when the line of before is dead whether it says so or
// not. The one that came last counts.
type hostLine struct {
	mu   sync.Mutex
	came sync.Cond
	conn io.ReadWriteCloser // nil: the host is away; guarded by mu
}

// newHostLine takes what accept returns, each the host, until accept fails.
func newHostLine(accept func() (io.ReadWriteCloser, error)) *hostLine {
	l := new(hostLine)
	l.came.L = &l.mu
	go func() {
		for {
			conn, err := accept()
			if err != nil {
				time.Sleep(devicePause) // what it is cannot be told to anybody
				continue
			}
			l.mu.Lock()
			old := l.conn
			l.conn = conn
			l.came.Broadcast()
			l.mu.Unlock()
			if old != nil {
				old.Close()
			}
		}
	}()
	return l
}

// listenHost listens on vsock for the host alone.
func listenHost() (*hostLine, error) {
	fd, err := unix.Socket(unix.AF_VSOCK, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open vsock: %w", err)
	}
	if err := errors.Join(unix.Bind(fd, &unix.SockaddrVM{CID: unix.VMADDR_CID_ANY, Port: guest.VsockPort}), unix.Listen(fd, 1)); err != nil {
		return nil, errors.Join(fmt.Errorf("listen on vsock: %w", err), unix.Close(fd))
	}
	return newHostLine(func() (io.ReadWriteCloser, error) {
		conn, from, err := unix.Accept4(fd, unix.SOCK_CLOEXEC)
		if err != nil {
			return nil, err
		}
		if vm, ok := from.(*unix.SockaddrVM); !ok || vm.CID != unix.VMADDR_CID_HOST {
			return nil, errors.Join(errors.New("not the host"), unix.Close(conn)) // a command, over loopback
		}
		return os.NewFile(uintptr(conn), "vsock"), nil
	}), nil
}

// wait returns the line to the host, once there is one.
func (l *hostLine) wait() io.ReadWriteCloser {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.conn == nil {
		l.came.Wait()
	}
	return l.conn
}

// drop gives up a line that has ended.
func (l *hostLine) drop(conn io.ReadWriteCloser) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conn == conn {
		l.conn = nil
	}
	conn.Close()
}

// Read waits over the host's absence.
func (l *hostLine) Read(b []byte) (int, error) {
	for {
		conn := l.wait()
		n, err := conn.Read(b)
		if n > 0 {
			return n, nil
		}
		if err != nil {
			l.drop(conn)
		}
	}
}

// Write says one frame, and says it again on the next line when one ends: between
// two lines the talk is quiet, so that none is half said.
func (l *hostLine) Write(b []byte) (int, error) {
	for {
		conn := l.wait()
		if n, err := conn.Write(b); err == nil {
			return n, nil
		}
		l.drop(conn)
	}
}
