package sandbox

import (
	"context"
	"time"

	"cofferdam"
)

// WorkspaceID names a workspace that outlives its boxes: "w-" and 32
// hexadecimal digits. Whoever asks for boxes chooses it.
type WorkspaceID string

// Valid says whether id can name a workspace.
func (id WorkspaceID) Valid() bool { return isID(string(id), "w-") }

// Workspace is a disk that a driver keeps apart from boxes: it is mounted at
// WorkDir of one box at a time, and survives its box and the driver's process.
type Workspace struct {
	ID    WorkspaceID     `json:"id"`
	Tier  Tier            `json:"tier"`          // of the boxes that have it
	Size  int64           `json:"size"`          // bytes it may grow to, fixed when it was made
	Used  int64           `json:"used"`          // bytes that it takes on the host's disk
	Box   cofferdam.BoxID `json:"box,omitempty"` // that has it now; "" for none
	Epoch int64           `json:"epoch"`         // the highest that it was asked for with
	Made  time.Time       `json:"made"`
	Left  time.Time       `json:"left"`            // when its last box let go of it, or got it
	Fresh bool            `json:"fresh,omitempty"` // no box had it before Box
}

// Workspaces implements Driver: nothing is kept.
func (l Lacks) Workspaces(context.Context) ([]Workspace, error) { return nil, nil }

// RemoveWorkspace implements Driver: there is none.
func (l Lacks) RemoveWorkspace(context.Context, WorkspaceID) error { return nil }
