package cli

import "golang.org/x/sys/unix"

// What reads and sets a terminal's modes on a Mac.
const (
	readModes = unix.TIOCGETA
	setModes  = unix.TIOCSETA
)
