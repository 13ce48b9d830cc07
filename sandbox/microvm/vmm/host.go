package vmm

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// SocketPair makes a connected pair of stream sockets; both ends are closed on
// exec, and ours does not block.
func SocketPair() (ours, theirs *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("making socket pair: %w", err)
	}
	if err := unix.SetNonblock(fds[0], true); err != nil {
		return nil, nil, errors.Join(err, unix.Close(fds[0]), unix.Close(fds[1]))
	}
	return os.NewFile(uintptr(fds[0]), "ours"), os.NewFile(uintptr(fds[1]), "theirs"), nil
}

// Confined proves that a monitor runs as it should: it says so itself when it
// has read its arguments, and this is after that.
func Confined(pid, uid int) error {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return fmt.Errorf("looking at monitor: %w", err)
	}
	want := map[string]string{
		"Uid": strings.Repeat(strconv.Itoa(uid)+" ", 4), "Gid": strings.Repeat(strconv.Itoa(uid)+" ", 4), "NoNewPrivs": "1 ", "Seccomp": "2 ",
		"CapEff": "0000000000000000 ", "CapPrm": "0000000000000000 ", "CapInh": "0000000000000000 ", "CapAmb": "0000000000000000 ",
	}
	for line := range strings.Lines(string(data)) {
		name, value, _ := strings.Cut(line, ":")
		w, ok := want[name]
		if got := strings.Join(strings.Fields(value), " ") + " "; ok && got != w {
			return fmt.Errorf("the monitor is not confined: %s is %s, want %s", name, got, w)
		}
		delete(want, name)
	}
	if len(want) > 0 {
		return fmt.Errorf("the monitor is not confined: its status does not say %v", want)
	}
	return nil
}

// HostKHz is the host's clock rate; 0 if it does not say.
func HostKHz() int {
	data, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(data)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "cpu MHz" {
			mhz, _ := strconv.ParseFloat(strings.TrimSpace(value), 64) // 0 says nothing
			return int(mhz * 1000)
		}
	}
	return 0
}

// KVM is the device that runs machines on hardware.
const KVM = "/dev/kvm"

// Duplicate returns another descriptor of f that Go's poller serves.
func Duplicate(f *os.File) (*os.File, error) {
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return nil, err
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		return nil, errors.Join(err, unix.Close(fd))
	}
	return os.NewFile(uintptr(fd), f.Name()), nil
}
