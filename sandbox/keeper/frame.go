package keeper

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"

	"golang.org/x/sys/unix"

	"cofferdam"
	"cofferdam/sandbox"
)

// Version is spoken by both ends; they refuse any other. A change of the frames,
// of a call or of what a word in one means takes the next.
const Version = 4

// Bounds of a connection.
const (
	// maxJSON bounds a request or reply: a Command holds at most 4 MiB, which
	// base64 makes a third longer.
	maxJSON = 8 << 20
	// chunk is the most data in one frame.
	chunk = 256 << 10
	// dataHeader is stream and offset.
	dataHeader = 9
)

// frameKind says what a frame is.
type frameKind byte

const (
	kindJSON frameKind = 1
	kindData frameKind = 2
	kindAck  frameKind = 3
)

// hello is the first word of both ends. It stays as it is in every version: by
// it each learns whom it meets.
type hello struct {
	Protocol string     `json:"protocol"`
	Version  int        `json:"version"`
	Error    *wireError `json:"error,omitempty"`
}

const protocolName = "cofferdam-keeper"

// op names a call.
type op string

const (
	opHello   op = "hello" // who it is
	opClaim   op = "claim" // from now on no other client changes anything
	opDrain   op = "drain" // no new boxes; it ends with the last one
	opCheck   op = "check"
	opCreate  op = "create"
	opOpen    op = "open"
	opList    op = "list"
	opStatus  op = "status"
	opStart   op = "start"
	opAttach  op = "attach"
	opWrite   op = "write"
	opKill    op = "kill"
	opJobs    op = "jobs"
	opWire    op = "wire"
	opDestroy op = "destroy"

	opWait     op = "wait"
	opPause    op = "pause"
	opSuspend  op = "suspend"
	opResume   op = "resume"
	opSnapshot op = "snapshot"
	opForget   op = "forget" // a snapshot
	opOffers   op = "offers"

	opWorkspaces op = "workspaces"
	opDrop       op = "drop" // a workspace

	opSnapshots   op = "snapshots"
	opSign        op = "sign" // a snapshot
	opDifferences op = "differences"
	opRestore     op = "restore" // a workspace
)

// changes says whether a call may change anything: those need the fencing token
// of the client that claimed the keeper last. An attachment is one of them, for
// what is acknowledged is given up.
func (o op) changes() bool {
	switch o {
	case opHello, opClaim, opCheck, opList, opOffers, opOpen, opStatus, opJobs, opWait, opWorkspaces, opSnapshots:
		return false
	}
	return true
}

type request struct {
	Op      op               `json:"op"`
	Token   string           `json:"token,omitempty"` // of the claim
	Box     cofferdam.BoxID  `json:"box,omitempty"`
	Exec    cofferdam.ExecID `json:"exec,omitempty"`
	Spec    *sandbox.Spec    `json:"spec,omitempty"`
	Command *wireCommand     `json:"command,omitempty"`
	From    sandbox.Offsets  `json:"from"`
	Size    int64            `json:"size,omitempty"` // write: bytes that follow
	EOF     bool             `json:"eof,omitempty"`

	States   []sandbox.BoxState `json:"states,omitempty"`
	Snapshot sandbox.SnapshotID `json:"snapshot,omitempty"`

	Workspace sandbox.WorkspaceID `json:"workspace,omitempty"`

	Take    *sandbox.Take    `json:"take,omitempty"`
	Note    []byte           `json:"note,omitempty"`
	Compare *sandbox.Compare `json:"compare,omitempty"`
	Restore *sandbox.Restore `json:"restore,omitempty"`
}

type reply struct {
	Workspaces  []sandbox.Workspace  `json:"workspaces,omitempty"`
	Snapshots   []sandbox.Snapshot   `json:"snapshots,omitempty"`
	Differences *sandbox.Differences `json:"differences,omitempty"`

	Error    *wireError         `json:"error,omitempty"`
	Findings []sandbox.Finding  `json:"findings,omitempty"`
	Status   *sandbox.Status    `json:"status,omitempty"`
	List     []sandbox.Status   `json:"list,omitempty"`
	Result   *sandbox.Result    `json:"result,omitempty"`
	Change   *sandbox.Change    `json:"change,omitempty"`
	Jobs     []cofferdam.BoxJob `json:"jobs,omitempty"`
	Snapshot *sandbox.Snapshot  `json:"snapshot,omitempty"`
	Offers   []sandbox.Offer    `json:"offers,omitempty"`
	Info     *Info              `json:"info,omitempty"`
	Token    string             `json:"token,omitempty"`
}

