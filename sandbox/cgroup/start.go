package cgroup

import (
	"os/exec"
	"sync"
)

// starts is held while a program is started, by Outside and by Alone.
var starts sync.RWMutex

// Start starts a program as part of no box but its own. A keeper starts all of its
// programs with it: see Alone.
func Start(cmd *exec.Cmd) error {
	starts.RLock()
	defer starts.RUnlock()
	return cmd.Start()
}

// Outside calls do while this process is in no group of a box. What do writes into
// memory, as to a file of a tmpfs, would else count as that box's, and a process that
// writes more than the box may have is ended. do is short: Alone waits for it.
func Outside(do func() error) error {
	starts.RLock()
	defer starts.RUnlock()
	return do()
}

// Alone calls do while Start and Outside wait. What makes a gVisor box moves every
// thread of this process into the box's control group for a moment: whatever another
// driver started meanwhile would be in that group too, within its limits, and be ended
// with that box. do must not call either.
func Alone(do func() error) error {
	starts.Lock()
	defer starts.Unlock()
	return do()
}
