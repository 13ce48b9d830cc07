package cofferdam

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"time"
)

// Identifiers travel as their own types. Each is a short prefix, a hyphen and
// 32 hexadecimal digits of randomness: at least 34 characters, so that an
// identifier cannot be guessed (R01 asks for 33 or more).
type (
	OrganizationID string // o-…
	ProjectID      string // p-…
	TaskID         string // t-…
	SessionID      string // s-…
	RepoID         string // r-…
	ModelID        string // m-…
	BoxID          string // b-…; 34 characters exactly: gVisor matches ids by prefix
	ExecID         string // chosen by the caller, unique in its box
	ReceiptID      string // c-…
	PersonID       string // u-…
	TokenID        string // k-…
)

// Values that travel.
type (
	Host   string // DNS name, lower case, no trailing dot
	Digest string // "sha256:" and 64 hexadecimal digits
	Commit string // git object id of a commit: 40 or 64 hexadecimal digits
	Ref    string // full git reference name, such as refs/heads/main
)

// digestPrefix names the hash of every Digest.
const digestPrefix = "sha256:"

// DigestOfSum returns a SHA-256 in the form that travels.
func DigestOfSum(sum [32]byte) Digest { return Digest(digestPrefix + hex.EncodeToString(sum[:])) }

// Hex returns the digits of d alone.
func (d Digest) Hex() string { return strings.TrimPrefix(string(d), digestPrefix) }

// NewID returns a fresh identifier with the given prefix.
func NewID(prefix string) string {
	var b [16]byte
	rand.Read(b[:]) // never fails since Go 1.24
	return prefix + "-" + hex.EncodeToString(b[:])
}

// Scope says to whom a thing belongs. Every row, key, quota, cache and log
// belongs to one project of one organisation, and nothing crosses.
type Scope struct {
	Organization OrganizationID `json:"organization"`
	Project      ProjectID      `json:"project"`
}

// Project is where tasks, repositories and policy live.
type Project struct {
	Schema string `json:"schema"` // cofferdam/project/v1
	Scope
	Name    string    `json:"name"`
	Created time.Time `json:"created"`
}

// PrincipalKind says what sort of actor a Principal is.
type PrincipalKind string

// The kinds of principal. A test person exists only in a demo's or a test's
// temporary server and is labelled as such wherever it shows.
const (
	Person     PrincipalKind = "person"
	TestPerson PrincipalKind = "test-person"
	Agent      PrincipalKind = "agent"
	Service    PrincipalKind = "service" // an account of a program
	Platform   PrincipalKind = "platform"
)

// Principal is who acts.
type Principal struct {
	Kind PrincipalKind `json:"kind"`
	Name string        `json:"name"`
}

// IsPerson says whether p may answer what only people answer.
func (p Principal) IsPerson() bool { return p.Kind == Person || p.Kind == TestPerson }

// String returns "kind:name".
func (p Principal) String() string { return string(p.Kind) + ":" + p.Name }

// TaskState is where a task stands. See ARCHITECTURE.md, "States and exit codes".
type TaskState string

// The states of a task.
const (
	Queued      TaskState = "queued"
	Preparing   TaskState = "preparing"
	Running     TaskState = "running"
	Verifying   TaskState = "verifying"
	Waiting     TaskState = "waiting"
	InReview    TaskState = "in review"
	Done        TaskState = "done"
	NothingToDo TaskState = "nothing to do"
	Blocked     TaskState = "blocked"
	Failed      TaskState = "failed"
	TimedOut    TaskState = "timed out"
	Cancelled   TaskState = "cancelled"
)

// Ended says whether s is final. InReview is not: a person has still to merge.
func (s TaskState) Ended() bool {
	switch s {
	case Done, NothingToDo, Blocked, Failed, TimedOut, Cancelled:
		return true
	}
	return false
}

// Reason codes of an end or a halt. They are words for programs; the comment
// beside them is the sentence for people.
const (
	ReasonCheck       = "check"       // a check did not do what the definition of done says
	ReasonAgent       = "agent"       // the agent gave up, or left nothing
	ReasonEnvironment = "environment" // the box could not be made ready
	ReasonProvider    = "provider"    // the model provider
	ReasonPolicy      = "policy"      // policy stands in the way
	ReasonBox         = "box"         // the box was lost, several times
	ReasonRepository  = "repository"  // the upstream repository
	ReasonBaseMoved   = "base-moved"  // the base branch is no longer what was proved against
	ReasonRejected    = "rejected"    // a person said no
	ReasonCancelled   = "cancelled"   // a person ended it
	ReasonTime        = "time"        // the agent's time was up
	ReasonBudget      = "budget"      // tokens, money or model calls are used up
	ReasonInternal    = "internal"    // Cofferdam itself
)

