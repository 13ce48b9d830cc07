package process

import (
	"errors"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"cofferdam/sandbox"
)

// terminal is the one that a command shares with its caller. The command is in
// a process group of its own, so that it can signal nobody outside; for a
// terminal that is a job of its own, and this is the shell that moves it between
// foreground and background.
//
// Typed signals go to the group in the foreground. That is the box's from the
// start where the caller is alone in its group and nothing it prints goes
// elsewhere: a command typed at a prompt. Otherwise, in a script or a pipeline,
// it stays the caller's, whose neighbours are to hear Ctrl-C too, and it is
// sent on; the box gets the terminal when it reads from it, which stops it.
type terminal struct {
	tty int  // a descriptor of it; -1: none of the streams is the terminal of this session
	at  bool // the box gets it from the start

	mu    sync.Mutex
	group int  // process group of the box; 0 before there is one and after its end; guarded by mu
	given bool // the box has it, or had it when it was stopped; guarded by mu
	known bool // what stopped the box is known and is yet to be sent to its group; guarded by mu
	due   int  // if not 0, pid 1 is to tell of a stop that this process asked for; guarded by mu
	asked int  // how often it has asked; guarded by mu
}

// lateStop is how long after a box goes on pid 1 may still tell that it was
// stopped. A command that does not heed SIGTSTP was not, and nothing is told.
const lateStop = time.Second

// findTerminal looks for the terminal among the streams of a command.
func findTerminal(stdio [3]*os.File) *terminal {
	t := &terminal{tty: -1}
	session, err := unix.Getsid(0)
	if err != nil {
		return t
	}
	for _, f := range stdio {
		if f == nil {
			continue
		}
		if s, err := unix.IoctlGetInt(int(f.Fd()), unix.TIOCGSID); err == nil && s == session {
			t.tty = int(f.Fd())
		}
	}
	t.at = t.tty >= 0 && unix.Getpgrp() == os.Getpid() && isTerminal(stdio[1]) && isTerminal(stdio[2])
	return t
}

func isTerminal(f *os.File) bool {
	if f == nil {
		return false
	}
	_, err := unix.IoctlGetInt(int(f.Fd()), unix.TIOCGPGRP)
	return err == nil
}

// begin is called when the box's process group is there and its command is not.
func (t *terminal) begin(group int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.group = group
	if t.at {
		t.give()
	}
}

// give lends the terminal to the box, if the caller has it.
func (t *terminal) give() bool {
	if t.tty < 0 || !t.ours() {
		return false
	}
	ok := setForeground(t.tty, t.group) == nil
	t.given = t.given || ok
	return ok
}

// ours says whether the caller's group is in the foreground.
func (t *terminal) ours() bool {
	group, err := unix.IoctlGetInt(t.tty, unix.TIOCGPGRP)
	return err == nil && group == unix.Getpgrp()
}

// stopped is called when a signal stopped the command: it gets the terminal if it
// stopped for want of it, else this process stops too, as every job does.
func (t *terminal) stopped(by unix.Signal) {
	if t.tty < 0 {
		return // nobody sees it, and whoever stopped it lets it go on
	}
	wanting := by == unix.SIGTTIN || by == unix.SIGTTOU
	t.mu.Lock()
	if t.due > 0 { // this process stopped with it, and may have gone on since
		t.due = 0
		t.mu.Unlock()
		return
	}
	if wanting && t.give() {
		t.send(unix.SIGCONT)
		t.mu.Unlock()
		return
	}
	t.known = true
	t.mu.Unlock()
	switch {
	case orphaned(): // nobody would let this process go on
		t.signal(unix.SIGCONT)
	case wanting:
		_ = sandbox.SignalJob(unix.SIGTTIN) // the whole job, as if it had read itself
	default:
		_ = sandbox.SignalJob(unix.SIGTSTP)
	}
}

// signal sends a signal to all of the box, and does what it asks of this process.
func (t *terminal) signal(s unix.Signal) {
	t.mu.Lock()
	switch s {
	case unix.SIGTSTP:
		stops := !orphaned()
		if stops && t.tty >= 0 && !t.known {
			t.asked++
			t.due = t.asked
		}
		t.known = false
		if t.tty < 0 {
			s = unix.SIGSTOP // in a session of its own the kernel would ignore the other
		}
		t.send(s)
		if s == unix.SIGSTOP && t.group > 0 {
			// Pid 1 leads the group, and goes on: it ends the box when this process is killed.
			_ = sandbox.Signal(t.group, unix.SIGCONT) // it may just have ended
		}
		t.mu.Unlock()
		if stops {
			if self, err := os.FindProcess(os.Getpid()); err == nil {
				_ = self.Signal(unix.SIGSTOP) // it goes on where it was
			}
		}
		return
	case unix.SIGCONT:
		t.known = false
		if due := t.due; due > 0 {
			time.AfterFunc(lateStop, func() { t.forget(due) })
		}
		if t.given {
			t.give() // unless it has become a job in the background meanwhile
		}
	}
	t.send(s)
	t.mu.Unlock()
}

// forget gives up waiting to be told of a stop.
func (t *terminal) forget(due int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.due == due {
		t.due = 0
	}
}

// send sends a signal to the box's group. mu is held.
func (t *terminal) send(s unix.Signal) {
	if t.group > 0 {
		_ = sandbox.SignalGroup(t.group, s) // it may just have ended
	}
}

// end takes the terminal back, unless somebody else has it by now. It is called
// before the group's number can be another's.
func (t *terminal) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.group = 0
	if !t.given {
		return
	}
	// The last one in the foreground may have been a group that a shell in the box made.
	has, err := unix.IoctlGetInt(t.tty, unix.TIOCGPGRP)
	if err == nil && has != unix.Getpgrp() && (has <= 0 || errors.Is(sandbox.SignalGroup(has, 0), unix.ESRCH)) {
		_ = setForeground(t.tty, unix.Getpgrp())
	}
}

// setForeground gives a terminal to a process group, also from the background.
func setForeground(tty, group int) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	block, before := unix.Sigset_t{}, unix.Sigset_t{}
	block.Val[0] = 1 << (unix.SIGTTOU - 1)
	if err := unix.PthreadSigmask(unix.SIG_BLOCK, &block, &before); err != nil {
		return err
	}
	err := unix.IoctlSetPointerInt(tty, unix.TIOCSPGRP, group)
	if back := unix.PthreadSigmask(unix.SIG_SETMASK, &before, nil); err == nil {
		err = back
	}
	return err
}

// orphaned says whether nobody in this session would let a stopped process of
// this group go on: a shell that leads the session would be its parent.
func orphaned() bool {
	session, err := unix.Getsid(0)
	if err != nil {
		return true
	}
	for pid := os.Getpid(); pid > 1; pid = parentOf(pid) {
		group, err := unix.Getpgid(pid)
		if err != nil {
			return true
		}
		if group != unix.Getpgrp() {
			of, err := unix.Getsid(pid)
			return err != nil || of != session
		}
	}
	return true
}

// parentOf returns the parent of a process; 0 if it cannot be told.
func parentOf(pid int) int {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0
	}
	f := strings.Fields(string(data[strings.LastIndexByte(string(data), ')')+1:]))
	if len(f) < 2 {
		return 0
	}
	n, _ := strconv.Atoi(f[1])
	return n
}

// ofGroup says whether a signal is for all of a box: those that a terminal
// sends, and going on.
func ofGroup(s syscall.Signal) bool {
	switch s {
	case unix.SIGINT, unix.SIGQUIT, unix.SIGTSTP, unix.SIGCONT, unix.SIGWINCH:
		return true
	}
	return false
}
