// Package budget says whether there is enough left: limits of a task and what
// it has spent.
//
// It never asks a provider and knows no prices; who spends says how much. The
// invariant: what is reserved counts as spent until it is settled, so two calls
// at the same time cannot both take what is left for one.
package budget

import (
	"fmt"
	"sync"

	"cofferdam"
)

// Amount is what a call takes. Tokens are input and output together, Cost is in
// millionths of a US dollar.
type Amount struct{ Tokens, Cost, Calls int64 }

func (a Amount) plus(b Amount) Amount {
	return Amount{a.Tokens + b.Tokens, a.Cost + b.Cost, a.Calls + b.Calls}
}

func (a Amount) minus(b Amount) Amount {
	return Amount{a.Tokens - b.Tokens, a.Cost - b.Cost, a.Calls - b.Calls}
}

// Meter keeps the running total of one task. Safe for concurrent use; the nil
// Meter has no limits.
type Meter struct {
	limits cofferdam.Budget

	mu    sync.Mutex
	taken Amount // spent and reserved; guarded by mu
}

// New returns a Meter that has spent already. Zero limits do not limit.
func New(limits cofferdam.Budget, spent Amount) *Meter {
	return &Meter{limits: limits, taken: spent}
}

// Limits returns what the Meter holds to.
func (m *Meter) Limits() cofferdam.Budget {
	if m == nil {
		return cofferdam.Budget{}
	}
	return m.limits
}

// Reserve takes a. It is an Exhausted error, and takes nothing, if that would
// pass a limit.
func (m *Meter) Reserve(a Amount) (*Reservation, error) {
	r := &Reservation{meter: m}
	return r, r.Grow(a)
}

// Reservation is what a call that runs has taken so far.
type Reservation struct {
	meter *Meter
	held  Amount // guarded by meter.mu
}

// Grow takes more for the same call. It is an Exhausted error, and takes
// nothing more, if that would pass a limit.
func (r *Reservation) Grow(a Amount) error {
	m := r.meter
	if m == nil {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	next := m.taken.plus(a)
	for _, l := range []struct {
		what         string
		limit, wants int64
	}{{"tokens", m.limits.Tokens, next.Tokens}, {"cost in microdollars", m.limits.Cost, next.Cost}, {"model calls", m.limits.Calls, next.Calls}} {
		if l.limit > 0 && l.wants > l.limit {
			return &cofferdam.Error{
				Op: "budget.Reserve", Kind: cofferdam.Exhausted, Subject: "budget of the task",
				Reason: fmt.Sprintf("%s: this would make %d of %d", l.what, l.wants, l.limit),
				Hint:   "a person can give a new task more; what was done until now is kept",
			}
		}
	}
	m.taken, r.held = next, r.held.plus(a)
	return nil
}

// Settle puts what was really spent in the place of what was reserved. Further
// calls do nothing.
func (r *Reservation) Settle(spent Amount) {
	m := r.meter
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.taken = m.taken.minus(r.held).plus(spent)
	r.meter = nil
}

// Taken returns what is spent and reserved.
func (m *Meter) Taken() Amount {
	if m == nil {
		return Amount{}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.taken
}
