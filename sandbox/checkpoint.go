package sandbox

import (
	"context"
	"encoding/json"
	"fmt"
	"time"
	"unicode"
	"unicode/utf8"

	"cofferdam"
)

// SnapshotID names a snapshot: "s-" and 32 hexadecimal digits.
type SnapshotID string

// Bounds of what is said of a snapshot, and of how many a session has.
// Source: docs/SPECIFICATION.md, "Checkpoints".
const (
	// MaxComment is the longest comment, in bytes.
	MaxComment = 200
	// MaxActor is the longest name of who asked, in bytes.
	MaxActor = 200
	// MaxNote is the longest signed manifest, in bytes.
	MaxNote = 16 << 10
	// MaxOfSession is how many snapshots of one session a driver keeps, automatic
	// ones included.
	MaxOfSession = 10
	// MaxOrder is the highest number that one of a session may have.
	MaxOrder = 1 << 20
)

// Label is what the caller says of a snapshot: a driver keeps it, covers it with the
// snapshot's digest, and decides by it only what Session says.
type Label struct {
	// Session has at most MaxOfSession of them, and one of each Order. A new one takes
	// the place of the oldest automatic one; where all were asked for, it is refused.
	// "": it is of no session.
	Session cofferdam.SessionID `json:"session,omitempty"`
	Order   int                 `json:"order"` // its number in its session, from 0; the caller counts
	Comment string              `json:"comment,omitempty"`
	// Automatic says that nobody asked for it.
	Automatic   bool             `json:"automatic,omitempty"`
	Environment cofferdam.Digest `json:"environment,omitempty"` // that the box was made from
	Parent      SnapshotID       `json:"parent,omitempty"`      // that the box came from; "": the driver says, if it knows
	Actor       string           `json:"actor,omitempty"`       // who asked
}

// Name is what a person calls it: v0, v1, …
func (l Label) Name() string { return fmt.Sprintf("v%d", l.Order) }

// Take says what is taken of a box.
type Take struct {
	ID SnapshotID `json:"id"` // chosen by the caller; taking it twice is a Conflict
	// Memory takes all that runs in the box as well, so that a box can go on from it.
	// Without, the workspace alone is taken: to be compared, and put back.
	Memory bool `json:"memory,omitempty"`
	// Spare does not go for this one, though it is the oldest automatic one.
	Spare SnapshotID `json:"spare,omitempty"`
	Label
}

// Snapshot is a box, or its workspace, at one moment, kept by its driver until it is
// removed.
type Snapshot struct {
	ID SnapshotID `json:"id"`
	Label
	Box       cofferdam.BoxID  `json:"box"`                 // that it was taken of
	Workspace WorkspaceID      `json:"workspace,omitempty"` // that the box had; it is put back into no other
	Scope     cofferdam.Scope  `json:"scope"`               // whose that was; a box of another is not made from it
	Tier      Tier             `json:"tier"`
	Memory    bool             `json:"memory"` // a box can go on from it
	Digest    cofferdam.Digest `json:"digest"` // of all it holds and of all that is said here but Note
	Size      int64            `json:"size"`   // bytes on disk
	Taken     time.Time        `json:"taken"`
	Paused    time.Duration    `json:"paused"` // how long the box stood still for it

	// Note is what SignSnapshot was given: the manifest, signed by the caller. A
	// driver does not read it, and whoever can write to the state folder can change it.
	Note []byte `json:"note,omitempty"`
}

// Manifest is all that s says of itself but Note, as one line of JSON with its
// fields in the order of the type: what is signed.
func (s Snapshot) Manifest() ([]byte, error) {
	s.Note = nil
	return json.Marshal(s)
}

// Fits refuses, as Tampered, a snapshot that is not the one of a manifest whose
// signature holds.
func (s Snapshot) Fits(manifest []byte) error {
	mine, err := s.Manifest()
	if err == nil && string(mine) == string(manifest) {
		return nil
	}
	return &cofferdam.Error{
		Op: "sandbox.Fits", Kind: cofferdam.Tampered, Subject: "snapshot " + string(s.ID), Err: err,
		Reason: "what its driver says of it is not what was signed", Hint: "remove it, and find out who can write to the state folder",
	}
}

// Check refuses what cannot be said of a snapshot.
func (t Take) Check(op string) error {
	if err := CheckSnapshotID(op, t.ID); err != nil {
		return err
	}
	subject := "snapshot " + string(t.ID)
	switch {
	case t.Order < 0 || t.Order > MaxOrder:
		return Refuse(op, subject, fmt.Sprintf("its number %d is not from 0 to %d", t.Order, MaxOrder), "")
	case t.Parent != "" && CheckSnapshotID(op, t.Parent) != nil:
		return Refuse(op, subject, fmt.Sprintf("its parent %.64q is no snapshot", string(t.Parent)), "")
	}
	for _, c := range []struct {
		what, text string
		most       int
	}{{"comment", t.Comment, MaxComment}, {"actor", t.Actor, MaxActor}, {"session", string(t.Session), 64}, {"environment", string(t.Environment), 80}} {
		if !isLine(c.text, c.most) {
			return Refuse(op, subject, "its "+c.what+" is not one line of text", fmt.Sprintf("give at most %d bytes of UTF-8 that can be printed", c.most))
		}
	}
	return nil
}

