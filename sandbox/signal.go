package sandbox

import (
	"fmt"
	"os"
	"syscall"
)

// Signal sends a signal to one process of a box. A number that names more than
// one process, the host's pid 1 or this program is an error: libraries say -1
// for a process that has ended, and kill(2) takes that for everybody. A process
// that has ended is none.
func Signal(pid int, s syscall.Signal) error {
	if pid <= 1 || pid == os.Getpid() {
		return fmt.Errorf("there is no process of the box: its number is %d", pid)
	}
	if err := syscall.Kill(pid, s); err != nil {
		return os.NewSyscallError("kill", err)
	}
	return nil
}

// SignalGroup sends a signal to the process group of a one-off command. A number
// that names no group, everybody, or the caller's own group is an error.
func SignalGroup(group int, s syscall.Signal) error {
	if group <= 1 || group == syscall.Getpgrp() {
		return fmt.Errorf("there is no group of a box: its number is %d", group)
	}
	if err := syscall.Kill(-group, s); err != nil {
		return os.NewSyscallError("kill", err)
	}
	return nil
}

// SignalJob sends a signal to the caller's own process group, as a terminal
// does: a command line that serves a command stops with it.
func SignalJob(s syscall.Signal) error { return os.NewSyscallError("kill", syscall.Kill(0, s)) }
