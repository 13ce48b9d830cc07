package cli

import "golang.org/x/sys/unix"

// What reads and sets a terminal's modes on Linux.
const (
	readModes = unix.TCGETS
	setModes  = unix.TCSETS
)
