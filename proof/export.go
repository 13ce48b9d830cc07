package proof

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash"
	"io"
	"strconv"
	"strings"
	"time"

	"cofferdam"
)

// ExportSchema is the schema of the exports that Export writes. Those of the version
// before, in which there is no policy, hold as well.
const (
	ExportSchema = "cofferdam/export/v2"
	exportBefore = "cofferdam/export/v1"
)

const exportTitle = "cofferdam export v1"

// line is a line of an export that is not an event of a session. Each type uses
// the fields that the package comment names, and no others.
type line struct {
	Type    string              `json:"type"`
	Schema  string              `json:"schema,omitempty"`
	Time    *time.Time          `json:"time,omitempty"`
	Key     string              `json:"key,omitempty"` // name of the signing key; a hint for people, never trusted
	Task    cofferdam.TaskID    `json:"task,omitempty"`
	Session cofferdam.SessionID `json:"session,omitempty"`
	Note    string              `json:"note,omitempty"`
	Text    string              `json:"text,omitempty"`
	Index   *uint64             `json:"index,omitempty"`
	Proof   []Hash              `json:"proof,omitempty"`
	Event   json.RawMessage     `json:"event,omitempty"` // last, as stored
}

// The types of line.
const (
	lineHeader  = "header"
	lineSession = "session"
	lineSeal    = "seal"
	lineHost    = "host"
	lineEntry   = "entry"
	linePolicy  = "policy"
	lineReceipt = "receipt"
	lineEnd     = "end"
)

// Export writes an export, the counterpart of Verify. Its methods are called in
// the order of the package comment; the first error stays, and End returns it.
type Export struct {
	out   *bufio.Writer
	hash  hash.Hash
	key   Signer
	task  cofferdam.TaskID
	lines uint64
	err   error
}

// NewExport begins an export of task on w.
func NewExport(w io.Writer, key Signer, task cofferdam.TaskID, at time.Time) *Export {
	return newExport(w, key, task, at, ExportSchema)
}

func newExport(w io.Writer, key Signer, task cofferdam.TaskID, at time.Time, schema string) *Export {
	x := &Export{out: bufio.NewWriterSize(w, 1<<16), hash: sha256.New(), key: key, task: task}
	at = at.UTC().Round(0)
	_ = x.put(line{Type: lineHeader, Schema: schema, Time: &at, Key: key.Name(), Task: task})
	return x
}

// Session begins the events of a session.
func (x *Export) Session(id cofferdam.SessionID) error {
	return x.put(line{Type: lineSession, Session: id})
}

// Event adds one event of the session as stored, without its newline.
func (x *Export) Event(stored []byte) error { return x.raw(stored) }

// Seal ends a session that is sealed with its signed head.
func (x *Export) Seal(note []byte) error { return x.put(line{Type: lineSeal, Note: string(note)}) }

// Host begins the events of the host's log with its signed head.
func (x *Export) Host(note []byte) error { return x.put(line{Type: lineHost, Note: string(note)}) }

// Entry adds one event of the host's log as stored, with its proof.
func (x *Export) Entry(index uint64, proof []Hash, stored []byte) error {
	return x.put(line{Type: lineEntry, Index: &index, Proof: proof, Event: stored})
}

// Policy adds a document by which a session was judged: the signed change by which
// it came to count, and its text.
func (x *Export) Policy(d SignedPolicy) error {
	return x.put(line{Type: linePolicy, Note: string(d.Note), Text: d.Text})
}

// Receipt adds a signed receipt.
func (x *Export) Receipt(note []byte) error {
	return x.put(line{Type: lineReceipt, Note: string(note)})
}

// End signs what was written and writes it all out.
func (x *Export) End() error {
	if x.err != nil {
		return x.err
	}
	var sum Hash
	x.hash.Sum(sum[:0])
	note, err := x.key.sign(endText(x.task, x.lines, sum))
	if err != nil {
		return err
	}
	if err := x.put(line{Type: lineEnd, Note: string(note)}); err != nil {
		return err
	}
	return x.out.Flush()
}

// endText is what the end of an export signs.
func endText(task cofferdam.TaskID, lines uint64, sum Hash) string {
	return strings.Join([]string{
		exportTitle, "task " + string(task), "lines " + strconv.FormatUint(lines, 10), "sha256 " + hex.EncodeToString(sum[:]), "",
	}, "\n")
}

func (x *Export) put(l line) error {
	if x.err != nil {
		return x.err
	}
	b, err := encode(l)
	if err != nil {
		x.err = fmt.Errorf("write export: %w", err)
		return x.err
	}
	return x.raw(b)
}

func (x *Export) raw(b []byte) error {
	if x.err != nil {
		return x.err
	}
	x.hash.Write(b)
	x.hash.Write([]byte("\n"))
	_, _ = x.out.Write(b) // bufio keeps the first error
	if err := x.out.WriteByte('\n'); err != nil {
		x.err = fmt.Errorf("write export: %w", err)
	}
	x.lines++
	return x.err
}
