package session

import (
	"context"
	"fmt"

	"cofferdam"
	"cofferdam/agent/loop"
	"cofferdam/policy"
	"cofferdam/sandbox"
)

// hands are those of our own agent: they run its commands in the session's box,
// on record like every command, and give back what is on record.
type hands struct{ a *attempt }

var _ loop.Hands = hands{}

// Exec implements loop.Hands.
func (h hands) Exec(ctx context.Context, c sandbox.Command, stdin []byte) (loop.Output, error) {
	c.Env = append(h.a.own(), c.Env...)
	var out, errs ends
	also := func(s sandbox.Stream, text []byte) error {
		if s == sandbox.Stderr {
			errs.write(text)
		} else {
			out.write(text)
		}
		return nil
	}
	ran, err := h.limited(c, func(c sandbox.Command) (*ran, error) {
		if c.Stdin {
			return h.feed(ctx, c, stdin, also)
		}
		return h.a.execute(ctx, h.a.box, policy.ByAgent, c, also)
	})
	if err != nil {
		return loop.Output{}, err
	}
	return loop.Output{Result: ran.Result, Out: out.String(), Err: errs.String(), Disturbed: ran.disturbed}, nil
}

// maxFeeds bounds how often a command is fed anew; each time is the end of a
// server in the middle of it.
const maxFeeds = 32

// feed runs a command that reads stdin. How much of it a process gave to the
// command that ended before the command did is not known, so the input of such a
// command is ended, and it runs again under another id: it has to be one that
// does nothing with half its input and that may run twice.
func (h hands) feed(ctx context.Context, c sandbox.Command, stdin []byte, also func(sandbox.Stream, []byte) error) (*ran, error) {
	a := h.a
	id := c.ID
	for n := 1; n <= maxFeeds; n++ {
		if n > 1 {
			c.ID = cofferdam.ExecID(fmt.Sprintf("%s-again-%d", id, n))
		}
		x, started := a.ledger.exec(c.ID)
		if x.result != nil {
			return a.execute(ctx, a.box, policy.ByAgent, c, also)
		}
		if started {
			if err := h.abandon(ctx, c.ID); err != nil {
				return nil, err
			}
			continue
		}
		if err := a.begin(ctx, a.box, policy.ByAgent, c); err != nil {
			return nil, err
		}
		if err := a.box.Write(ctx, c.ID, stdin, true); err != nil && cofferdam.KindOf(err) != cofferdam.Conflict {
			return nil, boxError(err) // a Conflict: it ended without reading all, and its exit code tells
		}
		return a.execute(ctx, a.box, policy.ByAgent, c, also)
	}
	return nil, fail(cofferdam.ReasonInternal, fmt.Sprintf("command %s was cut %d times", id, maxFeeds))
}

// abandon lets a command of an earlier process come to its end without further
// input; it may never have been started. Killed, it could leave half a file.
func (h hands) abandon(ctx context.Context, id cofferdam.ExecID) error {
	err := h.a.box.Write(ctx, id, nil, true)
	switch cofferdam.KindOf(err) {
	case cofferdam.NotFound:
		if _, gone := h.a.box.Status(ctx); gone == nil {
			return nil
		}
		return boxError(err)
	case cofferdam.Conflict:
		err = nil // its input has ended
	}
	if err == nil {
		_, err = h.a.box.Attach(ctx, id, sandbox.Offsets{}, func(sandbox.Stream, int64, []byte) error { return nil })
	}
	return boxError(err)
}

// ends keeps the first and the last part of what is written to it, at most
// loop.MaxOutput, and how much is missing between them.
type ends struct {
	head, tail []byte
	missing    int64
}

const halfOutput = loop.MaxOutput / 2

func (e *ends) write(p []byte) {
	n := min(len(p), halfOutput-len(e.head))
	e.head = append(e.head, p[:n]...)
	e.tail = append(e.tail, p[n:]...)
	if over := len(e.tail) - halfOutput; over > halfOutput { // so that it is moved seldom
		e.missing += int64(over)
		e.tail = append(e.tail[:0], e.tail[over:]...)
	}
}

// String returns both parts; what is between them is counted.
func (e *ends) String() string {
	tail, missing := e.tail, e.missing
	if over := len(tail) - halfOutput; over > 0 {
		tail, missing = tail[over:], missing+int64(over)
	}
	if missing == 0 {
		return string(e.head) + string(tail)
	}
	return fmt.Sprintf("%s\n[%d bytes left out]\n%s", e.head, missing, tail)
}
