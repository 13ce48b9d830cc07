package gvisor

import (
	"path"
	"runtime"

	"golang.org/x/sys/unix"

	"cofferdam/sandbox/guest"
	"cofferdam/sandbox/gvisor/assemble"
)

// Two programs lie beside pid 1 in every box, and wait in a box that was made ahead:
//
//	            while the box waits           when somebody asks for it
//	rename      reads its input ............. sets the hostname that it reads, says
//	                                          whether it could, ends
//	standby     reads its descriptor 3 ...... changes to the folder that it reads and
//	                                          becomes the program that it reads
//
// What a first command costs is for the most part a process: the kernel of a box takes
// 3 ms to make one, and 11 to 22 ms to start a program of Go in it, which then holds a
// megabyte for as long as the box waits. So both processes are made before anybody
// waits for them, and are programs that are as small as can be: a few calls of the
// kernel, a page or two of memory. No language that this project is written in makes
// such programs; so they are put together here, call by call, by package assemble.
//
// Neither decides anything, and neither is anything to an attacker: rename has the one
// right that it needs from who starts it, and standby has those of a command.
const (
	renameName  = "rename"
	standbyName = "standby"
)

// hasCode says that there are such programs for this processor. Without them a box has
// its name by cofferdam-init, and its first command is made when it is asked for.
const hasCode = runtime.GOARCH == "amd64"

// standbyPath is guest.Config.Standby of a box; "" where there is none.
func standbyPath() string {
	if !hasCode {
		return ""
	}
	return path.Join("/", programDir, standbyName)
}

// Calls of the kernel by their numbers on amd64, whatever this file is compiled for.
const (
	callRead        = 0
	callWrite       = 1
	callExecve      = 59
	callFcntl       = 72
	callChdir       = 80
	callSethostname = 170
	callExitGroup   = 231
)

// nameRoom is what rename reads at most, in bytes: one more than a name has.
const nameRoom = 65

// renameProgram sets the hostname that it reads from its input, writes one byte, which
// is 0 if it could, and ends.
func renameProgram() []byte {
	const name, answer, end = 0x500000, 0x500000 + 2*nameRoom, 8
	p := assemble.New(name, 2*nameRoom+end)
	p.Call(callRead, assemble.Number(0), assemble.Number(name), assemble.Number(nameRoom))
	p.IfNotPositive("end")
	p.Call(callSethostname, assemble.Number(name), assemble.In(assemble.Result))
	p.Store(answer, assemble.Result) // the first byte of an error is not 0
	p.Call(callWrite, assemble.Number(1), assemble.Number(answer), assemble.Number(1))
	p.Label("end")
	p.Call(callExitGroup, assemble.Number(0))
	return p.File()
}

// standbyProgram becomes what guest.Config.Standby says. If it cannot it writes why, and
// ends when nobody can tell it anything any more.
func standbyProgram() []byte {
	const (
		hear, tell                              = 3, 4 // descriptors
		length                                  = guest.StandbyAt
		folder, program, arguments, environment = length + 8, length + 16, length + 24, length + 32
	)
	p := assemble.New(guest.StandbyAt, guest.StandbyRoom)
	for _, descriptor := range []int{hear, tell} { // that they close says that it became the program
		p.Call(callFcntl, assemble.Number(descriptor), assemble.Number(unix.F_SETFD), assemble.Number(unix.FD_CLOEXEC))
	}
	p.Set(assemble.Kept, assemble.Number(0)) // how many bytes are here

	p.Label("more")
	p.Set(assemble.Second, assemble.Number(guest.StandbyAt))
	p.Add(assemble.Second, assemble.Kept)
	p.Set(assemble.Third, assemble.Number(guest.StandbyRoom))
	p.Subtract(assemble.Third, assemble.Kept)
	p.Call(callRead, assemble.Number(hear)) // behind what is here, as much as there is room for
	p.IfNotPositive("end")
	p.Add(assemble.Kept, assemble.Result)
	p.IfLess(assemble.Kept, assemble.Number(8), "more")
	p.IfLess(assemble.Kept, assemble.At(length), "more")

	p.Call(callChdir, assemble.At(folder))
	p.IfNotZero("failed")
	p.Call(callExecve, assemble.At(program), assemble.At(arguments), assemble.At(environment)) // returns only if it cannot

	p.Label("failed")
	p.Store(length, assemble.Result)
	p.Call(callWrite, assemble.Number(tell), assemble.Number(length), assemble.Number(4))
	p.Call(callRead, assemble.Number(hear), assemble.Number(length), assemble.Number(1))
	p.Label("end")
	p.Call(callExitGroup, assemble.Number(0))
	return p.File()
}
