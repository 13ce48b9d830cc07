package session

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"cofferdam"
)

// stepQueued, of session.state: the session waits for its turn.
const stepQueued = "queued"

// turns says whose boxes may run. A session has its turn from before its first
// box is made until its last is gone, but for the time in which its box rests.
type turns struct {
	most int

	mu    sync.Mutex
	held  map[cofferdam.SessionID]bool // guarded by mu
	queue []*place                     // the first comes first; guarded by mu
}

// place is one in the queue.
type place struct {
	id    cofferdam.SessionID
	ready chan struct{} // closed when it is its turn
}

// take gives a session its turn, or, with nil, says that it has it. One whose box
// runs has it at once, however many there are: a server before this one gave it.
func (t *turns) take(id cofferdam.SessionID, runs bool) (wait *place, others int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.held[id] || runs || len(t.held) < t.most && len(t.queue) == 0 {
		t.held[id] = true
		return nil, 0
	}
	p := &place{id, make(chan struct{})}
	t.queue = append(t.queue, p)
	return p, len(t.held)
}

// give lets another session have the turn of this one, if it has it.
func (t *turns) give(id cofferdam.SessionID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.held, id)
	for len(t.queue) > 0 && len(t.held) < t.most {
		t.held[t.queue[0].id] = true
		close(t.queue[0].ready)
		t.queue = t.queue[1:]
	}
}

// leave is for one that waits no longer; it may have got its turn meanwhile.
func (t *turns) leave(p *place) {
	t.mu.Lock()
	i := slices.Index(t.queue, p)
	if i >= 0 {
		t.queue = slices.Delete(t.queue, i, i+1)
	}
	t.mu.Unlock()
	if i < 0 {
		t.give(p.id)
	}
}

// has says whether a session has its turn.
func (t *turns) has(id cofferdam.SessionID) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.held[id]
}

// waits says whether a session does.
func (t *turns) waits(id cofferdam.SessionID) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.ContainsFunc(t.queue, func(p *place) bool { return p.id == id })
}

// wanted says whether somebody waits for a turn.
func (t *turns) wanted() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.queue) > 0
}

// errNoTurn says that an environment has to be made for a session whose box rests,
// and that has no turn for the box of its setup.
var errNoTurn = errors.New("it is not its turn")

// ticket is the part of a session that is about its turn.
type ticket struct{ *attempt }

// wait waits for the session's turn before anything of it runs. Where an earlier
// process left its box, that runs already, or rests until there is an answer.
func (a ticket) wait(ctx context.Context) error {
	runs, rests := false, false
	a.ledger.look(func(s *seen) {
		runs, rests = (s.boxed != "" || s.setups > 0) && !s.suspended, s.asked && s.suspended
	})
	if rests {
		return nil
	}
	return a.take(ctx, runs)
}

// take returns once it is the session's turn. That it has to wait is on record.
func (a ticket) take(ctx context.Context, runs bool) error {
	p, others := a.turns.take(a.plan.ID, runs)
	if p == nil {
		return nil
	}
	err := a.ledger.step(ctx, stepQueued, map[string]string{
		fieldText: fmt.Sprintf("it waits for its turn: as many sessions run as may, %d", others),
	})
	if err == nil {
		select {
		case <-p.ready:
			return nil
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
	}
	a.turns.leave(p)
	return err
}