// Said is what an agent says of its own work: a claim, not evidence.
type Said string

// What an agent can say.
const (
	SaidDone        Said = "done"
	SaidNothingToDo Said = "nothing to do"
	SaidBlocked     Said = "blocked"
	SaidQuestion    Said = "question" // it waits for an answer, and then goes on
)

// Check is one command of a definition of done.
type Check struct {
	Command string `json:"command"` // run by sh -c at the root of the checkout
	// MustFailFirst: the command must fail on the base (--check). Otherwise it
	// must pass there, and after (--keep).
	MustFailFirst bool `json:"must_fail_first"`
}

// TaskRequest is what a person asks for.
type TaskRequest struct {
	Text        string    `json:"text"`                  // what is wanted, in words
	Repo        string    `json:"repo"`                  // name or id; empty: the only one
	Base        string    `json:"base,omitempty"`        // branch; empty: the repo's base branch
	Done        []string  `json:"done,omitempty"`        // lines of a definition of done, for people and the agent
	Checks      []Check   `json:"checks"`                // at least one
	Agent       string    `json:"agent"`                 // adapter name
	Command     string    `json:"command,omitempty"`     // for the agent "command": shell text
	Model       string    `json:"model,omitempty"`       // model name; empty: the only one, if the agent needs one
	Allow       []string  `json:"allow,omitempty"`       // HOST[:PORT], *.HOST[:PORT], splice: or credentials: before one of these, or preset:NAME
	Contract    *Contract `json:"contract,omitempty"`    // nil: what policy allows
	Image       string    `json:"image,omitempty"`       // "host" (default), a folder on the server, or an image its operator configured
	Tier        string    `json:"tier,omitempty"`        // of its boxes, as strong as the operator's or stronger; "" for the operator's
	Environment string    `json:"environment,omitempty"` // "" for the definition of the repository, "none", or a folder in .devcontainer
	Ask         bool      `json:"ask,omitempty"`         // its agent may ask a person and wait for the answer
	Timeout     float64   `json:"timeout,omitempty"`     // seconds of the agent's run; 0: the default
	Limits      *Limits   `json:"limits,omitempty"`      // nil: defaults
	Budget      *Budget   `json:"budget,omitempty"`      // nil: the operator's default
	Rest        *Rest     `json:"rest,omitempty"`        // nil: the server's
	Key         string    `json:"idempotency_key,omitempty"`
}

// Ranges of a Budget's fields; zero is always taken.
const (
	MinTokens = 1000
	MaxTokens = 1_000_000_000
	MinCost   = 10_000      // microdollars: a cent
	MaxCost   = 100_000_000 // microdollars: 100 dollars
	MaxCalls  = 500
)

// Rest bounds how long a session idles before its box is suspended, and how long
// it lives, in seconds. Zero fields say nothing.
type Rest struct {
	Idle     float64 `json:"idle_timeout,omitempty"`
	Lifetime float64 `json:"max_lifetime,omitempty"`
}

// Ranges and defaults of a Rest, in seconds. Source: docs/SPECIFICATION.md, "Session".
const (
	MinIdle         = 60
	MaxIdle         = 28_800
	MaxLifetime     = 1_209_600 // 14 days
	DefaultIdle     = 900
	DefaultLifetime = 28_800
)

// DefaultParallel is how many sessions of a server have a box that runs at a time:
// so many keep a small machine responsive. Source: docs/SPECIFICATION.md, "Session".
const DefaultParallel = 8

// Check says what is wrong with r; "" if nothing is.
func (r Rest) Check() string {
	switch {
	case r.Idle != 0 && !(r.Idle >= MinIdle && r.Idle <= MaxIdle):
		return fmt.Sprintf("an idle timeout is %d to %d seconds", MinIdle, MaxIdle)
	case r.Lifetime != 0 && !(r.Lifetime >= MinIdle && r.Lifetime <= MaxLifetime):
		return fmt.Sprintf("a maximum lifetime is %d to %d seconds", MinIdle, MaxLifetime)
	case r.Idle != 0 && r.Lifetime != 0 && r.Idle > r.Lifetime:
		return fmt.Sprintf("an idle timeout of %g seconds is longer than the maximum lifetime of %g", r.Idle, r.Lifetime)
	}
	return ""
}

