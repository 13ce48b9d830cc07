package cofferdam

import "time"

// States of a workspace.
const (
	WorkspaceInUse   = "in use"  // a session's box has it
	WorkspaceKept    = "kept"    // until Workspace.Until, unless a session takes it up
	WorkspaceRemoved = "removed" // what was in it and nowhere else is in Bundle
	WorkspaceLost    = "lost"    // its disk is not there any more
)

// Workspace is what the sessions of an attempt have at /work, one after the other.
type Workspace struct {
	Schema string `json:"schema"` // cofferdam/workspace/v1
	ID     string `json:"id"`     // w- and 32 digits
	Scope
	Task    TaskID    `json:"task"`
	Number  int64     `json:"number"` // of the task: t-42
	Attempt int       `json:"attempt"`
	State   string    `json:"state"`
	Tier    string    `json:"tier"`
	Size    int64     `json:"size"` // bytes it may grow to
	Used    int64     `json:"used"` // bytes on the host's disk
	Made    time.Time `json:"made"`
	Left    time.Time `json:"left"`             // by its last session
	Until   time.Time `json:"until,omitzero"`   // it is removed then; zero also if it is stuck
	Noticed time.Time `json:"noticed,omitzero"` // that was told, on record
	Removed time.Time `json:"removed,omitzero"`
	Stuck   bool      `json:"stuck,omitempty"` // its export failed, so that it is kept whatever its time: the note says why
	Note    string    `json:"note,omitempty"`  // one sentence: why it was removed, or why it cannot be
	Bundle  *Bundle   `json:"bundle,omitempty"`
	Earlier []Bundle  `json:"earlier,omitempty"` // of exports before that, the newest first
}

// Short returns the short name of the workspace's task, such as "t-42".
func (w Workspace) Short() string { return Task{Number: w.Number}.Short() }

// Bundle is a git bundle with what was in a workspace and in no branch of the
// repository: commits, and one of what was not committed.
type Bundle struct {
	Made    time.Time `json:"made"`
	Until   time.Time `json:"until"` // it is removed then
	Size    int64     `json:"size"`  // bytes
	Digest  Digest    `json:"digest"`
	Commits int       `json:"commits"`
	Refs    []Ref     `json:"refs"`
}
