package cgroup

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
)

// Start says how a program becomes part of a box before its first instruction. A
// process that was made for it alone reads it, goes into the box's groups and becomes
// the program. So nothing of the program runs outside of the groups, and no thread of
// whoever makes boxes is ever in one: what it writes meanwhile is not charged to a box,
// and what ends a box does not end it.
//
// CLONE_INTO_CGROUP would make the process where it belongs, on version 2 alone.
type Start struct {
	Program string   // absolute path
	Tasks   []string // see Groups.Tasks
	Flags   []string // more of the program's arguments
}

// Files of a Start in the folder of a box.
const (
	startFile  = "start.json"
	failedFile = "start-failed"
)

// Tasks are the files that put who writes 0 to them into a box's groups: on version 1
// one thread, which asks nobody to stand still for that, on version 2 a process.
func (g Groups) Tasks(box string) []string {
	file := "tasks"
	if g.V2 {
		file = "cgroup.procs"
	}
	list := make([]string, 0, len(g.trees))
	for _, tree := range g.trees {
		list = append(list, filepath.Join(tree, g.Name(box), file))
	}
	return list
}

// Write puts s into a folder that only its owner may write to.
func (s Start) Write(dir string) error {
	data, err := json.Marshal(s)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, startFile), data, 0o600)
}

// ReadStart returns what Write has put into a folder.
func ReadStart(dir string) (s Start, err error) {
	data, err := os.ReadFile(filepath.Join(dir, startFile))
	if err == nil {
		err = json.Unmarshal(data, &s)
	}
	if err == nil && !filepath.IsAbs(s.Program) {
		err = errors.New("it names no program")
	}
	if err != nil {
		return s, fmt.Errorf("reading how to start: %w", err)
	}
	return s, nil
}

// Become goes into the groups and becomes the program. It returns only with an error.
func (s Start) Become(argv, env []string) error {
	runtime.LockOSThread() // the thread that becomes the program is the one that is in the groups; the others end
	for _, file := range s.Tasks {
		if err := os.WriteFile(file, []byte("0"), 0); err != nil {
			return fmt.Errorf("entering a control group: %w", err)
		}
	}
	return &os.PathError{Op: "start", Path: s.Program, Err: syscall.Exec(s.Program, argv, env)}
}

// Fail leaves the reason why a program did not begin in the box's folder: its output
// leads nowhere yet.
func Fail(dir string, why error) error {
	return os.WriteFile(filepath.Join(dir, failedFile), []byte(why.Error()), 0o600)
}

// Failed returns what Fail has left in a folder; nil if it left nothing.
func Failed(dir string) error {
	why, err := os.ReadFile(filepath.Join(dir, failedFile))
	if err != nil || len(why) == 0 {
		return nil
	}
	return errors.New(string(why))
}
