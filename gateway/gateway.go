// Package gateway holds what every way out of a box shares: who is calling,
// the six steps of a request (identify, decide, spend, record, attach,
// forward) and how a refusal is told.
//
// It never opens a connection by itself; its sub-rooms do, from inside Handle
// and through its Dialer, which judges the very address it dials.
// The invariant: no record, no pass. What is decided goes on record before it
// is forwarded, and what came of it goes on record on the way back.
package gateway

import (
	"context"
	"net"
	"strconv"
	"sync"
	"sync/atomic"

	"cofferdam"
	"cofferdam/budget"
	"cofferdam/policy"
)

// Phase is what a session is doing; grants may differ by it.
type Phase string

// The phases of a session.
const (
	Setup Phase = "setup" // making the environment, before any agent
	Work  Phase = "work"  // the agent's own
	Proof Phase = "proof" // the platform runs checks
)

// Caller is who is at the other end of a wire. It is made once per session by
// the platform; nothing that a box sends can change it.
type Caller struct {
	cofferdam.Scope
	Task     cofferdam.TaskID
	Session  cofferdam.SessionID
	Actor    cofferdam.Principal
	Phase    Phase
	Repo     cofferdam.Repo      // the one repository this session may see
	Branch   cofferdam.Ref       // the one ref it may write; "" for none
	Base     cofferdam.Ref       // the branch that the work is for
	Contract *cofferdam.Contract // what a push may change; nil: anything
	Model    cofferdam.Model     // the one provider it may call; zero for none
	Budget   *budget.Meter       // what its task may spend on models; nil: no limit
	Policy   *Rules
	Ask      Asker              // people; nil: nobody can be asked
	Record   cofferdam.Recorder // of this session's log
	Live     context.Context    // ends with the session; every connection dies with it
	Counts   Counts

	wire sync.Once
	id   string // of the wire; made when it is asked for
}

// Wire returns the random id of this wire: what is bound to it is worth nothing on
// another one, nor after a later server has taken the session over.
func (c *Caller) Wire() string {
	c.wire.Do(func() { c.id = cofferdam.NewID("n") })
	return c.id
}

// Counts are a session's running totals, kept by the gateways.
type Counts struct {
	Refused, ModelCalls, InputTokens, OutputTokens, Cost, Unpriced atomic.Int64

	Acts atomic.Int64 // all that was tried; see MaxActs
}

// Target is where a connection of a box wants to go: the name it asked DNS
// for, never an address, and the port.
type Target struct {
	Host cofferdam.Host
	Port uint16
}

// String returns the target as HOST:PORT.
func (t Target) String() string {
	return net.JoinHostPort(string(t.Host), strconv.Itoa(int(t.Port)))
}

// Names that always exist inside a box.
const (
	GitHost   cofferdam.Host = "git.cofferdam.internal"
	ModelHost cofferdam.Host = "model.cofferdam.internal"

	IdentityHost cofferdam.Host = "identity.cofferdam.internal"
	PolicyHost   cofferdam.Host = "policy.cofferdam.internal"
)

// Handler serves connections of a box towards one kind of target. Serve owns
// conn and returns when it is done with it; it ends when caller.Live ends.
type Handler interface {
	Serve(caller *Caller, conn net.Conn, to Target)
}

// Request is one act of a box, ready to be judged.
type Request struct {
	Source   string              // the room: egress, git, model
	Actor    cofferdam.Principal // who does it; zero: the caller
	Kind     string              // event kind: cofferdam.EventRequest …
	Resource string              // for people and the record
	Query    policy.Query        // what policy is asked
	Fields   map[string]string   // for the record; redacted by the recorder
	Durable  bool                // synced before it happens: ref moves, credentials
	// Show returns what a person has to see before they allow it; nil: what
	// Resource and Query say is all there is. It is called only if they are asked.
	Show func(ctx context.Context) (Shown, error)
	// Carries is what the act takes of an opening that people bounded in bytes; nil:
	// nobody counts its bytes, and no such opening lets it pass.
	Carries *Allowance
	// Proposes is what an agent asks a person to open; nil: the act is what Query
	// says. Otherwise Query is a request to that host, which is not made.
	Proposes *Proposal
	// Attach adds a credential to the outgoing request, after the decision is
	// on record; nil if there is none to add. It asks policy first, by Use.
	Attach func(ctx context.Context) error
}

// What Outcome.Status can be.
const (
	OK     = "ok"
	Failed = "failed" // the far side or the way there
	Cut    = "cut"    // the session or the connection ended in the middle
)

// Outcome is what came of a request that was let through.
type Outcome struct {
	Status string            // OK, Failed, Cut; "": by the error that forward returned
	Reason string            // of a failure, for people; "": what the error says
	Fields map[string]string // sizes, hashes, codes
}
