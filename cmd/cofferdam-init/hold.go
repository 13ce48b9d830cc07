package main

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// holdWord asks this program to be pid 1 around another one: a monitor's jailer,
// which leaves its monitor behind and ends.
const holdWord = "hold"

// hold runs the rest of args in a process id namespace that it is pid 1 of, and
// ends with the last process there: as the monitor did, if that can be told. When
// it is ended itself, by the kernel at the end of who started it, all of them are.
func hold(args []string) (asked bool, err error) {
	if len(args) < 3 || args[1] != holdWord {
		return false, nil
	}
	if os.Getpid() != 1 {
		return true, errors.New("hold: it is not pid 1 of a pid namespace of its own")
	}
	if _, err := syscall.ForkExec(args[2], args[2:], &syscall.ProcAttr{Files: []uintptr{0, 1, 2}, Env: os.Environ()}); err != nil {
		return true, fmt.Errorf("hold: %w", &os.PathError{Op: "start", Path: args[2], Err: err})
	}
	var last unix.WaitStatus
	for {
		var status unix.WaitStatus
		_, err := unix.Wait4(-1, &status, unix.WALL, nil)
		switch {
		case errors.Is(err, unix.ECHILD):
			if last.Signaled() {
				return true, fmt.Errorf("hold: ended by signal %d", last.Signal())
			}
			if last.ExitStatus() != 0 {
				return true, fmt.Errorf("hold: ended with exit code %d", last.ExitStatus())
			}
			return true, nil
		case err == nil && (status.Exited() || status.Signaled()):
			last = status
		case err != nil && !errors.Is(err, unix.EINTR):
			return true, fmt.Errorf("hold: %w", err)
		}
	}
}
