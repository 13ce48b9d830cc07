// Package wall is how pid 1 of a process box closes itself in: it puts the
// root folder together, leaves the host's behind, raises the network device
// and takes every right from the thread that starts commands.
//
// It is linked into cofferdam-init, so it imports nothing but system calls, and
// it decides nothing: a Plan says it all. Its invariant: Build and Confine
// either do all that they are asked for or return an Error that names the layer;
// nothing is left out because the kernel lacks it.
//
// # The talk at the start
//
// The caller starts cofferdam-init as "cofferdam-init --box S P": S is a
// descriptor of one end of a SOCK_SEQPACKET pair, P one of a file with the plan.
// With WireFirst behind them the network device of a one-off box is made before the
// first "go on", while the caller still plans the rest. Each message to the caller is
// the JSON of Report; with Report.Wire the TAP descriptor comes along. The caller sends
// single bytes: 0 is "go on", what pid 1 waits for before it begins and after
// Report.Wire; any other is a signal for the command alone, and comes to nothing before
// there is one. The command is in the process group of pid 1,
// which is one of their own, so that a signal to the group, as a terminal sends
// it, reaches what the command has started too, and one that the command sends
// to its own group reaches nothing outside.
package wall

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
)

// WireFirst is the last argument of a pid 1 that begins with its network device.
const WireFirst = "wire"

// Layers of a box, as errors and findings name them.
const (
	LayerMount    = "mount-namespace"
	LayerNetwork  = "network-namespace"
	LayerTAP      = "tun-device"
	LayerLandlock = "landlock"
	LayerSeccomp  = "seccomp"
	LayerRights   = "capabilities"
)

// Kind is what a Mount makes.
type Kind string

// The kinds.
const (
	Dir     Kind = "dir"     // a folder
	File    Kind = "file"    // a file with bytes of the plan; over what a bind has there, if anything
	Link    Kind = "link"    // a symbolic link to From
	Bind    Kind = "bind"    // From of the host, with all below it
	Memory  Kind = "memory"  // a tmpfs of Size bytes
	Hidden  Kind = "hidden"  // what is there, if anything, becomes empty and closed
	Deaf    Kind = "deaf"    // a folder stays as it is, but no socket in it hears and what is hidden in it stays so; where the kernel can
	Process Kind = "process" // /proc
	Devices Kind = "devices" // /dev
)

// Mount is one step of making the root folder.
type Mount struct {
	Kind     Kind   `json:"k"`
	To       string `json:"t"`           // absolute, in the box
	From     string `json:"f,omitempty"` // of the host; the target of a link
	Write    bool   `json:"w,omitempty"` // a bind that may be written
	Optional bool   `json:"o,omitempty"` // a bind of what may be missing or closed to the caller
	Size     int64  `json:"s,omitempty"` // bytes: of memory; of a file
	At       int64  `json:"a,omitempty"` // of a file: where its bytes begin in the plan's data
	Mode     uint32 `json:"m,omitempty"`
	UID      int    `json:"u,omitempty"` // owner of memory
}

// Instruction is one of a classic BPF program.
type Instruction struct {
	Code   uint16
	Jt, Jf uint8
	K      uint32
}

// Command is what pid 1 of a one-off box runs. Its strings are bytes, not text:
// nothing is changed.
type Command struct {
	Argv, Env []string
	Dir       string
}

// commandBytes is a command in a plan: JSON's own strings are text.
type commandBytes struct {
	Argv [][]byte `json:"argv"`
	Env  [][]byte `json:"env"`
	Dir  []byte   `json:"dir"`
}

// MarshalJSON implements json.Marshaler.
func (c Command) MarshalJSON() ([]byte, error) {
	list := func(from []string) [][]byte {
		to := make([][]byte, len(from))
		for i, s := range from {
			to[i] = []byte(s)
		}
		return to
	}
	return json.Marshal(commandBytes{list(c.Argv), list(c.Env), []byte(c.Dir)})
}

// UnmarshalJSON implements json.Unmarshaler.
func (c *Command) UnmarshalJSON(p []byte) error {
	var b commandBytes
	if err := json.Unmarshal(p, &b); err != nil {
		return err
	}
	list := func(from [][]byte) []string {
		to := make([]string, len(from))
		for i, s := range from {
			to[i] = string(s)
		}
		return to
	}
	c.Argv, c.Env, c.Dir = list(b.Argv), list(b.Env), string(b.Dir)
	return nil
}

