// Package session runs one attempt: it opens the box, connects the gateways,
// prepares the workspace, runs the agent or the checks, and seals the trace.
//
// It never decides what is allowed (policy does) nor what a task's end is (task
// does). The invariant: whatever happens, also the end of this process in the
// middle, a session ends sealed, its box is gone and its grants are dead.
package session

import (
	"cmp"
	"errors"
	"strings"
	"time"

	"cofferdam"
	"cofferdam/gateway"
)

// Plan says what a session is to do. It is stored before the session starts,
// so that another process can go on with it.
type Plan struct {
	cofferdam.Scope
	ID      cofferdam.SessionID   `json:"id"`
	Task    cofferdam.TaskID      `json:"task"`
	Number  int64                 `json:"number"` // of the task: t-42
	Attempt int                   `json:"attempt"`
	Phase   gateway.Phase         `json:"phase"` // Work runs the agent, Proof runs Checks
	Repo    cofferdam.Repo        `json:"repo"`
	Commit  cofferdam.Commit      `json:"commit"`           // the workspace is a clone at this commit
	Base    cofferdam.Commit      `json:"base,omitempty"`   // its project file narrows the grant; empty: Commit
	Branch  cofferdam.Ref         `json:"branch,omitempty"` // may be written; "" in a Proof session
	Sees    cofferdam.Ref         `json:"sees,omitempty"`   // Proof: the branch of the attempt, which it may read
	Request cofferdam.TaskRequest `json:"request"`
	Model   cofferdam.Model       `json:"model"`
	Checks  []cofferdam.Check     `json:"checks,omitempty"` // Proof: run in this order, all of them
	Budget  cofferdam.Budget      `json:"budget"`           // of the whole task; zero fields do not limit
	Spent   cofferdam.Usage       `json:"spent"`            // by the task before this session
}

// base is the commit whose project file and definition count.
func (p Plan) base() cofferdam.Commit { return cmp.Or(p.Base, p.Commit) }

// baseBranch is the branch that the work is for.
func (p Plan) baseBranch() cofferdam.Ref {
	if b := p.Request.Base; b != "" {
		return cofferdam.Ref("refs/heads/" + strings.TrimPrefix(b, "refs/heads/"))
	}
	return p.Repo.Base
}

// Result is what came of a session.
type Result struct {
	Session  cofferdam.SessionID `json:"session"`
	Said     cofferdam.Said      `json:"said"`
	Message  string              `json:"message"` // the agent's last words, bounded; hostile text
	Exit     int                 `json:"exit"`    // of the agent
	TimedOut bool                `json:"timed_out"`
	// Met are the limits that the agent met, such as memory or output.
	Met    []string         `json:"met,omitempty"`
	Head   cofferdam.Commit `json:"head"` // what Branch holds in the mirror at the end; "" if it was never written
	Checks []CheckRun       `json:"checks,omitempty"`
	Usage  cofferdam.Usage  `json:"usage"`
	Sealed Head             `json:"sealed"`
	Box    Box              `json:"box"`
	// By what it was judged, which answers of people let acts pass, and what went
	// beyond its task's scope. Of each the first and the last, if there are many.
	Judged []cofferdam.Judged `json:"judged,omitempty"`
	Passed []cofferdam.Passed `json:"passed,omitempty"`
	Strays cofferdam.Strays   `json:"strays"`
	// Failure is a reason code (cofferdam.ReasonBox …) when the session could
	// not do its work; Reason is the sentence.
	Failure string `json:"failure,omitempty"`
	Reason  string `json:"reason,omitempty"`
}

// CheckRun is one check as it ran in a fresh box.
type CheckRun struct {
	Command   string           `json:"command"`
	Exit      int              `json:"exit"`
	TimedOut  bool             `json:"timed_out,omitempty"`
	Stdout    cofferdam.Digest `json:"stdout"`
	Stderr    cofferdam.Digest `json:"stderr"`
	Tail      string           `json:"tail"` // last 4 KiB of both, redacted; hostile text
	Exhausted []string         `json:"exhausted,omitempty"`
	Seconds   float64          `json:"seconds"`
}

// Box is what the session really ran in; it goes into trace and receipt.
type Box struct {
	Tier        string           `json:"tier"`
	Kernel      string           `json:"kernel"`
	Image       string           `json:"image"`
	Environment cofferdam.Digest `json:"environment"`     // digest of image name, setup commands and their result's key
	Found       string           `json:"found,omitempty"` // hit or miss of the environment, and why
	Policy      cofferdam.Digest `json:"policy"`
}

// Head is the sealed head of the session's trace.
type Head struct {
	Size uint64           `json:"size"` // events, the seal included
	Root cofferdam.Digest `json:"root"`
	Time time.Time        `json:"time"`
}

// ErrTaskEnded is the cause (context.Cause) with which the context of a running
// session ends when its task has ended: the box is destroyed and the log sealed.
// A context that ends for any other cause means only that this process goes
// away: the box lives on, and another process runs the same Plan again.
var ErrTaskEnded = errors.New("the task has ended")
