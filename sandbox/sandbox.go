// Package sandbox is the contract of a box: a Driver makes boxes of one or
// more tiers, a Box runs commands, and a Spec says what is in it and how much
// of it.
//
// A box knows nothing of policy, secrets or gateways, so it can grant itself
// nothing: its only way out is the wire that Box.Wire lends to whoever holds
// the Driver. The invariant: a layer the Spec's tier promises is there, or
// Create refuses with an error that names the layer and its fix.
package sandbox

import (
	"context"
	"io"
	"os"
	"time"

	"cofferdam"
)

// Where things are inside every box.
const (
	WorkDir = "/work"       // the workspace, writable, bounded by Limits.Disk
	EnvDir  = "/env"        // what the setup phase made; read-only unless Spec.SetupPhase
	HomeDir = "/home/agent" // private, in memory, bounded by Limits.Temp
	UserID  = 1000          // uid and gid of every command; never 0
)

// Images that are no folder.
const (
	HostImage = "host"
	HostView  = "host-view"
)

// Spec says what a box is made from. All of it is fixed at Create.
type Spec struct {
	ID   cofferdam.BoxID // chosen by the caller; creating it twice is a conflict
	Tier Tier
	// Scope says whose the box is. A driver decides nothing by it but this: from a
	// snapshot of another's box none is made.
	Scope cofferdam.Scope
	// Image is HostImage (an allow-list of the host's /usr and /etc), HostView
	// (all of the host, read-only, credentials unreadable) or an absolute folder.
	Image string
	// Snapshot makes a box that goes on from one; its tier, image, Env and limits
	// must be those of the box that was taken. Its id, host name, tokens,
	// entropy and clock are new, and its workspace is a copy. "" for none. Digest, if
	// not "", is that of the manifest whose signature the caller has checked: a
	// snapshot with another one is Tampered.
	Snapshot SnapshotID
	Digest   cofferdam.Digest
	// Workspace, if not "", is what the box has at WorkDir: made with Limits.Disk
	// if there is none, and kept when the box is gone. One box has it at a time;
	// another is a Conflict. So is an Epoch below the highest it was asked for
	// with: whoever was thought dead and comes late gets nothing.
	Workspace WorkspaceID
	Epoch     int64
	// Env is the absolute path of a file-system image on the host, or of a folder
	// where the Offer says so, mounted at EnvDir; "" for none. With SetupPhase it is
	// made if missing, at most Limits.Disk large (a folder is counted, so that it may
	// be over by what was written last), and writable; otherwise it must exist and is
	// read-only.
	Env        string
	SetupPhase bool
	Limits     cofferdam.Limits // zero fields: DefaultLimits
	Hostname   string
	Files      []File // small read-only files; they may not lie under WorkDir
}

// File is one read-only file that the host puts into a box, or a symbolic link.
type File struct {
	Path string      `json:"path"` // absolute; what the image has in its place is not seen
	Data []byte      `json:"data,omitempty"`
	Link string      `json:"link,omitempty"` // absolute: a link to there, instead of Data
	Mode os.FileMode `json:"mode,omitempty"` // 0: 0444
	// Shared says that many boxes have the very same file: it becomes part of the
	// root folder that they share, where another file costs a mount in each box.
	// Links are always shared.
	Shared bool `json:"shared,omitempty"`
}

// IsShared says whether f is part of the root folder that boxes share.
func (f File) IsShared() bool { return f.Shared || f.Link != "" }

// DefaultLimits bounds a box whose Spec says nothing.
// Sizes are bytes. Source: docs/SPECIFICATION.md, "Box".
var DefaultLimits = cofferdam.Limits{
	Memory: 4 << 30, Disk: 4 << 30, Temp: 1 << 30, CPU: 2, PIDs: 512, OpenFiles: 8192,
}