// Lowest takes the lower of each field of r and other. A lifetime that is below
// the idle timeout is both.
func (r Rest) Lowest(other Rest) Rest {
	low := func(a, b float64) float64 {
		if a == 0 || b != 0 && b < a {
			return b
		}
		return a
	}
	r = Rest{Idle: low(r.Idle, other.Idle), Lifetime: low(r.Lifetime, other.Lifetime)}
	if r.Lifetime != 0 {
		r.Idle = low(r.Idle, r.Lifetime)
	}
	return r
}

// TaskMessage is what a person says to a task that runs, in order.
type TaskMessage struct {
	Schema string    `json:"schema"` // cofferdam/task-message/v1
	Task   TaskID    `json:"task"`
	Number int64     `json:"number"` // from 1, in its task
	Text   string    `json:"text"`
	By     Principal `json:"by"`
	Time   time.Time `json:"time"`
	// While is where its task stood then, for whoever says it.
	While TaskState `json:"while,omitempty"`
}

// Limits bounds one box. Zero fields mean the default.
type Limits struct {
	Memory    int64   `json:"memory,omitempty"`     // bytes
	Disk      int64   `json:"disk,omitempty"`       // bytes of workspace
	Temp      int64   `json:"temp,omitempty"`       // bytes of /tmp, and as much again of the home folder
	CPU       float64 `json:"cpu,omitempty"`        // processors
	PIDs      int64   `json:"pids,omitempty"`       // processes and threads
	OpenFiles int64   `json:"open_files,omitempty"` // descriptors per process
}

// Task is one task as every face shows it.
type Task struct {
	Schema         string      `json:"schema"` // cofferdam/task/v1
	ID             TaskID      `json:"id"`
	Number         int64       `json:"number"` // t-42
	Scope                      // organisation and project
	Request        TaskRequest `json:"request"`
	Repo           RepoID      `json:"repo"`
	State          TaskState   `json:"state"`
	Reason         string      `json:"reason,omitempty"`  // reason code of an end: ReasonCheck …
	Comment        string      `json:"comment,omitempty"` // one sentence for people
	Attempt        int         `json:"attempt"`           // from 1
	Branch         Ref         `json:"branch"`            // the one ref the agent may write
	Base           Ref         `json:"base"`
	BaseAt         Commit      `json:"base_commit,omitempty"`
	Head           Commit      `json:"commit,omitempty"`  // what the agent left
	Receipt        ReceiptID   `json:"receipt,omitempty"` // proof for Head
	RegressionOnly bool        `json:"regression_only"`   // no check failed first
	Sessions       []SessionID `json:"sessions,omitempty"`
	Landed         Commit      `json:"landed,omitempty"`
	Usage          Usage       `json:"usage"`
	Raised         *Budget     `json:"raised,omitempty"` // limits that a retry named, in the place of the request's
	By             Principal   `json:"by"`
	Created        time.Time   `json:"created"`
	Updated        time.Time   `json:"updated"`
	Waits          string      `json:"waits,omitempty"` // why it waits for its turn and where, as the server knows it now; never stored
}

// Short returns the task's short name, such as "t-42".
func (t Task) Short() string { return "t-" + strconv.FormatInt(t.Number, 10) }

// Repo is a repository tasks may work on.
type Repo struct {
	Schema string `json:"schema"` // cofferdam/repo/v1
	ID     RepoID `json:"id"`
	Scope
	Name     string    `json:"name"`     // [a-z0-9][a-z0-9._-]{0,62}
	Upstream string    `json:"upstream"` // absolute path of a bare repository, or https URL
	Base     Ref       `json:"base"`
	User     string    `json:"user,omitempty"` // user name of the https credential; the credential itself is sealed
	Created  time.Time `json:"created"`
}

