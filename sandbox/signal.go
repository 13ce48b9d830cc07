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
