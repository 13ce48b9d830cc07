package process

import (
	"context"
	"os"

	"cofferdam"
	"cofferdam/sandbox"
)

// OneOff is one command in a process box of its own, without a keeper and
// without state on disk: the box is gone when Run returns. It sees all of the
// host read-only, with credentials unreadable, runs as the caller's own user
// without any capability, and may write its workspace, /tmp, /var/tmp and
// /dev/shm only. Its home folder shows no entry that begins with a dot unless
// Show names it.
type OneOff struct {
	Init string   // absolute path of cofferdam-init
	Argv []string // the program and its arguments; without "/" it is looked up in Env's PATH, in the box
	Env  []string // all of the command's environment; nothing is inherited

	// Workspace is a folder of the host, absolute and without links, that is
	// writable at the same path. "" for none. A folder that holds the caller's
	// home folder, or is it, is refused.
	Workspace string
	// From is the folder of the host that is there; "" is Workspace itself. A
	// copy stands at its original's path.
	From string
	// Writable are more folders, absolute and without links, that are writable at
	// the same path: the repository of a linked worktree of git. At most 8.
	Writable []string
	Dir      string // where the command starts, in the box; "" is Workspace, else "/tmp"

	Home string   // the caller's home folder; "" for none
	Show []string // absolute paths below Home that stay readable although their names begin with a dot
	Hide []string // absolute paths that are hidden besides those that always are; missing ones are no error

	// Files are small read-only files put over what the host has there, such as
	// a bundle of certificates: at most 64, of 4 MiB in all. /etc/resolv.conf is
	// always our own: it names netns.Gateway. Links are refused.
	Files []sandbox.File
	// Over are large read-only files that lie on the host already: what is at the
	// key's path there, which exists, shows the value's file. At most 64.
	Over     map[string]string
	Hostname string           // "" is "box"
	Limits   cofferdam.Limits // Temp is the size of /tmp, OpenFiles of descriptors, PIDs of processes; zero fields are those of sandbox.DefaultLimits. Memory, CPU and Disk are refused: they need the keeper

	// The command's own descriptors, as they are, a terminal too; nil is
	// /dev/null. It has no others. Writing into the terminal's input (TIOCSTI)
	// is refused to it.
	Stdin, Stdout, Stderr *os.File

	// Wire is given the box's network device before the command starts: a
	// non-blocking TAP descriptor with Ethernet frames, which it owns from then
	// on. Its error ends the box, and Run returns it. nil: the box has no network
	// besides loopback.
	Wire func(tap *os.File) error

	// Signals are sent on to the command. What the terminal sends reaches it by
	// itself: it is in the caller's process group. nil for none.
	Signals <-chan os.Signal
}

// Run starts the command, waits for its end and returns how it ended: with
// Exit 126 or 127 and a Reason when it could not be started. When ctx ends,
// the whole box is killed and ctx's error is returned. An error says that
// there was no box: Unavailable for a missing layer, with its fix, or Invalid.
func (o OneOff) Run(ctx context.Context) (sandbox.Result, error) {
	return sandbox.Result{}, &cofferdam.Error{
		Op: "process.Run", Kind: cofferdam.Unavailable, Subject: "box of tier process", Reason: "this build has no walls for it yet",
		Hint: "use a box of tier gvisor", Err: ctx.Err(),
	}
}