// Command is one program to run in a box.
type Command struct {
	// ID is chosen by the caller and makes Start idempotent: a second Start
	// with the same ID does nothing. [a-z0-9-]{1,64}.
	ID      cofferdam.ExecID `json:"id"`
	Argv    []string         `json:"argv,omitempty"`    // either Argv …
	Shell   string           `json:"shell,omitempty"`   // … or text for sh -c; 1 to 65,536 bytes
	Dir     string           `json:"dir,omitempty"`     // "" is WorkDir
	Env     []string         `json:"env,omitempty"`     // added to the box's own PATH, HOME, USER, LANG, TMPDIR
	Stdin   bool             `json:"stdin,omitempty"`   // false: end of file at once
	Timeout time.Duration    `json:"timeout,omitempty"` // 0: none. At its end the whole tree is killed
}

// Exhaustion names the limit that ended or hindered a command.
type Exhaustion string

// What can run out. ExhaustedTime is a Timeout; the others are Limits.
const (
	ExhaustedMemory Exhaustion = "memory"
	ExhaustedDisk   Exhaustion = "disk"
	ExhaustedTemp   Exhaustion = "temp"
	ExhaustedPIDs   Exhaustion = "pids"
	ExhaustedFiles  Exhaustion = "open files"
	ExhaustedTime   Exhaustion = "time"
)

// Result is how a command ended.
type Result struct {
	Exit      int          `json:"exit"` // 0–255; 128+n for signal n; 126, 127: could not be started
	Signal    int          `json:"signal,omitempty"`
	TimedOut  bool         `json:"timed_out,omitempty"`
	Exhausted []Exhaustion `json:"exhausted,omitempty"` // limits met while it ran
	Lost      bool         `json:"lost,omitempty"`      // the box ended under it; Exit means nothing
	Reason    string       `json:"reason,omitempty"`    // for people, when it did not end by itself
	Stdout    int64        `json:"stdout"`              // bytes written in all
	Stderr    int64        `json:"stderr"`
	Started   time.Time    `json:"started"`
	Ended     time.Time    `json:"ended"`
}

// Stream names an output of a command.
type Stream int

// The two outputs; they are never mixed.
const (
	Stdout Stream = 1
	Stderr Stream = 2
)

// Offsets says how much of each stream was already seen.
type Offsets struct {
	Stdout int64 `json:"stdout"`
	Stderr int64 `json:"stderr"`
}

// Sink takes output in order, per stream. off is the place of p's first byte;
// p is valid until Sink returns, and its nil acknowledges: an acknowledged byte
// may be dropped when the journal needs room.
// An error detaches. Output that the sink does not take stays with the box, and
// at the journal's cap the command waits: nothing is lost.
type Sink func(s Stream, off int64, p []byte) error

// LimitsWatched is among the flags of Status where there is no control group: memory is
// looked at, the processor has no bound.
const LimitsWatched = "limits=watched"

// How the size of a workspace is held, as Status says it among the flags.
const (
	WorkspaceQuota   = "workspace=project-quota"
	WorkspaceImage   = "workspace=image"
	WorkspaceMemory  = "workspace=memory"  // a file system in memory
	WorkspaceWatched = "workspace=watched" // a folder of the host's that is counted: its size is not that of its file system
)

// Status is what a box really is: what goes into trace and proof.
type Status struct {
	ID      cofferdam.BoxID  `json:"id"`
	State   BoxState         `json:"state"`
	Reason  string           `json:"reason,omitempty"`
	Changes []Change         `json:"changes"` // the last ones; the last of them is State
	Tier    Tier             `json:"tier"`
	Kernel  string           `json:"kernel"` // what the box sees as its kernel: "gVisor <version>, systrap"
	Flags   []string         `json:"flags"`  // of the sandbox program; and how the workspace has its size: workspace=…
	Limits  cofferdam.Limits `json:"limits"` // in force
	Image   string           `json:"image"`
	Created time.Time        `json:"created"`
	// Workspace is what the box has of Spec.Workspace; nil if it was not asked for.
	Workspace *Workspace `json:"workspace,omitempty"`
}

// Finding is one host check: the same list feeds doctor, Check and refusals.
type Finding struct {
	Name   string `json:"name"`   // kebab case: "gvisor-systrap"
	Level  string `json:"level"`  // ok, warn, fail
	Detail string `json:"detail"` // one line
	Fix    string `json:"fix,omitempty"`
}

