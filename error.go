package cofferdam

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// Kind sorts errors. The number travels, so new kinds are added at the end.
type Kind int

// The kinds of error; the table in Kinds says what each means to a caller.
const (
	Internal Kind = iota
	Invalid
	Unauthenticated
	Forbidden
	Denied
	NotFound
	Conflict
	AwaitsPerson
	Exhausted
	Unavailable
	Tampered
)

// KindInfo is what a kind of error means outside.
type KindInfo struct {
	Name  string // on the wire
	HTTP  int    // status
	Exit  int    // of the command line
	Retry string // when trying again makes sense
	Hint  string // used where an error brings no hint of its own
}

// Kinds maps every kind to its meaning. Source: docs/SPECIFICATION.md, "Errors".
func Kinds() map[Kind]KindInfo {
	return map[Kind]KindInfo{
		Internal:        {"internal", 500, 1, "once", "run again with --debug and look into the server's log for the request id"},
		Invalid:         {"invalid", 400, 2, "no", "see --help of this command"},
		Unauthenticated: {"unauthenticated", 401, 4, "after login", "set COFFERDAM_TOKEN_FILE, or use the server's unix socket"},
		Forbidden:       {"forbidden", 403, 4, "no", "ask a person with that role"},
		Denied:          {"denied", 403, 10, "no", "the policy of this task does not allow it; a person can start a task that does"},
		NotFound:        {"not found", 404, 5, "no", "list what there is with the list command"},
		Conflict:        {"conflict", 409, 1, "after reading again", "read the current state and try again"},
		AwaitsPerson:    {"waiting", 202, 9, "wait", "a person has to answer first"},
		Exhausted:       {"exhausted", 429, 12, "when told", "raise the limit or free something"},
		Unavailable:     {"unavailable", 503, 1, "with back-off", "cofferdam doctor checks this host"},
		Tampered:        {"tampered", 500, 11, "never", "do not trust this evidence; keep the file"},
	}
}

// String returns the kind's name on the wire.
func (k Kind) String() string { return Kinds()[k].Name }

// ParseKind is the reverse of Kind.String; unknown names are Internal.
func ParseKind(name string) Kind {
	for k, i := range Kinds() {
		if i.Name == name {
			return k
		}
	}
	return Internal
}

// Error says what could not be done, why, and what to do next.
type Error struct {
	Op      string // room and verb: "egress.Forward"
	Kind    Kind
	Subject string // what it was about, for people: "push to main"
	Reason  string // why, for people; empty: the text of Err
	Hint    string // the next step
	// After is in how long trying again makes sense; 0: nobody knows.
	After time.Duration
	Err   error // the cause; shown only with --debug
}

// Error returns "subject: reason", the line a person reads: several errors in one
// stay one line.
func (e *Error) Error() string {
	var parts []string
	if e.Subject != "" {
		parts = append(parts, e.Subject)
	}
	switch {
	case e.Reason != "":
		parts = append(parts, line(e.Reason))
	case e.Err != nil:
		parts = append(parts, line(e.Err.Error()))
	}
	if len(parts) == 0 {
		return fmt.Sprintf("%s: %s", e.Op, e.Kind)
	}
	return strings.Join(parts, ": ")
}

// line puts the lines of a text into one.
func line(text string) string {
	return strings.Join(strings.FieldsFunc(text, func(r rune) bool { return r == '\n' || r == '\r' }), "; ")
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// noKind is that of no error: none of those in Kinds.
const noKind Kind = -1

// KindOf returns the kind of the first Error in err's chain; Internal if none. Of
// nil it is no kind at all.
func KindOf(err error) Kind {
	if err == nil {
		return noKind
	}
	var e *Error
	if errors.As(err, &e) {
		return e.Kind
	}
	return Internal
}

// HintOf returns the first hint in err's chain, or that of its kind.
func HintOf(err error) string {
	kind := KindOf(err)
	for e := (*Error)(nil); errors.As(err, &e); err = e.Err { // also into errors that were joined
		if e.Hint != "" {
			return e.Hint
		}
	}
	return Kinds()[kind].Hint
}
