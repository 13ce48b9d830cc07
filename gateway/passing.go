package gateway

import (
	"context"
	"errors"
	"time"

	"cofferdam"
	"cofferdam/policy"
)

// passing is an act that was let through and is under way.
type passing struct {
	query   policy.Query
	opening policy.Opening // by what people opened it passes; zero for none
	stop    context.CancelCauseFunc
}

// errMoved is why an act ends that policy refuses by now.
var errMoved = errors.New("policy refuses it since then")

// pass returns a context for an act that d lets through. It ends once what counts
// refuses the act: by another policy, or because the time of what allowed it is
// over. So a stream that began in time does not go on for ever. leave has to be
// called when the act is over.
func (r *Rules) pass(ctx context.Context, q policy.Query, d cofferdam.Decision) (_ context.Context, leave func()) {
	ctx, stop := context.WithCancelCause(ctx)
	p := &passing{query: q, stop: stop}
	s := r.Set()
	p.opening, _ = s.Opening(d.Rule)
	r.mu.Lock()
	if r.under == nil {
		r.under = map[*passing]struct{}{}
	}
	r.under[p] = struct{}{}
	r.arm()
	r.mu.Unlock()
	if s = r.Set(); s.Digest() != d.Policy && !r.still(s, p) { // it was changed since it was asked
		stop(errMoved)
	}
	return ctx, func() {
		r.mu.Lock()
		delete(r.under, p)
		r.mu.Unlock()
		stop(nil)
	}
}

// still says whether s lets p go on. One that took the last use of an opening goes
// on until its time is over.
func (r *Rules) still(s *policy.Set, p *passing) bool {
	d := s.Decide(p.query)
	if d.Verdict != cofferdam.Refused {
		return true
	}
	_, there := s.Opening(p.opening.ID)
	return p.opening.ID != "" && !there && d.Rule == policy.DefaultDeny && !s.Locked(p.query) && r.now().Before(p.opening.Until)
}

// moved ends what is under way and refused by now.
func (r *Rules) moved() {
	s := r.Set()
	r.mu.Lock()
	defer r.mu.Unlock()
	for p := range r.under {
		if !r.still(s, p) {
			p.stop(errMoved)
			delete(r.under, p)
		}
	}
	r.arm()
}

// arm has moved called once the next time is over; r.mu is held.
func (r *Rules) arm() {
	if r.timer != nil {
		r.timer.Stop()
		r.timer = nil
	}
	if len(r.under) == 0 {
		return
	}
	next := r.held.Load().Expires()
	for p := range r.under {
		if at := p.opening.Until; !at.IsZero() && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	if !next.IsZero() {
		r.timer = time.AfterFunc(max(next.Sub(r.now()), 0)+10*time.Millisecond, r.moved)
	}
}
