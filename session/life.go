package session

import (
	"context"
	"time"

	"cofferdam"
	"cofferdam/sandbox"
)

// countPatience is how long who looks at a session waits for the count of what
// runs in its box. Source: docs/SPECIFICATION.md, "Session".
const countPatience = 2 * time.Second

// life is where the box of a session that runs here can be looked at.
type life struct {
	of   *attempt
	box  cofferdam.BoxID
	ends time.Time
}

// remember keeps which box a session has now.
func (r *Runner) remember(id cofferdam.SessionID, l life) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.alive[id] = l
}

// forget is for a session that does not run here any more.
func (r *Runner) forget(id cofferdam.SessionID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.alive, id)
	delete(r.ruled, id)
}

// Life says where the box of a session stands that this process runs, or why it
// waits for one; NotFound if it runs none, or is about to make it.
func (r *Runner) Life(ctx context.Context, id cofferdam.SessionID) (cofferdam.BoxLife, error) {
	r.mu.Lock()
	l, ok := r.alive[id]
	r.mu.Unlock()
	why, since, waits := r.turns.stands(id)
	if !ok && waits {
		return cofferdam.BoxLife{State: cofferdam.BoxQueued, Reason: why, Actor: "host", Since: since}, nil
	}
	if !ok {
		return cofferdam.BoxLife{}, &cofferdam.Error{Op: "session.Life", Kind: cofferdam.NotFound, Subject: "box of session " + string(id), Reason: "it has none now"}
	}
	box, err := r.o.Driver.Open(ctx, l.box)
	if err != nil {
		return cofferdam.BoxLife{}, err
	}
	st, err := box.Status(ctx)
	if err != nil {
		return cofferdam.BoxLife{}, err
	}
	if waits {
		st.Reason += "; " + why
	}
	v := cofferdam.BoxLife{State: string(st.State), Reason: st.Reason, Ends: l.ends}
	if n := len(st.Changes); n > 0 {
		last := st.Changes[n-1]
		v.Actor, v.Sequence, v.Since = last.Actor, last.Sequence, last.Time
	}
	if st.State == sandbox.Busy || st.State == sandbox.Idle {
		ctx, cancel := context.WithTimeout(ctx, countPatience)
		defer cancel()
		v.Jobs, _ = box.Jobs(ctx) // a box that does not answer has a state all the same
	}
	return v, nil
}

// Waits says why a session waits for its turn, and where; "" if it does not.
func (r *Runner) Waits(id cofferdam.SessionID) string {
	why, _, _ := r.turns.stands(id)
	return why
}
