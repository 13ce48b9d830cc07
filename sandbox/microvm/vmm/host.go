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

// Confined proves that a monitor runs as it should, each of its threads: as a user
// of its own without rights, and under a filter of system calls.
func Confined(pid, uid int) error { return confined(pid, uid, true) }

// Dropped is Confined before the monitor has set its filters.
func Dropped(pid, uid int) error { return confined(pid, uid, false) }

func confined(pid, uid int, filtered bool) error {
	want := map[string]string{
		"Uid": strings.Repeat(strconv.Itoa(uid)+" ", 4), "Gid": strings.Repeat(strconv.Itoa(uid)+" ", 4), "NoNewPrivs": "1 ",
		"CapEff": "0000000000000000 ", "CapPrm": "0000000000000000 ", "CapInh": "0000000000000000 ", "CapAmb": "0000000000000000 ",
	}
	if filtered {
		want["Seccomp"] = "2 "
	}
	threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		return fmt.Errorf("looking at monitor: %w", err)
	}
	seen := 0
	for _, t := range threads {
		data, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/status", pid, t.Name()))
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH) {
			continue // it has ended meanwhile
		}
		if err != nil {
			return fmt.Errorf("looking at monitor: %w", err)
		}
		if err := shows(string(data), want); err != nil {
			return err
		}
		seen++
	}
	if seen == 0 {
		return errors.New("the monitor is not confined: it has no threads")
	}
	return nil
}

// shows compares what the kernel says of a thread.
func shows(status string, want map[string]string) error {
	seen := 0
	for line := range strings.Lines(status) {
		name, value, _ := strings.Cut(line, ":")
		w, ok := want[name]
		if !ok {
			continue
		}
		if got := strings.Join(strings.Fields(value), " ") + " "; got != w {
			return fmt.Errorf("the monitor is not confined: %s is %s, want %s", name, got, w)
		}
		seen++
	}
	if seen != len(want) {
		return fmt.Errorf("the monitor is not confined: its status says %d of %d things", seen, len(want))
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

// Children are the processes that a process has started and not yet waited for.
func Children(pid int) ([]int, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	if err != nil {
		return nil, err
	}
	var list []int
	for word := range strings.FieldsSeq(string(data)) {
		n, err := strconv.Atoi(word)
		if err != nil {
			return nil, err
		}
		list = append(list, n)
	}
	return list, nil
}

// CommandLine is what every guest's kernel is told.
func CommandLine(more ...string) string {
	words := append([]string{"console=ttyS0", "quiet", "loglevel=4", "panic=-1", "tsc=reliable", "no_timer_check", "random.trust_cpu=on"}, more...)
	return strings.Join(words, " ")
}
