package engine

import (
	"os/exec"
	"syscall"
)

// setProcess takes the child out of our process group, so that an interrupt
// typed at a terminal reaches us alone and we end it in order.
func setProcess(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
}
