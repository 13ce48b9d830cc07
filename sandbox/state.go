package sandbox

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"cofferdam"
)

// BoxState is where a box stands.
type BoxState string

// The states. Source: docs/SPECIFICATION.md, "States of a box".
const (
	Creating   BoxState = "creating"
	Ready      BoxState = "ready"      // made; no command has run yet
	Busy       BoxState = "busy"       // at least one command runs
	Idle       BoxState = "idle"       // no command runs
	Suspending BoxState = "suspending" // it is being paused, or written to disk
	Suspended  BoxState = "suspended"
	Stopping   BoxState = "stopping"
	Stopped    BoxState = "stopped" // it was ended
	Failed     BoxState = "failed"  // it ended by itself, or was never whole
	Expired    BoxState = "expired" // its time was over
	Deleted    BoxState = "deleted" // nothing is left of it
)

// moves says what may follow each state. Nothing follows Deleted.
var moves = map[BoxState][]BoxState{
	Creating:   {Ready, Failed, Stopping},
	Ready:      {Busy, Idle, Suspending, Stopping, Failed, Expired},
	Busy:       {Idle, Suspending, Stopping, Failed, Expired},
	Idle:       {Busy, Suspending, Stopping, Failed, Expired},
	Suspending: {Suspended, Busy, Idle, Ready, Stopping, Failed},
	Suspended:  {Busy, Idle, Ready, Stopping, Failed, Expired},
	Stopping:   {Stopped, Failed, Expired},
	Stopped:    {Deleted},
	Failed:     {Stopping, Deleted},
	Expired:    {Stopping, Deleted},
	Deleted:    {},
}

// Leads says whether to may follow s.
func (s BoxState) Leads(to BoxState) bool { return slices.Contains(moves[s], to) }

// Over says whether a box in this state runs nothing any more and never will.
func (s BoxState) Over() bool {
	return s == Stopped || s == Failed || s == Expired || s == Deleted
}

// Change is one step of a box from a state to the next.
type Change struct {
	Sequence int64     `json:"sequence"` // from 1, without a gap
	State    BoxState  `json:"state"`
	Reason   string    `json:"reason"`
	Actor    string    `json:"actor"` // who caused it: "caller", "box", "host", "driver"
	Time     time.Time `json:"time"`
}

// Who causes a change.
const (
	ByCaller = "caller" // who holds the Driver
	ByBox    = "box"    // something in it
	ByHost   = "host"   // the kernel, or who kills processes on it
	ByDriver = "driver"
)

// keptChanges is how many changes a Life remembers. A box that goes to and fro
// between busy and idle forgets the oldest; the sequence goes on.
const keptChanges = 64

// Life is the state machine of one box. The zero value is not ready: NewLife.
// Safe for concurrent use.
type Life struct {
	mu      sync.Mutex
	changes []Change      // the last keptChanges; guarded by mu
	moved   chan struct{} // closed at each change; guarded by mu
}

// NewLife begins a life in state Creating.
func NewLife() *Life {
	return &Life{
		changes: []Change{{Sequence: 1, State: Creating, Reason: "asked for", Actor: ByCaller, Time: time.Now()}},
		moved:   make(chan struct{}),
	}
}

// Now returns the last change.
func (l *Life) Now() Change {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.changes[len(l.changes)-1]
}

// Changes returns the last changes, the oldest first.
func (l *Life) Changes() []Change {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.changes)
}

// Move goes to another state. A step that the machine does not have is a
// Conflict and changes nothing; a step to where it stands is none and no error.
func (l *Life) Move(to BoxState, reason, actor string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	last := l.changes[len(l.changes)-1]
	if last.State == to {
		return nil
	}
	if !last.State.Leads(to) {
		return &cofferdam.Error{
			Op: "sandbox.Move", Kind: cofferdam.Conflict, Subject: "box that is " + string(last.State),
			Reason: fmt.Sprintf("it cannot become %s: %s", to, last.Reason), Hint: "look at its state and try again",
		}
	}
	if len(l.changes) == keptChanges {
		l.changes = append(l.changes[:0], l.changes[1:]...)
	}
	l.changes = append(l.changes, Change{last.Sequence + 1, to, reason, actor, time.Now()})
	close(l.moved)
	l.moved = make(chan struct{})
	return nil
}

// Conflict refuses something that the state does not allow.
func (l *Life) Conflict(op, subject string) error {
	now := l.Now()
	return &cofferdam.Error{
		Op: op, Kind: cofferdam.Conflict, Subject: subject,
		Reason: fmt.Sprintf("it is %s: %s", now.State, now.Reason), Hint: "resume it first, or start a new one if it has ended",
	}
}

// Wait returns once the box is in one of the states, or is over: then the
// change says how. It returns ctx's error when that ends first.
func (l *Life) Wait(ctx context.Context, states ...BoxState) (Change, error) {
	for {
		l.mu.Lock()
		last, moved := l.changes[len(l.changes)-1], l.moved
		l.mu.Unlock()
		if slices.Contains(states, last.State) || last.State.Over() {
			return last, nil
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return last, context.Cause(ctx)
		}
	}
}