// Model is a model provider tasks may call.
type Model struct {
	Schema string  `json:"schema"` // cofferdam/model/v1
	ID     ModelID `json:"id"`
	Scope
	Name      string            `json:"name"`
	Provider  string            `json:"provider"` // the protocol: anthropic, openai, gemini
	URL       string            `json:"url"`
	Rehearsal bool              `json:"rehearsal"`          // answers come from a script, not from a model
	Default   string            `json:"default,omitempty"`  // the model id that agents are told to use; empty: their own
	Allow     []string          `json:"allow,omitempty"`    // model ids that may be asked for, a * at the end stands for the rest; empty: any
	Alias     map[string]string `json:"alias,omitempty"`    // what is asked for, and what the provider is asked for instead
	Fallback  []string          `json:"fallback,omitempty"` // names of models of the same protocol that are tried next, in order
	KeepText  bool              `json:"keep_text"`          // prompts and answers go on record in full, not only by hash
	NoKey     bool              `json:"no_key"`             // the server asks for none
	Created   time.Time         `json:"created"`
}

// Approval is a person's word for exactly one commit.
type Approval struct {
	Commit Commit    `json:"commit"`
	By     Principal `json:"by"`
	Time   time.Time `json:"time"`
}

// ApproveRequest is a person's word for exactly one commit.
type ApproveRequest struct {
	Commit Commit `json:"commit"`
	Policy Digest `json:"policy"` // of the landing that was shown
	Proof  Proof  `json:"proof"`
}

// Change is what a task wants merged: the page a person reviews.
type Change struct {
	Schema    string         `json:"schema"` // cofferdam/merge/v1
	Task      Task           `json:"task"`
	Commits   []string       `json:"commits"` // one line each, oldest first
	Files     []FileChange   `json:"files"`
	Beyond    []string       `json:"beyond_scope,omitempty"` // of Files, what the task's scope does not have
	Diff      string         `json:"diff"`                   // unified, bounded; hostile text
	Truncated bool           `json:"truncated"`
	Proof     *CheckReport   `json:"proof,omitempty"`
	Commands  map[string]int `json:"commands,omitempty"`  // that were started, by who they were for, such as agent:loop
	Refusals  []Event        `json:"refusals"`            // what the agent tried and was not allowed
	Approval  *Approval      `json:"approval,omitempty"`  // the first
	Approvals []Approval     `json:"approvals,omitempty"` // of all who gave theirs
	Landing   Landing        `json:"landing"`             // what policy says of landing it, as things are
}

// FileChange is one path of a change.
type FileChange struct {
	Path    string `json:"path"`
	Status  string `json:"status"` // A, M, D, T
	Added   int    `json:"added"`  // lines; -1 for binary
	Removed int    `json:"removed"`
}

// CheckReport is what the platform saw when it ran the checks.
type CheckReport struct {
	Commit         Commit        `json:"commit"`
	Base           Commit        `json:"base"`
	RegressionOnly bool          `json:"regression_only"`
	Checks         []CheckResult `json:"checks"`
	Held           bool          `json:"held"`
}

// CheckResult is one check on the base and on the commit.
type CheckResult struct {
	Check
	BaseExit int    `json:"base_exit"`
	Exit     int    `json:"exit"`
	Output   Digest `json:"output"` // of stdout and stderr on the commit, as captured
	Held     bool   `json:"held"`
}

// Session is one attempt as every face shows it.
type Session struct {
	Schema string    `json:"schema"` // cofferdam/session/v1
	ID     SessionID `json:"id"`
	Scope
	Task        TaskID    `json:"task"`
	Attempt     int       `json:"attempt"`
	Phase       string    `json:"phase"` // setup, work, proof
	State       string    `json:"state"` // of its box (sandbox.BoxState); stopped or failed when it is over
	Commit      Commit    `json:"commit,omitempty"`
	Head        Commit    `json:"head,omitempty"`
	Said        Said      `json:"said,omitempty"` // the agent's claim
	Exit        int       `json:"exit"`
	Met         []string  `json:"met,omitempty"` // limits that its agent met, such as disk or memory
	Failure     string    `json:"failure,omitempty"`
	Reason      string    `json:"reason,omitempty"`
	Tier        string    `json:"tier,omitempty"`
	Kernel      string    `json:"kernel,omitempty"`
	Image       string    `json:"image,omitempty"`
	Environment Digest    `json:"environment,omitempty"`
	Found       string    `json:"environment_found,omitempty"` // hit or miss of the environment, and why
	Policy      Digest    `json:"policy,omitempty"`
	Life        *BoxLife  `json:"box,omitempty"`        // of a session that runs in this server
	TraceSize   uint64    `json:"trace_size,omitempty"` // events, the seal included
	TraceRoot   Digest    `json:"trace_root,omitempty"`
	Sealed      time.Time `json:"sealed,omitzero"`
	Usage       Usage     `json:"usage"`
}

