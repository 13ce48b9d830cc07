// Package policy decides what a session may do. A Set is compiled from what
// people wrote (Document) and from what this session was given (Grant); Decide
// then answers questions without I/O, without state and without looking at the
// text of any command.
//
// What gives is one judgement (Set.core): the built-in rules, the operator's text,
// what the organisation allows, the project's document and what the session was
// given. What takes away is a list of layers over it (Set.layers): the
// organisation, classes, a task's scope, the repository's file. Each of those is
// judged by itself and gives nothing. The most restrictive answer of all counts,
// so no part opens what another one closes. What a person opened for a while is
// asked last, about what no rule denies. The invariant: default deny, and a deny
// beats every permit. What is ambiguous, unknown or unreadable is refused when the
// Set is made, never skipped.
//
// # Splices
//
// What goes to an allowed host is read: TLS is terminated and every request
// judged. An entry splice:HOST[:PORT] or splice:*.HOST[:PORT] asks that TLS to
// that host passes unseen instead: for clients that have its certificates built
// in, show a certificate of their own, or speak no HTTP/1.1. Where several entries match a host, the most
// specific name decides: a host before a wildcard, a longer wildcard before a
// shorter one. Of two that are alike the host is read. A project file cannot
// ask for a splice: what its list leaves standing keeps what it had.
package policy

import (
	"encoding/json"

	"cofferdam"
)

// Actions a Set is asked about; Cedar sees them as Action::"resolve" and so on.
const (
	Resolve = "resolve" // may the name be known to this box
	Connect = "connect" // may a connection be made to host:port; alone it lets bytes pass only where they are spliced
	HTTP    = "request" // may this HTTP request go out
	Fetch   = "fetch"   // read a repository
	Push    = "push"    // write one ref
	Call    = "call"    // call the model provider
	Invoke  = "invoke"  // call a tool
	Use     = "use"     // have a secret attached
	Run     = "run"     // start a command in a box; its name says who wants it, not what it is
	Read    = "read"    // a file of the box, from outside
	Write   = "write"
	Expose  = "expose"  // show a port of the box to people
	Fork    = "fork"    // make a box from a snapshot
	Restore = "restore" // put a workspace back to a checkpoint
	Land    = "land"    // move a base branch
)

// Who a command is started for, as a question about Run names it. Nothing looks
// at the command.
const (
	ByAgent    = "agent"    // the agent's own program, and what the tools of ours start
	ByCheck    = "check"    // a check of the task
	BySetup    = "setup"    // making an environment, and what it wants in each new box
	ByPlatform = "platform" // the platform's own steps: the checkout, what is handed over
	ByPerson   = "person"   // nobody yet: people have no shell in a box
)

// OwnTools is the server in the names of the tools of our own agent: own:shell.
const OwnTools = "own"

// Query is one question. It goes on record with its decision, as JSON, so that it
// can be asked again of another policy; fields that are not the action's own are
// zero.
type Query struct {
	Action string         `json:"action"`
	Host   cofferdam.Host `json:"host,omitempty"`   // resolve, connect, request
	Port   uint16         `json:"port,omitempty"`   // connect, request; 0 for resolve
	Method string         `json:"method,omitempty"` // request
	Path   string         `json:"path,omitempty"`   // request; escaped as it was sent, and judged in every way a server may read it
	Splice bool           `json:"splice,omitempty"` // connect, request: what flows after it will not be seen

	// Credential says of a request that it carries a key, token or password that the
	// box itself has.
	Credential bool `json:"credential,omitempty"`

	Repo   cofferdam.RepoID `json:"repo,omitempty"`   // fetch, push
	Ref    cofferdam.Ref    `json:"ref,omitempty"`    // push, land
	Create bool             `json:"create,omitempty"` // push: the ref does not exist yet
	Delete bool             `json:"delete,omitempty"` // push
	Force  bool             `json:"force,omitempty"`  // push: not a fast-forward
	Model  string           `json:"model,omitempty"`  // call: name of the model provider entry
	Name   string           `json:"name,omitempty"`   // invoke: SERVER:TOOL; use, run, read, write, expose, fork, restore: what is acted on
	Args   json.RawMessage  `json:"args,omitempty"`   // invoke: the arguments as they will be sent, a JSON object
}

// name returns what the entries of a document's lists are compared with, for
// actions about anything but a host.
func (q Query) name() string {
	switch q.Action {
	case Fetch:
		return string(q.Repo)
	case Push, Land:
		return string(q.Ref)
	case Call:
		return q.Model
	}
	return q.Name
}
