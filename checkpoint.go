package cofferdam

import "time"

// Sandbox is the box of a session that runs, as every face shows it.
type Sandbox struct {
	Schema string `json:"schema"` // cofferdam/sandbox/v1
	ID     BoxID  `json:"id"`
	Scope
	Session     SessionID `json:"session"`
	Task        TaskID    `json:"task"`
	Number      int64     `json:"number"` // of the task: t-42
	Attempt     int       `json:"attempt"`
	Phase       string    `json:"phase"` // work, proof
	Tier        string    `json:"tier"`
	Kernel      string    `json:"kernel,omitempty"`
	Image       string    `json:"image,omitempty"`
	Environment Digest    `json:"environment,omitempty"`
	Workspace   string    `json:"workspace,omitempty"` // that it has; "" for one that ends with it
	Flags       []string  `json:"flags,omitempty"`     // of what is its wall, as its driver says them
	Limits      Limits    `json:"limits"`
	Life        BoxLife   `json:"box"`
	Created     time.Time `json:"created"`
	Checkpoints int       `json:"checkpoints"`
	Size        int64     `json:"size"` // of its checkpoints, in bytes on the host's disk
}

// Short returns the short name of the box's task, such as "t-42".
func (s Sandbox) Short() string { return Task{Number: s.Number}.Short() }

// Checkpoint is the workspace of a box at one moment, kept so that its sessions can
// go back to it.
type Checkpoint struct {
	Schema string `json:"schema"` // cofferdam/checkpoint/v1
	ID     string `json:"id"`     // s- and 32 digits
	Name   string `json:"name"`   // v0, v1, … of its workspace
	Scope
	Task        TaskID    `json:"task"`
	Number      int64     `json:"number"`  // of the task: t-42
	Session     SessionID `json:"session"` // that it was taken of
	Workspace   string    `json:"workspace"`
	Box         BoxID     `json:"sandbox"`
	Tier        string    `json:"tier"`
	Environment Digest    `json:"environment,omitempty"`
	Created     time.Time `json:"created"`
	By          string    `json:"by"`                // person:ann
	Comment     string    `json:"comment,omitempty"` // one line
	Automatic   bool      `json:"automatic"`         // taken before a restore, so that it can be undone
	Parent      string    `json:"parent,omitempty"`  // id of the one that the workspace was put back to before
	Memory      bool      `json:"memory"`            // what ran is in it, not only files
	Size        int64     `json:"size"`              // bytes on the host's disk
	Paused      float64   `json:"paused"`            // seconds that the box stood still for it
	Digest      Digest    `json:"digest"`            // of all it holds, and of all above
	// Manifest is the text that is signed: all of the above. Signature is "good", or
	// what is wrong with it, as it was checked for this answer.
	Manifest  string `json:"manifest,omitempty"`
	Signature string `json:"signature"`
}

// SignatureGood is a Checkpoint's Signature that holds.
const SignatureGood = "good"

// Restored is what came of putting a workspace back.
type Restored struct {
	Schema     string    `json:"schema"` // cofferdam/restored/v1
	Session    SessionID `json:"session"`
	Checkpoint string    `json:"checkpoint"` // name of the one that the workspace was put back to
	Undo       string    `json:"undo"`       // name of the one that was taken right before
	Ended      []ExecID  `json:"ended"`      // commands that ran and were ended
}

// Difference is what differs in a workspace between two moments.
type Difference struct {
	Schema  string       `json:"schema"` // cofferdam/difference/v1
	From    string       `json:"from"`   // name of a checkpoint
	To      string       `json:"to"`     // the same, or "now"
	Added   int64        `json:"added"`
	Changed int64        `json:"changed"`
	Removed int64        `json:"removed"`
	Paths   []PathChange `json:"paths"` // in their order; hostile text
	More    int64        `json:"more"`  // that are left out
}

// PathChange is one path that differs: Was is nil for one that was added, Is for one
// that was removed.
type PathChange struct {
	Path string     `json:"path"` // below the workspace; bytes that are no UTF-8 as \xNN
	Was  *FileState `json:"was,omitempty"`
	Is   *FileState `json:"is,omitempty"`
}

// FileState is what a workspace has under one path.
type FileState struct {
	Kind string `json:"kind"` // file, folder, link, other
	Size int64  `json:"size"` // bytes
	Mode string `json:"mode"` // octal: 0644
}
