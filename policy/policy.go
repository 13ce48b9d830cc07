// Package policy decides what a session may do. A Set is compiled once per
// session from grants (which hosts, which branch, which model) and Cedar text;
// Decide then answers questions without I/O, without state and without looking
// at the text of any command.
//
// The invariant: default deny, and a forbid beats every permit. What is
// ambiguous, unknown or unreadable is refused when the Set is made, never
// skipped.
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

import "cofferdam"

// Actions a Set is asked about; Cedar sees them as Action::"resolve" and so on.
const (
	Resolve = "resolve" // may the name be known to this box
	Connect = "connect" // may a connection be made to host:port; alone it lets bytes pass only where they are spliced
	HTTP    = "request" // may this HTTP request go out
	Fetch   = "fetch"   // read the repository
	Push    = "push"    // write one ref
	Call    = "call"    // call the model provider
)

// Query is one question.
type Query struct {
	Action string
	Host   cofferdam.Host // resolve, connect, request
	Port   uint16         // connect, request; 0 for resolve
	Method string         // request
	Path   string         // request; escaped as it was sent, and judged in every way a server may read it
	Splice bool           // connect: what flows will not be seen
	Repo   cofferdam.RepoID
	Ref    cofferdam.Ref // push
	Create bool          // push: the ref does not exist yet
	Delete bool          // push
	Force  bool          // push: not a fast-forward
	Model  string        // call: name of the model provider entry
}
