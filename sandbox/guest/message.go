package guest

import (
	"encoding/binary"
	"fmt"
	"time"

	"cofferdam/sandbox"
)

// Config is what pid 1 is told first.
type Config struct {
	Version int `json:"version"` // set by NewHost
	UID     int `json:"uid"`     // of every command; 0 is refused
	GID     int `json:"gid"`
	// Unbounded is for the test-only driver without a boundary: commands run as
	// pid 1's own user, root, and UID and GID are not looked at.
	Unbounded bool `json:"unbounded,omitempty"`
	// OpenFiles is RLIMIT_NOFILE of every command, and of pid 1, which needs
	// three for each running command; PIDs is RLIMIT_NPROC. 0: as inherited.
	OpenFiles int64 `json:"open_files,omitempty"`
	PIDs      int64 `json:"pids,omitempty"`
	// Sized are folders in memory with a size of their own. A command that ran
	// while one was full is told to have met sandbox.ExhaustedTemp.
	Sized []string `json:"sized,omitempty"`
	// OwnKernel says that pid 1's kernel is the box's alone: pid 1 bounds the
	// commands' processes and memory itself, says which limit they met, and stops
	// them while the talk is quiet. Disks are folders that are disks of the box.
	OwnKernel bool     `json:"own_kernel,omitempty"`
	Disks     []string `json:"disks,omitempty"`
	// FewIDs says that the box's user namespace has no ids above 65,535: groups
	// that mark commands are above FewBase.
	FewIDs bool `json:"few_ids,omitempty"`
	// Standby is a program that pid 1 starts at once, in the place of the first
	// command: most of what a process costs to make is paid before anybody asks. It
	// reads what it is to be from descriptor 3, chdirs and becomes that; descriptor 4,
	// which closes when it has, takes why it could not: an int32, the negative error
	// number. At StandbyAt it has room for StandbyRoom bytes, and that is where what it
	// reads will be: u64 length of all, then the addresses of the folder, of the program
	// and of the lists of arguments and environment, as execve wants them, then these,
	// little endian. "": every command is made when it is asked for.
	Standby string `json:"standby,omitempty"`
	// Identity is who the box is. Its zero value changes nothing.
	Identity Identity `json:"identity"`
}

// Identity is what a box is told of itself, at its start and whenever it goes
// on as another: as a copy, or as one that was made ahead.
type Identity struct {
	// Dir is a folder that only pid 1 can write; its files hostname, hosts and
	// machine-id are what the box's /etc leads to. "" writes none of them.
	Dir       string `json:"dir,omitempty"`
	Hostname  string `json:"hostname,omitempty"`
	MachineID string `json:"machine_id,omitempty"` // 32 hexadecimal digits
	// Time and Seed are for a box with a kernel of its own, whose clock and
	// entropy are what they were when it was written down.
	Time time.Time `json:"time,omitzero"`
	Seed []byte    `json:"seed,omitempty"`
}

// Awake answers a wake.
type Awake struct {
	Error string `json:"error,omitempty"` // why the identity is not the one asked for
}

// Hello is pid 1's first word.
type Hello struct {
	Version int    `json:"version"`
	PID     int    `json:"pid"`
	Error   string `json:"error,omitempty"` // why it cannot serve
}

// Exit is how the first process of a command ended, or why there was none.
type Exit struct {
	Exit   int    `json:"exit"`
	Signal int    `json:"signal,omitempty"`
	Reason string `json:"reason,omitempty"`
	// Met are limits that pid 1 saw met while the command ran: temp, pids and
	// open files. What is met and left between two looks is not seen.
	Met []sandbox.Exhaustion `json:"met,omitempty"`
}

// Killed answers a kill.
type Killed struct {
	Left int `json:"left"` // processes that could not be ended in time
}

// Start is one command as pid 1 sees it.
type Start struct {
	Stdin bool
	Dir   string
	Argv  []string
	Env   []string
}

// Where a standby reads to, and how much it takes.
const (
	StandbyAt   = 0x500000
	StandbyRoom = 64 << 10 // bytes; those of a pipe, so that to tell it never waits
)

// MarkBase and a command's number make the group id that marks every process
// of that command. Processes cannot drop or change a supplementary group
// without CAP_SETGID, which none of them has.
const MarkBase = 1 << 30

// FewBase is what MarkBase is where ids end at 65,535, as in the range of an
// ordinary user: there MaxCommands ids above it are those of marks.
const FewBase = 40_000

// Mark is the group that marks the processes of a command.
func Mark(command uint32, fewIDs bool) uint32 {
	if fewIDs {
		return FewBase + command
	}
	return MarkBase + command
}

// Marked returns MarkBase and the number of the command that a group marks; 0 if
// it marks none.
func Marked(group uint32) uint32 {
	switch {
	case group > MarkBase && group <= MarkBase+1<<24:
		return group
	case group > FewBase && group <= FewBase+MaxCommands:
		return MarkBase + group - FewBase
	}
	return 0
}

// AppendStart appends s as the package comment says.
func AppendStart(b []byte, s Start) []byte {
	var flags byte
	if s.Stdin {
		flags = 1
	}
	b = append(b, flags)
	b = appendString(b, s.Dir)
	for _, list := range [][]string{s.Argv, s.Env} {
		b = binary.BigEndian.AppendUint32(b, uint32(len(list)))
		for _, v := range list {
			b = appendString(b, v)
		}
	}
	return b
}

// ParseStart is the reverse of AppendStart.
func ParseStart(p []byte) (Start, error) {
	d := decoder{p: p}
	flags := d.byte()
	s := Start{Stdin: flags&1 != 0, Dir: d.string(), Argv: d.list(), Env: d.list()}
	if d.bad || len(d.p) != 0 || flags > 1 {
		return Start{}, fmt.Errorf("%w: start frame", ErrProtocol)
	}
	return s, nil
}

func appendString(b []byte, s string) []byte {
	return append(binary.BigEndian.AppendUint32(b, uint32(len(s))), s...)
}

// decoder takes values off the front of p; bad is set once p was too short.
type decoder struct {
	p   []byte
	bad bool
}

func (d *decoder) take(n uint64) []byte {
	if d.bad || n > uint64(len(d.p)) {
		d.bad = true
		return nil
	}
	v := d.p[:n]
	d.p = d.p[n:]
	return v
}

func (d *decoder) byte() byte {
	if v := d.take(1); v != nil {
		return v[0]
	}
	return 0
}

func (d *decoder) uint32() uint32 {
	if v := d.take(4); v != nil {
		return binary.BigEndian.Uint32(v)
	}
	return 0
}

func (d *decoder) string() string { return string(d.take(uint64(d.uint32()))) }

func (d *decoder) list() []string {
	n := d.uint32()
	if uint64(n)*4 > uint64(len(d.p)) { // each needs its length at least
		d.bad = true
		return nil
	}
	list := make([]string, 0, n)
	for range n {
		list = append(list, d.string())
	}
	return list
}

// Limit says up to which offset of a stream may be sent.
type Limit struct {
	Stream byte // 0 for standard input
	Offset int64
}

// AppendLimit appends l: u8 stream and u64 offset.
func AppendLimit(b []byte, l Limit) []byte {
	return binary.BigEndian.AppendUint64(append(b, l.Stream), uint64(l.Offset))
}

// ParseLimit is the reverse of AppendLimit.
func ParseLimit(p []byte) (Limit, error) {
	if len(p) != 9 {
		return Limit{}, fmt.Errorf("%w: limit frame", ErrProtocol)
	}
	return Limit{Stream: p[0], Offset: int64(binary.BigEndian.Uint64(p[1:]))}, nil
}