// Info is what a keeper says of itself.
type Info struct {
	Build    string   `json:"build"`          // of its programs: BuildOf
	Process  int      `json:"process"`        // its id on this host
	State    string   `json:"state"`          // its folder
	Boxes    int      `json:"boxes"`          // it has now, or is making
	Draining bool     `json:"draining"`       // it makes no more, and ends with the last
	Args     []string `json:"args,omitempty"` // flags of its start, without those that name places
}

// wireCommand is a sandbox.Command whose strings are bytes: JSON would change
// what is not UTF-8.
type wireCommand struct {
	sandbox.Command          // without Argv, Shell, Dir and Env
	ArgvBytes       [][]byte `json:"argv_bytes,omitempty"`
	ShellBytes      []byte   `json:"shell_bytes,omitempty"`
	DirBytes        []byte   `json:"dir_bytes,omitempty"`
	EnvBytes        [][]byte `json:"env_bytes,omitempty"`
}

func packCommand(c sandbox.Command) *wireCommand {
	w := &wireCommand{Command: c, ArgvBytes: toBytes(c.Argv), ShellBytes: []byte(c.Shell), DirBytes: []byte(c.Dir), EnvBytes: toBytes(c.Env)}
	w.Argv, w.Shell, w.Dir, w.Env = nil, "", "", nil
	return w
}

func (w *wireCommand) unpack() sandbox.Command {
	c := w.Command
	c.Argv, c.Shell, c.Dir, c.Env = toStrings(w.ArgvBytes), string(w.ShellBytes), string(w.DirBytes), toStrings(w.EnvBytes)
	return c
}

func toBytes(list []string) [][]byte {
	var out [][]byte
	for _, s := range list {
		out = append(out, []byte(s))
	}
	return out
}

func toStrings(list [][]byte) []string {
	var out []string
	for _, b := range list {
		out = append(out, string(b))
	}
	return out
}

// wireError carries a cofferdam.Error with its kind and hint.
type wireError struct {
	Kind    string `json:"kind"`
	Op      string `json:"op,omitempty"`
	Subject string `json:"subject,omitempty"`
	Reason  string `json:"reason,omitempty"`
	Hint    string `json:"hint,omitempty"`
	Cause   string `json:"cause,omitempty"`
}

func packError(err error) *wireError {
	if err == nil {
		return nil
	}
	var e *cofferdam.Error
	if !errors.As(err, &e) {
		return &wireError{Kind: cofferdam.Internal.String(), Op: "keeper.Serve", Reason: err.Error()}
	}
	w := &wireError{Kind: e.Kind.String(), Op: e.Op, Subject: e.Subject, Reason: e.Reason, Hint: e.Hint}
	if e.Err != nil {
		w.Cause = e.Err.Error()
	}
	return w
}

func (w *wireError) unpack() error {
	if w == nil {
		return nil
	}
	e := &cofferdam.Error{Op: w.Op, Kind: cofferdam.ParseKind(w.Kind), Subject: w.Subject, Reason: w.Reason, Hint: w.Hint}
	if w.Cause != "" {
		e.Err = errors.New(w.Cause)
	}
	return e
}

// frame is one message; its payload is its own.
type frame struct {
	kind    frameKind
	payload []byte
}

func frameHeader(kind frameKind, size int) []byte {
	return append(binary.BigEndian.AppendUint32(nil, uint32(size+1)), byte(kind))
}

func writeJSON(w io.Writer, v any) error {
	p, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if len(p) > maxJSON {
		return &cofferdam.Error{
			Op: "keeper.Send", Kind: cofferdam.Invalid, Subject: "call keeper",
			Reason: fmt.Sprintf("message of %d bytes is over %d", len(p), maxJSON),
		}
	}
	_, err = w.Write(append(frameHeader(kindJSON, len(p)), p...))
	return err
}

