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

// Amount is what an act takes, or what many took.
type Amount = cofferdam.Budget

// Warning says that a task has used most of what it has of something.
type Warning struct {
	Field       cofferdam.BudgetField
	Used, Limit int64
}

// WarnAt is how much of a limit is used, in percent, when there is a warning.
// Source: docs/SPECIFICATION.md, "Budgets".
const WarnAt = 80

// Meter keeps the running total of one task. Safe for concurrent use; the nil
// Meter has no limits.
type Meter struct {
	limits cofferdam.Budget

	mu    sync.Mutex
	taken Amount // spent and reserved; guarded by mu
	most  Amount // of it what AtMost has reserved; guarded by mu
	met   string // which limit of models was met first, as a sentence; guarded by mu
	warn  func(Warning)
	told  map[string]bool // fields of which it was warned, by key; guarded by mu
}

// New returns a Meter that has spent already. Zero limits do not limit.
func New(limits cofferdam.Budget, spent Amount) *Meter {
	return &Meter{limits: limits, taken: spent}
}

// OnWarning has warn called once for each limit that is used to WarnAt percent,
// now or later, but for those named in told, by key. It is called by whoever
// spends, before that goes on.
func (m *Meter) OnWarning(told map[string]bool, warn func(Warning)) {
	if m == nil {
		return
	}
	m.mu.Lock()
	m.told, m.warn = map[string]bool{}, warn
	for key, was := range told {
		m.told[key] = was
	}
	m.mu.Unlock()
	m.tell()
}

// tell warns of what is newly used so far.
func (m *Meter) tell() {
	m.mu.Lock()
	var news []Warning
	warn := m.warn
	for _, f := range cofferdam.BudgetFields() {
		limit, used := *f.Of(&m.limits), *f.Of(&m.taken)-*f.Of(&m.most)
		if warn != nil && !m.told[f.Key] && Warns(used, limit) {
			m.told[f.Key] = true
			news = append(news, Warning{f, used, limit})
		}
	}
	m.mu.Unlock()
	for _, w := range news {
		warn(w)
	}
}

// Warns says whether so much of a limit is used that there is a warning.
func Warns(used, limit int64) bool {
	return limit > 0 && used >= limit-limit*(100-WarnAt)/100
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

// AtMost is Reserve for a call that takes a at most and may take far less, such as a
// command by its time limit: nobody is warned of what it might take, before it is settled.
func (m *Meter) AtMost(a Amount) (*Reservation, error) {
	r := &Reservation{meter: m, most: true}
	return r, r.Hold(a)
}

// Reservation is what a call that runs has taken so far.
type Reservation struct {
	meter *Meter
	most  bool   // by AtMost
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
	defer m.tell() // once mu is free
	m.mu.Lock()
	defer m.mu.Unlock()
	next, more := m.taken.Minus(r.held).Plus(a), a.Minus(r.held)
	for _, f := range cofferdam.BudgetFields() {
		limit, wants, more := *f.Of(&m.limits), *f.Of(&next), *f.Of(&more)
		if limit == 0 || more <= 0 || wants <= limit && !(f.Model && m.met != "") {
			continue
		}
		why := m.met
		if !f.Model || why == "" {
			why = fmt.Sprintf("of its %s the task has used %s, and this would take %s", f.Show(limit), f.Show(wants-more), f.Show(more))
		}
		if f.Model {
			m.met = why
		}
		return &cofferdam.Error{
			Op: "budget.Hold", Kind: cofferdam.Exhausted, Subject: "budget of the task", Reason: why,
			Hint: "what was done until now is kept; a person can give more with cofferdam task retry TASK --resume --" + f.Flag + " MORE",
		}
	}
	if r.most {
		m.most = m.most.Plus(more)
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
	defer m.tell() // once mu is free
	m.mu.Lock()
	defer m.mu.Unlock()
	if r.most {
		m.most = m.most.Minus(r.held)
	}
	m.taken = m.taken.Minus(r.held).Plus(spent)
	r.meter = nil
}

// Left returns how much is left of a field, and whether it has a limit.
func (m *Meter) Left(f func(*cofferdam.Budget) *int64) (left int64, limited bool) {
	limits, taken := m.Limits(), m.Taken()
	limit := *f(&limits)
	return max(0, limit-*f(&taken)), limit > 0
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
