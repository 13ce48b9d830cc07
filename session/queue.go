package session

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"cofferdam"
)

// stepQueued, of session.state: the session waits for its turn.
const stepQueued = "queued"

// turns says whose boxes may run. A session has its turn from before its first
// box is made until its last is gone, but for the time in which its box rests.
//
// Organisations take turns, and so do the projects of each: the next comes from
// the organisation that had none for longest, of that from such a project, and of
// that project it is who came first. No project has more than each.
type turns struct {
	most, each int // of all, of one project

	mu    sync.Mutex
	held  map[cofferdam.SessionID]cofferdam.Scope // guarded by mu
	queue []*place                                // as they came
	// served is when a project, or with project "" any of its organisation, had its
	// last turn, of those that have or want one.
	served map[cofferdam.Scope]uint64
	given  uint64 // turns, ever
}

// place is one in the queue.
type place struct {
	id    cofferdam.SessionID
	scope cofferdam.Scope
	ready chan struct{} // closed when it is its turn
	since time.Time
}

func newTurns(most, each int) *turns {
	if each == 0 || each > most {
		each = most
	}
	return &turns{most: most, each: each, held: map[cofferdam.SessionID]cofferdam.Scope{}, served: map[cofferdam.Scope]uint64{}}
}

// take gives a session its turn, or, with nil, says that it has it. One whose box
// runs has it at once, however many there are: a server before this one gave it.
// Why it has to wait is a sentence.
func (t *turns) take(id cofferdam.SessionID, scope cofferdam.Scope, runs bool) (wait *place, why string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, has := t.held[id]; has {
		return nil, ""
	}
	if runs {
		t.hand(id, scope)
		return nil, ""
	}
	p := &place{id, scope, make(chan struct{}), time.Now()}
	t.queue = append(t.queue, p)
	t.deal()
	if _, has := t.held[id]; has {
		return nil, ""
	}
	return p, t.why(p)
}

// why says why a place waits, and where; mu is held. Of other projects it says
// nothing: how many of theirs run or wait is theirs.
func (t *turns) why(p *place) string {
	place := 0
	for _, q := range t.queue {
		if q.scope == p.scope {
			place++
		}
		if q == p {
			break
		}
	}
	why := fmt.Sprintf("as many sessions run as may, %d", t.most)
	if t.of(p.scope) >= t.each && t.each < t.most {
		why = fmt.Sprintf("as many sessions of its project run as may, %d", t.each)
	}
	return fmt.Sprintf("it waits for its turn: %s; it is number %d of its project's that wait", why, place)
}

// stands says since when a session waits, and why and where it does now; false if
// it does not.
func (t *turns) stands(id cofferdam.SessionID) (why string, since time.Time, waits bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	i := slices.IndexFunc(t.queue, func(p *place) bool { return p.id == id })
	if i < 0 {
		return "", time.Time{}, false
	}
	return t.why(t.queue[i]), t.queue[i].since, true
}

// hand lets a session have a turn; mu is held.
func (t *turns) hand(id cofferdam.SessionID, scope cofferdam.Scope) {
	t.given++
	t.held[id], t.served[scope], t.served[whole(scope)] = scope, t.given, t.given
}

// whole is the organisation of a project.
func whole(of cofferdam.Scope) cofferdam.Scope {
	return cofferdam.Scope{Organization: of.Organization}
}

// of counts the turns of a project; mu is held.
func (t *turns) of(scope cofferdam.Scope) (n int) {
	for _, s := range t.held {
		if s == scope {
			n++
		}
	}
	return n
}

// next is whose turn it is, -1 for nobody's; mu is held.
func (t *turns) next() int {
	best := -1
	for i, p := range t.queue {
		if t.of(p.scope) < t.each && (best < 0 || t.before(p.scope, t.queue[best].scope)) {
			best = i
		}
	}
	return best
}

// before says whether a's turn comes before b's; mu is held.
func (t *turns) before(a, b cofferdam.Scope) bool {
	if x, y := t.served[whole(a)], t.served[whole(b)]; x != y {
		return x < y
	}
	return t.served[a] < t.served[b]
}

// hasAny says whether a project, or with project "" any of an organisation, has a
// turn; mu is held.
func (t *turns) hasAny(of cofferdam.Scope) bool {
	for _, s := range t.held {
		if s == of || whole(s) == of {
			return true
		}
	}
	return false
}

// deal gives away the turns that there are; mu is held.
func (t *turns) deal() {
	for len(t.held) < t.most {
		i := t.next()
		if i < 0 {
			break
		}
		p := t.queue[i]
		t.queue = slices.Delete(t.queue, i, i+1)
		t.hand(p.id, p.scope)
		close(p.ready)
	}
	if len(t.queue) == 0 { // nobody compares; so the map stays small
		maps.DeleteFunc(t.served, func(s cofferdam.Scope, _ uint64) bool { return !t.hasAny(s) })
	}
}

// give lets another session have the turn of this one, if it has it.
func (t *turns) give(id cofferdam.SessionID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.held, id)
	t.deal()
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
	_, has := t.held[id]
	return has
}

// wanted says whether somebody would have the turn of this session if it gave
// it away.
func (t *turns) wanted(id cofferdam.SessionID) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	mine, has := t.held[id]
	return has && slices.ContainsFunc(t.queue, func(p *place) bool { return p.scope == mine || t.of(p.scope) < t.each })
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
	p, why := a.turns.take(a.plan.ID, a.plan.Scope, runs)
	if p == nil {
		return nil
	}
	err := a.ledger.step(ctx, stepQueued, map[string]string{fieldText: why})
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
