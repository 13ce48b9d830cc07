package cgroup

import (
	"os/exec"
	"sync"
)

// starts is held while a program is started, and by Alone.
var starts sync.RWMutex

// Start starts a program as part of no box but its own. A keeper starts all of its
// programs with it: see Alone.
func Start(cmd *exec.Cmd) error {
	starts.RLock()
	defer starts.RUnlock()
	return cmd.Start()
}

// Alone calls do while Start waits. What makes a gVisor box moves every thread of
// this process into the box's control group for a moment: whatever another driver
// started meanwhile would be in that group too, within its limits, and be ended with
// that box. do must not call Start.
func Alone(do func() error) error {
	starts.Lock()
	defer starts.Unlock()
	return do()
}