// isLine says whether text is one line, of at most so many bytes, that a terminal
// shows as it is: no control characters, and none that turn the direction of others.
func isLine(text string, most int) bool {
	if len(text) > most || !utf8.ValidString(text) {
		return false
	}
	for _, r := range text {
		if !unicode.IsPrint(r) {
			return false
		}
	}
	return true
}

// Compare says which two workspaces are compared: that of From with that of To, or
// with that of Box as it is now. Box stands still while its workspace is copied. A
// snapshot that is compared with itself is proved.
type Compare struct {
	Scope cofferdam.Scope `json:"scope"` // of both; another's is NotFound
	From  SnapshotID      `json:"from"`
	To    SnapshotID      `json:"to,omitempty"`
	Box   cofferdam.BoxID `json:"box,omitempty"`
}

// Bounds of the answer to a Compare. Source: docs/SPECIFICATION.md, "Checkpoints".
const (
	// MaxDifferences is how many paths are listed.
	MaxDifferences = 10_000
	// MaxPathBytes is how long all of them may be together.
	MaxPathBytes = 2 << 20
)

// Differences are those of two workspaces, in order of their paths.
type Differences struct {
	List []Difference `json:"list,omitempty"`
	More int64        `json:"more,omitempty"` // that are not listed
	// Counts of all, also of those that are not listed.
	Added   int64 `json:"added"`
	Changed int64 `json:"changed"`
	Removed int64 `json:"removed"`
}

// Difference is one path that the two do not have alike. Was is nil for one that was
// added, and Is for one that was removed.
type Difference struct {
	// Path is relative to the workspace, and its bytes are those of the file system:
	// whoever shows it escapes it.
	Path []byte `json:"path"`
	Was  *Found `json:"was,omitempty"`
	Is   *Found `json:"is,omitempty"`
}

// Found is what a workspace has under one path.
type Found struct {
	Kind FileKind `json:"kind"`
	Size int64    `json:"size"` // bytes; of a link, those of its target; 0 of others
	Mode uint32   `json:"mode"` // permission bits, with set-id and sticky: 07777 at most
}

// FileKind says what a path is.
type FileKind string

// The kinds of files.
const (
	KindFile   FileKind = "file"
	KindFolder FileKind = "folder"
	KindLink   FileKind = "link"
	KindOther  FileKind = "other" // a pipe, a socket or a device
)

// Restore says which workspace is put back to which snapshot.
type Restore struct {
	Scope     cofferdam.Scope `json:"scope"`
	Workspace WorkspaceID     `json:"workspace"` // that the snapshot's box had; else it is Invalid
	Epoch     int64           `json:"epoch"`     // as in Spec: below the highest that was seen is a Conflict
	Snapshot  SnapshotID      `json:"snapshot"`
	// Digest is that of the manifest whose signature the caller has checked; another is
	// Tampered.
	Digest cofferdam.Digest `json:"digest"`
}

// Snapshotter is the part of a Driver that has to do with snapshots. What a tier
// lacks is refused with Lacking's error.
type Snapshotter interface {
	// Snapshots returns every snapshot that is whole, the oldest first, with what its
	// folder says; nothing of it is proved here.
	Snapshots(ctx context.Context) ([]Snapshot, error)
	// SignSnapshot keeps a note beside a snapshot, at most MaxNote bytes; a later one
	// takes its place.
	SignSnapshot(ctx context.Context, id SnapshotID, note []byte) error
	// RemoveSnapshot removes a snapshot. Removing it twice is no error, and boxes
	// made from it go on.
	RemoveSnapshot(ctx context.Context, id SnapshotID) error
	// Differences compares workspaces outside of any box: nothing in them is run or
	// followed. A snapshot that is not what was kept is Tampered.
	Differences(ctx context.Context, c Compare) (Differences, error)
	// RestoreWorkspace puts a kept workspace back: a Conflict while a box has it. All of
	// it is what the snapshot holds, or, after an error or a crash, what it was.
	RestoreWorkspace(ctx context.Context, r Restore) error
}

// Snapshot implements Box.
func (l Lacks) Snapshot(_ context.Context, t Take) (Snapshot, error) {
	if t.Memory {
		return Snapshot{}, Lacking(l.Tier, CanSnapshot)
	}
	return Snapshot{}, Lacking(l.Tier, CanCheckpoint)
}

// Snapshots implements Driver: there is none.
func (l Lacks) Snapshots(context.Context) ([]Snapshot, error) { return nil, nil }

// SignSnapshot implements Driver.
func (l Lacks) SignSnapshot(context.Context, SnapshotID, []byte) error {
	return Lacking(l.Tier, CanCheckpoint)
}

// RemoveSnapshot implements Driver: there is none.
func (l Lacks) RemoveSnapshot(context.Context, SnapshotID) error { return nil }

// Differences implements Driver.
func (l Lacks) Differences(context.Context, Compare) (Differences, error) {
	return Differences{}, Lacking(l.Tier, CanCheckpoint)
}

// RestoreWorkspace implements Driver.
func (l Lacks) RestoreWorkspace(context.Context, Restore) error {
	return Lacking(l.Tier, CanCheckpoint)
}