func writeData(w *net.UnixConn, s sandbox.Stream, off int64, p []byte) error {
	h := append(frameHeader(kindData, dataHeader+len(p)), byte(s))
	h = binary.BigEndian.AppendUint64(h, uint64(off))
	b := net.Buffers{h, p}
	_, err := b.WriteTo(w)
	return err
}

func writeAck(w io.Writer) error {
	_, err := w.Write(frameHeader(kindAck, 0))
	return err
}

// readFrame reads one frame; errBroken if it is none.
func readFrame(r io.Reader) (frame, error) {
	var h [5]byte
	if _, err := io.ReadFull(r, h[:]); err != nil {
		return frame{}, err
	}
	n, most := int64(binary.BigEndian.Uint32(h[:4]))-1, int64(0)
	switch frameKind(h[4]) {
	case kindJSON:
		most = maxJSON
	case kindData:
		most = dataHeader + chunk
	}
	if n < 0 || n > most {
		return frame{}, fmt.Errorf("%w: frame of kind %d with %d bytes", errBroken, h[4], n)
	}
	f := frame{kind: frameKind(h[4]), payload: make([]byte, n)}
	if _, err := io.ReadFull(r, f.payload); err != nil {
		return frame{}, io.ErrUnexpectedEOF
	}
	return f, nil
}

var errBroken = errors.New("keeper protocol broken")

// json reads the frame into v; unknown fields are of another version.
func (f frame) json(v any) error {
	if f.kind != kindJSON {
		return fmt.Errorf("%w: kind %d instead of JSON", errBroken, f.kind)
	}
	if err := json.Unmarshal(f.payload, v); err != nil {
		return fmt.Errorf("%w: %w", errBroken, err)
	}
	return nil
}

// data splits a data frame.
func (f frame) data() (s sandbox.Stream, off int64, p []byte, err error) {
	if f.kind != kindData || len(f.payload) < dataHeader {
		return 0, 0, nil, fmt.Errorf("%w: kind %d instead of data", errBroken, f.kind)
	}
	return sandbox.Stream(f.payload[0]), int64(binary.BigEndian.Uint64(f.payload[1:])), f.payload[dataHeader:], nil
}

// writeWithFile writes a reply on which a descriptor rides.
func writeWithFile(c *net.UnixConn, v reply, file *os.File) error {
	p, err := json.Marshal(v)
	if err != nil {
		return err
	}
	raw, err := file.SyscallConn() // Fd would make the shared description block
	if err != nil {
		return err
	}
	msg := append(frameHeader(kindJSON, len(p)), p...)
	var n int
	var writeErr error
	if err := raw.Control(func(fd uintptr) {
		n, _, writeErr = c.WriteMsgUnix(msg, unix.UnixRights(int(fd)), nil)
	}); err != nil {
		return err
	}
	if writeErr == nil && n < len(msg) {
		_, writeErr = c.Write(msg[n:])
	}
	return writeErr
}

// fileReader reads a connection and keeps the one descriptor that may ride on it.
type fileReader struct {
	conn *net.UnixConn
	file *os.File
}

func (r *fileReader) Read(p []byte) (int, error) {
	oob := make([]byte, unix.CmsgSpace(4))
	n, oobn, _, _, err := r.conn.ReadMsgUnix(p, oob)
	if oobn > 0 {
		if e := r.keep(oob[:oobn]); err == nil {
			err = e
		}
	}
	if n == 0 && err == nil {
		err = io.EOF
	}
	return n, err
}

func (r *fileReader) keep(oob []byte) error {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return fmt.Errorf("read control message: %w", err)
	}
	for i := range messages {
		fds, err := unix.ParseUnixRights(&messages[i])
		if err != nil {
			continue
		}
		for _, fd := range fds {
			if r.file != nil {
				unix.Close(fd)
				continue
			}
			r.file = os.NewFile(uintptr(fd), "tap")
		}
	}
	return nil
}
