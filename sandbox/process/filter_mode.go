package process

import (
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// modeCall is a system call that gives a file its mode.
type modeCall struct{ number, mode, flags uint32 } // which arguments; flags 0: it has none

var modeCalls = append([]modeCall{
	{unix.SYS_FCHMOD, 1, 0}, {unix.SYS_FCHMODAT, 2, 0}, {unix.SYS_FCHMODAT2, 2, 0}, {unix.SYS_MKNODAT, 2, 0}, {unix.SYS_OPENAT, 3, 2},
}, modeCallsHere...)

// onceProgram is the filter of a one-off box, whose workspace is a folder of the
// host: a program there that runs as its owner, whoever starts it, would give
// every other user of the host the rights of the caller. openat2 does not exist,
// because its mode lies where no filter can read it.
func onceProgram() []bpf.Instruction {
	p := program()
	p, last := p[:len(p)-1], p[len(p)-1]
	at := func(argument uint32) bpf.Instruction { return bpf.LoadAbsolute{Off: argument0 + 8*argument, Size: 4} }
	for _, c := range modeCalls {
		made := []bpf.Instruction{
			at(c.mode),
			bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: unix.S_ISUID, SkipFalse: 1},
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