// BoxQueued is the state of a session that has no box, because it is not its turn.
const BoxQueued = "queued"

// BoxLife is where the box of a running session stands, as its driver says it.
type BoxLife struct {
	State    string    `json:"state"` // docs/SPECIFICATION.md, "States of a box"
	Reason   string    `json:"reason"`
	Actor    string    `json:"actor"`
	Sequence int64     `json:"sequence"`
	Since    time.Time `json:"since"`
	Ends     time.Time `json:"ends,omitzero"`  // its maximum lifetime is over then
	Jobs     []BoxJob  `json:"jobs,omitempty"` // what runs in it, as pid 1 of the box counts it
}

// BoxJob is what one command has running in a box.
type BoxJob struct {
	Command   ExecID `json:"command,omitempty"` // "": which one cannot be told
	Ended     bool   `json:"ended,omitempty"`   // the command has: its processes were left behind
	Processes int    `json:"processes"`
}

// Progress is one line of a task that is followed: the task whenever its state
// changes, and each event of its sessions.
type Progress struct {
	Schema string `json:"schema"` // cofferdam/progress/v1
	Task   *Task  `json:"task,omitempty"`
	Event  *Event `json:"event,omitempty"`
}

// Status says what a server has to do and how it is.
type Status struct {
	Schema  string            `json:"schema"` // cofferdam/status/v1
	Version string            `json:"version"`
	Build   string            `json:"build"` // of the server's program
	Started time.Time         `json:"started"`
	Keepers []Keeper          `json:"keepers"` // that have boxes now, or make them
	Tasks   map[TaskState]int `json:"tasks"`
	Waiting []Task            `json:"waiting"` // in review or waiting for a person
	// Workspaces are those that are about to be removed, and those that cannot be.
	Workspaces []Workspace `json:"workspaces,omitempty"`
}

// Keeper is a process that owns boxes. While one replaces another there are two.
type Keeper struct {
	Process  int    `json:"process"`  // its id on the host
	Build    string `json:"build"`    // of its programs
	Boxes    int    `json:"boxes"`    // it has now
	Draining bool   `json:"draining"` // it makes no more, and ends with its last one
}

// RepoRequest registers a repository.
type RepoRequest struct {
	Name       string    `json:"name"`
	Upstream   string    `json:"upstream"`
	Base       string    `json:"base,omitempty"` // branch; empty: the one HEAD names
	User       string    `json:"user,omitempty"`
	Credential Sensitive `json:"credential,omitempty"` // of an https upstream; sealed, never returned
}

// ModelRequest registers a model provider.
type ModelRequest struct {
	Name      string            `json:"name"`
	Provider  string            `json:"provider"`      // the protocol: anthropic, openai, gemini
	URL       string            `json:"url,omitempty"` // empty: the provider's own
	Rehearsal bool              `json:"rehearsal,omitempty"`
	Default   string            `json:"default,omitempty"` // these five as in Model
	Allow     []string          `json:"allow,omitempty"`
	Alias     map[string]string `json:"alias,omitempty"`
	Fallback  []string          `json:"fallback,omitempty"`
	KeepText  bool              `json:"keep_text,omitempty"`
	NoKey     bool              `json:"no_key,omitempty"` // the server at URL asks for none
	Key       Sensitive         `json:"key,omitempty"`    // sealed, never returned
}

// Sensitive is a secret on its way in. Only JSON carries its value; it prints
// as [redacted] everywhere else.
type Sensitive string

// String, GoString, Format and LogValue hide the value.
func (Sensitive) String() string             { return "[redacted]" }
func (Sensitive) GoString() string           { return "[redacted]" }
func (Sensitive) Format(f fmt.State, _ rune) { fmt.Fprint(f, "[redacted]") }
func (Sensitive) LogValue() slog.Value       { return slog.StringValue("[redacted]") }

// ParseHost returns name as a Host: lower case, without a trailing dot.
func ParseHost(name string) Host {
	return Host(strings.ToLower(strings.TrimSuffix(name, ".")))
}