// Driver makes and finds boxes. Safe for concurrent use. Errors are
// *cofferdam.Error: NotFound for an unknown id, Conflict for one that is taken,
// Unavailable with a hint for a missing layer, Invalid for a Spec it cannot have.
type Driver interface {
	// Check examines the host. A finding of level fail makes Create refuse.
	Check(ctx context.Context) ([]Finding, error)
	// Create makes a box and returns when it can run commands.
	Create(ctx context.Context, spec Spec) (Box, error)
	// Open finds a box made earlier, by this process or another.
	Open(ctx context.Context, id cofferdam.BoxID) (Box, error)
	// List returns every box there is.
	List(ctx context.Context) ([]Status, error)
	// Offers says which tiers the driver has and what they can do. What a tier
	// lacks is refused by Lacking's error.
	Offers(ctx context.Context) ([]Offer, error)
	Snapshotter
	// Workspaces returns every workspace that is kept.
	Workspaces(ctx context.Context) ([]Workspace, error)
	// RemoveWorkspace removes a workspace and all in it: a Conflict while a box
	// has it. Removing it twice is no error.
	RemoveWorkspace(ctx context.Context, id WorkspaceID) error
}

// Box is one box. It and its commands live on when its holder goes away.
type Box interface {
	ID() cofferdam.BoxID
	Status(ctx context.Context) (Status, error)
	// Start starts a command and returns without waiting for its end.
	Start(ctx context.Context, c Command) error
	// Attach sends the command's output from the given offsets to sink and
	// returns its result once it has ended and all output was taken. Several
	// may be attached; ending ctx detaches and leaves the command running.
	Attach(ctx context.Context, id cofferdam.ExecID, from Offsets, sink Sink) (Result, error)
	// Write sends p to a command that was started with Stdin; eof closes it.
	Write(ctx context.Context, id cofferdam.ExecID, p []byte, eof bool) error
	// Kill ends the command with everything it started, also what left its
	// session or process group.
	Kill(ctx context.Context, id cofferdam.ExecID) error
	// Jobs counts the processes of each command that has any, also of those that
	// have ended and left some behind. A Conflict while the box stands still.
	Jobs(ctx context.Context) ([]cofferdam.BoxJob, error)
	// Wire lends a fresh queue of the box's network device, a TAP descriptor
	// with Ethernet frames, and detaches the one lent before (fencing).
	Wire(ctx context.Context) (*os.File, error)
	// Wait returns once the box is in one of the states, or is over.
	Wait(ctx context.Context, states ...BoxState) (Change, error)
	// Pause stops all of the box's processes where they are; it keeps its memory
	// and its wire. Calls that need it running are refused with a Conflict.
	Pause(ctx context.Context) error
	// Suspend writes the box's memory to disk and ends its processes on the host.
	// Its commands live on at Resume; connections to outside do not.
	Suspend(ctx context.Context) error
	// Resume lets a paused or suspended box go on. After Suspend its entropy and
	// clock are new. One that runs already is no error.
	Resume(ctx context.Context) error
	// Snapshot takes the box, or its workspace alone, as it is under a new id while it
	// goes on running.
	Snapshot(ctx context.Context, t Take) (Snapshot, error)
	// Destroy ends the box and removes all it had, but for a Spec.Workspace: what
	// was written to that is on the host's disk before the box counts as stopped,
	// or Destroy fails and can be called again. Destroying twice is no error.
	Destroy(ctx context.Context) error
}

// Run starts c in b and waits for it: Start and Attach in one.
func Run(ctx context.Context, b Box, c Command, stdout, stderr io.Writer) (Result, error) {
	if err := b.Start(ctx, c); err != nil {
		return Result{}, err
	}
	return b.Attach(ctx, c.ID, Offsets{}, func(s Stream, _ int64, p []byte) error {
		w := stdout
		if s == Stderr {
			w = stderr
		}
		if w == nil {
			return nil
		}
		_, err := w.Write(p)
		return err
	})
}
