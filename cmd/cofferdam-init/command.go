package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"cofferdam/sandbox/guest"
)

// Exit codes of what could not be started, as shells have them.
const (
	exitNotRunnable = 126
	exitNotFound    = 127
)

// grace is how long output may stay open after a command's first process has
// ended, because something it started still holds it: enough for the rest of a
// pipeline, short enough for a server left in the background.
const grace = 500 * time.Millisecond

// command is one command from its start until all of it was reported.
type command struct {
	box     *box
	number  uint32
	started chan struct{} // closed once its process exists or could not be made
	outlets [3]*outlet    // 1 and 2
	inlet   *inlet
	parts   sync.WaitGroup // exit and both outlets
	began   time.Time
	standby *standby // what becomes its process; nil: it is made
}

func newCommand(b *box, number uint32) *command {
	c := &command{box: b, number: number, started: make(chan struct{}), inlet: newInlet(b, number), began: time.Now()}
	c.outlets[1], c.outlets[2] = newOutlet(b, number, 1), newOutlet(b, number, 2)
	c.parts.Add(3)
	return c
}

// start makes the process and reports what came of it.
func (c *command) start(s guest.Start) {
	pid, exit, reason := c.spawn(s)
	close(c.started)
	if pid > 0 {
		c.box.send(guest.KindStarted, c.number, binary.BigEndian.AppendUint32(nil, uint32(pid)))
	} else {
		c.box.sendJSON(guest.KindExit, c.number, guest.Exit{Exit: exit, Reason: reason})
		c.parts.Done()
		c.inlet.stop()
	}
	for _, o := range c.outlets[1:] {
		go func() {
			defer c.parts.Done()
			o.pump()
		}()
	}
	c.parts.Wait()
	c.box.mu.Lock()
	delete(c.box.commands, c.number)
	c.box.mu.Unlock()
}

// exited reports the end of the first process.
func (c *command) exited(ws syscall.WaitStatus) {
	<-c.started
	e := guest.Exit{Exit: ws.ExitStatus()}
	if ws.Signaled() {
		e.Exit, e.Signal = 128+int(ws.Signal()), int(ws.Signal())
	}
	c.inlet.stop()
	c.box.sample()
	e.Met = c.box.meter.since(c.began)
	c.box.sendJSON(guest.KindExit, c.number, e)
	time.AfterFunc(grace, func() {
		for _, o := range c.outlets[1:] {
			o.lastCall()
		}
	})
	c.parts.Done()
}

// spawn starts the process, or says with which code and why it could not.
func (c *command) spawn(s guest.Start) (pid, exit int, reason string) {
	if c.standby != nil {
		if pid := c.standby.became(); pid > 0 {
			return pid, 0, ""
		}
	}
	if fi, err := os.Stat(s.Dir); err != nil || !fi.IsDir() {
		if err == nil {
			err = unix.ENOTDIR
		}
		return 0, exitNotRunnable, fmt.Sprintf("enter folder %s: %s", s.Dir, cause(err))
	}
	theirs, err := c.pipes(s.Stdin)
	defer func() {
		for _, f := range theirs {
			f.Close()
		}
	}()
	if err != nil {
		return 0, exitNotRunnable, "open its input and output: " + cause(err)
	}
	attr := c.attributes(theirs)
	attr.Dir, attr.Env = s.Dir, s.Env
	return launch(s, func(path string) (int, error) { return c.fork(path, s.Argv, attr) })
}

// attributes are those of every process of the command.
func (c *command) attributes(files []*os.File) *syscall.ProcAttr {
	return &syscall.ProcAttr{
		Files: []uintptr{files[0].Fd(), files[1].Fd(), files[2].Fd()},
		Sys: &syscall.SysProcAttr{
			Setsid: true,
			Credential: &syscall.Credential{
				Uid: uint32(c.box.config.UID), Gid: uint32(c.box.config.GID),
				Groups: []uint32{guest.Mark(c.number, c.box.config.FewIDs)},
			},
		},
	}
}

