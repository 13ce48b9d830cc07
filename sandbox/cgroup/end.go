package cgroup

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"cofferdam/sandbox"
)

// How long the kernel may take.
const (
	freezePatience = 10 * time.Second // a process in the middle of a write to disk ends that first
	endPatience    = 10 * time.Second // to end what was killed
)

// Freeze stops every process of a box, or lets it go on, and returns when that is
// so. On version 1 the driver needs the controller freezer.
func (g Groups) Freeze(box string, stop bool) error {
	if g.None() {
		return nil
	}
	dir, file, value := g.Dir("freezer", box), "freezer.state", map[bool]string{true: "FROZEN", false: thawed}[stop]
	if g.V2 {
		file, value = "cgroup.freeze", map[bool]string{true: "1", false: "0"}[stop]
	}
	state := ""
	for deadline := time.Now().Add(freezePatience); time.Now().Before(deadline); time.Sleep(2 * time.Millisecond) {
		if err := write(dir, file, value); err != nil {
			return err
		}
		data, err := os.ReadFile(dir + "/" + file)
		if g.V2 && err == nil {
			data = []byte(strconv.FormatInt(Counter(dir+"/cgroup.events", "frozen"), 10))
		}
		if err != nil {
			return err
		}
		if state = strings.TrimSpace(string(data)); state == value {
			return nil
		}
	}
	return fmt.Errorf("it is %s after %s", state, freezePatience)
}

const thawed = "THAWED"

// Kill ends whatever runs in a box's groups and waits for nothing. On version 1
// what is stopped ends when it goes on.
func (g Groups) Kill(box string) {
	for _, tree := range g.trees {
		_ = kill(tree + g.Name(box)) // End looks again
	}
}

// End kills whatever is left in a box's groups and removes them.
func (g Groups) End(box string) error {
	deadline := time.Now().Add(endPatience)
	var left error
	for pause := time.Millisecond; time.Now().Before(deadline); pause = min(2*pause, 50*time.Millisecond) {
		left = nil
		for _, tree := range g.trees {
			left = errors.Join(left, end(tree+g.Name(box)))
		}
		if left == nil {
			return nil
		}
		if !g.V2 {
			_ = write(g.Dir("freezer", box), "freezer.state", thawed) // it need not be stopped
		}
		time.Sleep(pause) // the kernel has no event for "group is empty" on version 1
	}
	return left
}

// end kills the processes of one group and removes it.
func end(dir string) error {
	err := kill(dir)
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ENODEV) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := unix.Rmdir(dir); err != nil && !errors.Is(err, unix.ENOENT) {
		return &os.PathError{Op: "remove", Path: dir, Err: err}
	}
	return nil
}

// kill kills the processes of one group.
func kill(dir string) error {
	procs, err := os.ReadFile(dir + "/cgroup.procs")
	if err != nil {
		return err
	}
	for pid := range strings.FieldsSeq(string(procs)) {
		// Only what runs in a box is in its group, and we are not.
		if n, err := strconv.Atoi(pid); err == nil {
			_ = sandbox.Signal(n, unix.SIGKILL) // it may just have ended
		}
	}
	return nil
}
