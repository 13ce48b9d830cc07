package main

import (
	"os"
	"os/signal"

	"golang.org/x/sys/unix"
)

// sendable are the signals that a process may send and that would end this one.
// Those by which a processor tells of a fault are among them: Go crashes on one
// that somebody sent as it does on a real one, unless it is asked for.
var sendable = []os.Signal{
	unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGTERM, unix.SIGPIPE, unix.SIGUSR1, unix.SIGUSR2, unix.SIGALRM, unix.SIGTSTP, unix.SIGTTIN, unix.SIGTTOU,
	unix.SIGILL, unix.SIGTRAP, unix.SIGABRT, unix.SIGBUS, unix.SIGFPE, unix.SIGSEGV, unix.SIGSTKFLT, unix.SIGSYS,
	unix.SIGXCPU, unix.SIGXFSZ, unix.SIGVTALRM, unix.SIGIO, unix.SIGPWR,
}

// mindSignals keeps signals that somebody sends from ending this process; a fault
// of its own ends it. Caught signals are back to their default in a command,
// ignored ones would not be.
func mindSignals() { signal.Notify(make(chan os.Signal, 1), sendable...) }
