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

// Plus returns the sum.
func (a Amount) Plus(b Amount) Amount {
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
	met   string // which limit was met first, as a sentence; guarded by mu
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

// Reserve takes a for a call. It is an Exhausted error, and takes nothing, if
// that would pass a limit; so is every call after that, because a task whose
// limit was met has ended, however small its next call is.
func (m *Meter) Reserve(a Amount) (*Reservation, error) {
	r := &Reservation{meter: m}
	return r, r.Hold(a)
}

// Reservation is what a call that runs has taken so far.
type Reservation struct {
	meter *Meter
	held  Amount // guarded by meter.mu
}

// Hold puts a in the place of what the call has taken until now. It is an
// Exhausted error, and changes nothing, if that would pass a limit. What is
// less than before is always taken.
func (r *Reservation) Hold(a Amount) error {
	m := r.meter
	if m == nil {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	next := m.taken.minus(r.held).Plus(a)
	for _, l := range []struct {
		what               string
		limit, wants, more int64
	}{
		{"tokens", m.limits.Tokens, next.Tokens, a.Tokens - r.held.Tokens},
		{"microdollars", m.limits.Cost, next.Cost, a.Cost - r.held.Cost},
		{"model calls", m.limits.Calls, next.Calls, a.Calls - r.held.Calls},
	} {
		if l.limit > 0 && l.more > 0 && (l.wants > l.limit || m.met != "") {
			if m.met == "" {
				m.met = fmt.Sprintf("of its %d %s the task has used %d, and this call would take %d", l.limit, l.what, l.wants-l.more, l.more)
			}
			return &cofferdam.Error{
				Op: "budget.Hold", Kind: cofferdam.Exhausted, Subject: "budget of the task", Reason: m.met,
				Hint: "what was done until now is kept; a person can give a new task more",
			}
		}
	}
	m.taken, r.held = next, a
	return nil
}

// Settle puts what was really spent in the place of what was reserved. Further
// calls do nothing. What a provider counts may be more than was reserved.
func (r *Reservation) Settle(spent Amount) {
	m := r.meter
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.taken = m.taken.minus(r.held).Plus(spent)
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

// Held returns what the call has taken so far.
func (r *Reservation) Held() Amount {
	m := r.meter
	if m == nil {
		return Amount{}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return r.held
}