// launch tries every path that the program may have, and says with which code
// and why none could be run.
func launch(s guest.Start, fork func(path string) (int, error)) (pid, exit int, reason string) {
	var err error = unix.ENOENT
	for _, path := range candidates(s) {
		pid, e := fork(path)
		if e == nil {
			return pid, 0, ""
		}
		if errors.Is(e, unix.ENOENT) || errors.Is(e, unix.ENOTDIR) {
			if _, statErr := os.Stat(inDir(s.Dir, path)); statErr == nil {
				return 0, exitNotFound, fmt.Sprintf("run %s: the interpreter or loader it names is missing", path)
			}
			continue
		}
		if err = e; !errors.Is(e, unix.EACCES) {
			break
		}
	}
	name := s.Argv[0]
	if len(name) > 200 {
		name = name[:200] + "…"
	}
	if errors.Is(err, unix.ENOENT) {
		return 0, exitNotFound, fmt.Sprintf("run %s: no such program", name)
	}
	return 0, exitNotRunnable, fmt.Sprintf("run %s: %s", name, cause(err))
}

// fork makes the process and its entry in one step for the reaper.
func (c *command) fork(path string, argv []string, attr *syscall.ProcAttr) (int, error) {
	c.box.mu.Lock()
	defer c.box.mu.Unlock()
	pid, err := c.box.forkExec(path, argv, attr)
	if err == nil {
		c.box.byPID[pid] = c
	}
	return pid, err
}

// candidates are the paths that execvp would try.
func candidates(s guest.Start) []string {
	name := s.Argv[0]
	if strings.Contains(name, "/") {
		return []string{name}
	}
	var paths []string
	for _, v := range s.Env {
		list, ok := strings.CutPrefix(v, "PATH=")
		if !ok {
			continue
		}
		for _, dir := range filepath.SplitList(list) {
			path := filepath.Join(dir, name)
			if dir == "" || dir == "." {
				path = "./" + name
			}
			if fi, err := os.Stat(inDir(s.Dir, path)); err == nil && !fi.IsDir() {
				paths = append(paths, path)
			}
		}
	}
	return paths
}

func inDir(dir, path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(dir, path)
}

// cause is the innermost text of an error.
func cause(err error) string {
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return errno.Error()
	}
	return err.Error()
}

// pipes makes the command's three ends and keeps ours.
func (c *command) pipes(stdin bool) (theirs []*os.File, err error) {
	in, err := os.Open(os.DevNull) // not a closed pipe: programs read from pipes
	if err != nil {
		return nil, err
	}
	if stdin {
		in.Close()
		r, w, err := pipeOf(c.box.config.UID, c.box.config.GID)
		if err != nil {
			return nil, err
		}
		in = r
		if w, err = pollable(w); err != nil {
			return []*os.File{in}, err
		}
		c.inlet.attach(w)
	}
	theirs = append(theirs, in)
	for _, o := range c.outlets[1:] {
		r, w, err := pipeOf(c.box.config.UID, c.box.config.GID)
		if err != nil {
			return theirs, err
		}
		theirs = append(theirs, w)
		if o.file, err = pollable(r); err != nil {
			return theirs, err
		}
	}
	return theirs, nil
}

// pipeOf makes a pipe that belongs to the command's user, so that the command
// can open it again by name: /dev/stdout, /dev/fd/0. The kernel gives a pipe to
// the effective user of the thread that makes it.
func pipeOf(uid, gid int) (r, w *os.File, err error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := effective(uid, gid); err != nil {
		return nil, nil, err
	}
	var p [2]int
	pipeErr := unix.Pipe2(p[:], unix.O_CLOEXEC)
	if err := effective(0, 0); err != nil {
		// This thread may not serve anybody again.
		fmt.Fprintln(os.Stderr, "cofferdam-init: become root again: "+err.Error())
		os.Exit(1)
	}
	if pipeErr != nil {
		return nil, nil, pipeErr
	}
	return os.NewFile(uintptr(p[0]), "pipe"), os.NewFile(uintptr(p[1]), "pipe"), nil
}

// effective sets the effective user and group of this thread alone. The group
// goes first on the way down and last on the way up: both need the root user.
func effective(uid, gid int) error {
	set := func(call uintptr, id int) error {
		const keep = ^uintptr(0)
		if _, _, errno := unix.RawSyscall(call, keep, uintptr(id), keep); errno != 0 {
			return errno
		}
		return nil
	}
	if uid == 0 {
		return errors.Join(set(unix.SYS_SETRESUID, uid), set(unix.SYS_SETRESGID, gid))
	}
	return errors.Join(set(unix.SYS_SETRESGID, gid), set(unix.SYS_SETRESUID, uid))
}

// pollable makes f's reads and writes interruptible.
func pollable(f *os.File) (*os.File, error) {
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, controlOut+1)
	f.Close()
	if err != nil {
		return nil, err
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		unix.Close(fd)
		return nil, err
	}
	return os.NewFile(uintptr(fd), "pipe"), nil
}
