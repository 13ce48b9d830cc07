package process

import (
	"os"
	"path/filepath"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// modeCall is a system call that gives a file its mode.
type modeCall struct {
	number, mode, flags uint32 // the last two are which arguments; flags 0: it has none
	change              bool   // of what is there, which may be a folder
}

var modeCalls = append([]modeCall{
	{unix.SYS_FCHMOD, 1, 0, true}, {unix.SYS_FCHMODAT, 2, 0, true}, {unix.SYS_FCHMODAT2, 2, 0, true}, {unix.SYS_MKNODAT, 2, 0, false}, {unix.SYS_OPENAT, 3, 2, false},
}, modeCallsHere...)

// onceProgram is the filter of a one-off box, whose workspace is a folder of the
// host: a program there that runs as its owner or its group, whoever starts it,
// would give every other user of the host the rights of the caller. In a folder
// that a group shares, folders are set-group-id so that what is made in them is the
// group's, and no filter sees whether a folder is meant: there that bit may be set
// where something is. openat2 does not exist, because its mode lies where no filter
// can read it.
func onceProgram(shared bool) []bpf.Instruction {
	p := program()
	p, last := p[:len(p)-1], p[len(p)-1]
	at := func(argument uint32) bpf.Instruction { return bpf.LoadAbsolute{Off: argument0 + 8*argument, Size: 4} }
	for _, c := range modeCalls {
		bits := uint32(unix.S_ISUID | unix.S_ISGID)
		if shared && c.change {
			bits = unix.S_ISUID
		}
		made := []bpf.Instruction{
			at(c.mode),
			bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: bits, SkipFalse: 1},
			bpf.RetConstant{Val: refuse | uint32(unix.EPERM)},
			bpf.RetConstant{Val: allow},
		}
		if c.flags != 0 { // without these the mode is whatever the register held
			const tmpfile = unix.O_TMPFILE &^ unix.O_DIRECTORY
			made = append([]bpf.Instruction{at(c.flags), bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: unix.O_CREAT | tmpfile, SkipFalse: 3}}, made...)
		}
		p = append(append(p, bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: c.number, SkipTrue: uint8(len(made))}), made...)
	}
	return append(p, bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.SYS_OPENAT2, SkipTrue: 1}, bpf.RetConstant{Val: refuse | uint32(unix.ENOSYS)}, last)
}

// sharedFolder says whether a group shares a folder of a project: it, or git's
// folder in it, makes what is in it the group's. A link there may be one that an
// earlier command made, to some folder of the host's that a group shares.
func sharedFolder(workspace string) bool {
	if workspace == "" {
		return false
	}
	shared := func(info os.FileInfo, err error) bool {
		return err == nil && info.IsDir() && info.Mode()&os.ModeSetgid != 0
	}
	return shared(os.Stat(workspace)) || shared(os.Lstat(filepath.Join(workspace, ".git")))
}