// Plan is all that a box is made of.
type Plan struct {
	Hostname string        `json:"hostname"`
	Mounts   []Mount       `json:"mounts"`
	TAP      bool          `json:"tap,omitempty"`    // make the network device here and hand it over
	Joined   bool          `json:"joined,omitempty"` // the network namespace is another's, who made its devices
	Write    []string      `json:"write"`            // folders that Landlock lets commands write
	Filter   []Instruction `json:"-"`                // of system calls
	Keep     uint64        `json:"keep,omitempty"`   // capabilities that the thread that starts commands keeps, as bits
	Files    int64         `json:"files,omitempty"`  // RLIMIT_NOFILE; 0: as inherited
	PIDs     int64         `json:"pids,omitempty"`   // RLIMIT_NPROC; 0: as inherited
	Command  *Command      `json:"command,omitempty"`

	Data []byte `json:"-"` // bytes of its files
}

// Report is a message of pid 1 to who started it.
type Report struct {
	Error string `json:"error,omitempty"` // there is no box
	Layer string `json:"layer,omitempty"` // which is missing, if one is
	Wire  bool   `json:"wire,omitempty"`  // the TAP descriptor comes with it
	Built bool   `json:"built,omitempty"` // every wall is up
	// Of a one-off command:
	Stopped int    `json:"stopped,omitempty"` // by which signal; it goes on when it is told to
	Ended   bool   `json:"ended,omitempty"`
	Exit    int    `json:"exit,omitempty"`
	Signal  int    `json:"signal,omitempty"`
	Reason  string `json:"reason,omitempty"`
}

// Error is a wall that could not be built.
type Error struct {
	Layer string
	Err   error
}

// Error implements error.
func (e *Error) Error() string { return e.Layer + ": " + e.Err.Error() }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Encode writes the plan as a file: u32 length of the JSON, JSON, u32 number of
// instructions, those as u16, u8, u8 and u32, and the data. All numbers are big
// endian. As JSON the instructions would take half of pid 1's time to read.
func (p Plan) Encode() ([]byte, error) {
	head, err := json.Marshal(p)
	if err != nil {
		return nil, fmt.Errorf("encode plan: %w", err)
	}
	b := binary.BigEndian.AppendUint32(make([]byte, 0, 8+len(head)+instructionSize*len(p.Filter)+len(p.Data)), uint32(len(head)))
	b = binary.BigEndian.AppendUint32(append(b, head...), uint32(len(p.Filter)))
	for _, x := range p.Filter {
		b = binary.BigEndian.AppendUint32(append(binary.BigEndian.AppendUint16(b, x.Code), x.Jt, x.Jf), x.K)
	}
	return append(b, p.Data...), nil
}

// instructionSize is that of one instruction in a plan, in bytes.
const instructionSize = 8

// take cuts size*u32 bytes off the front of b, after their number.
func take(b []byte, size uint64) (part, rest []byte, err error) {
	if len(b) < 4 || uint64(binary.BigEndian.Uint32(b))*size > uint64(len(b)-4) {
		return nil, nil, fmt.Errorf("read plan: %d bytes are too few", len(b))
	}
	n := 4 + uint64(binary.BigEndian.Uint32(b))*size
	return b[4:n], b[n:], nil
}

// Decode is the reverse of Encode.
func Decode(b []byte) (Plan, error) {
	var p Plan
	head, b, err := take(b, 1)
	if err != nil {
		return p, err
	}
	if err := json.Unmarshal(head, &p); err != nil {
		return p, fmt.Errorf("read plan: %w", err)
	}
	filter, data, err := take(b, instructionSize)
	if err != nil {
		return p, err
	}
	for i := 0; i < len(filter); i += instructionSize {
		x := filter[i:]
		p.Filter = append(p.Filter, Instruction{binary.BigEndian.Uint16(x), x[2], x[3], binary.BigEndian.Uint32(x[4:])})
	}
	p.Data = data
	for _, m := range p.Mounts {
		if m.Kind == File && (m.At < 0 || m.Size < 0 || m.At > int64(len(p.Data)) || m.Size > int64(len(p.Data))-m.At) {
			return p, fmt.Errorf("read plan: the bytes of %s are not in it", m.To)
		}
	}
	return p, nil
}
