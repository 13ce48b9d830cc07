package gateway

import (
	"context"
	"fmt"
	"sync"

	"cofferdam"
	"cofferdam/policy"
)

// purseShare is which part of an opening's bytes a process takes from the
// database at a time, so that not every buffer is a transaction; purseMost bounds
// it, in bytes. Both are what a server that is killed may count as used.
// Source: docs/SPECIFICATION.md, "Approvals".
const (
	purseShare = 16
	purseMost  = 1 << 20
)

// purse is what is left of the bytes of one opening, in this process. What it
// holds is taken in the database: two processes, or two acts, never have the same.
type purse struct {
	caller  *Caller
	opening policy.Opening

	mu    sync.Mutex
	held  int64 // taken in the database; guarded by mu, as are those below
	spent int64 // of that, by acts, those under way included
	acts  int   // under way
	over  bool  // there was not enough, and it is ended
}

// purse returns that of an opening.
func (r *Rules) purse(c *Caller, g policy.Opening) *purse {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.purses == nil {
		r.purses = map[string]*purse{}
	}
	p := r.purses[g.ID]
	if p == nil {
		p = &purse{caller: c, opening: g}
		r.purses[g.ID] = p
	}
	return p
}

// take takes n; a Conflict if so many are not left, and then no more are.
func (p *purse) take(ctx context.Context, n int64) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	used := &cofferdam.Error{
		Op: "gateway.Handle", Kind: cofferdam.Conflict, Subject: p.opening.Pattern,
		Reason: fmt.Sprintf("the %d bytes that people opened %s for are used up", p.opening.Bytes, p.opening.Rule), Hint: "a person can open it again with cofferdam approval open",
	}
	if p.over || n > p.opening.Bytes {
		p.over = true
		return used
	}
	need := p.spent + n - p.held
	if need > 0 {
		want := max(need, min(p.opening.Bytes/purseShare, purseMost))
		err := p.caller.Ask.TakeBytes(ctx, questionOf(p.opening.ID), want, p.opening.Bytes)
		if cofferdam.KindOf(err) == cofferdam.Conflict && want > need {
			want = need
			err = p.caller.Ask.TakeBytes(ctx, questionOf(p.opening.ID), want, p.opening.Bytes)
		}
		if cofferdam.KindOf(err) == cofferdam.Conflict {
			p.over = true
			return used
		}
		if err != nil {
			return err
		}
		p.held += want
	}
	p.spent += n
	return nil
}

// end says that an act is over which has taken held and used less of it. With the
// last one what no act used goes back to the database.
func (p *purse) end(held, used int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.spent -= held - used
	if p.acts--; p.acts > 0 || p.held == p.spent {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(p.caller.Live), outcomeTimeout)
	defer cancel()
	if p.caller.Ask.TakeBytes(ctx, questionOf(p.opening.ID), p.spent-p.held, p.opening.Bytes) == nil {
		p.held = p.spent // otherwise it stays taken, which opens nothing
	}
}

// Allowance is what one act takes of an opening that people bounded in bytes, both
// ways together. It is made by the gateway that counts them; by most acts nothing
// of an opening is taken, and then it bounds nothing. Safe for concurrent use.
type Allowance struct {
	Ahead int64 // bytes that are known before the act is judged: all of them, or none of it

	mu   sync.Mutex
	from *purse // nil: no opening; guarded by mu
	held int64  // guarded by mu
}

// draw takes what is known ahead from an opening.
func (a *Allowance) draw(ctx context.Context, c *Caller, g policy.Opening) error {
	a.Settle(0) // from the one before
	p := c.Policy.purse(c, g)
	if err := p.take(ctx, a.Ahead); err != nil {
		return err
	}
	p.mu.Lock()
	p.acts++
	p.mu.Unlock()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.from, a.held = p, a.Ahead
	return nil
}

// Take takes n bytes more, before they flow. An error means that they must not: an
// Exhausted one that the opening has not so many left, and is over.
func (a *Allowance) Take(ctx context.Context, n int64) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.from == nil || n <= 0 {
		return nil
	}
	err := a.from.take(ctx, n)
	if err == nil {
		a.held += n
		return nil
	}
	if cofferdam.KindOf(err) != cofferdam.Conflict {
		return err
	}
	why, hint := Explain(err)
	if err := a.from.caller.end(ctx, a.from.opening.ID, why); err != nil {
		return err
	}
	return &cofferdam.Error{Op: "gateway.Take", Kind: cofferdam.Exhausted, Subject: a.from.opening.Pattern, Reason: why, Hint: hint, Err: err}
}

// Of returns the rule of the opening that the act takes from; "" for none.
func (a *Allowance) Of() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.from == nil {
		return ""
	}
	return a.from.opening.ID
}

// Settle says that the act is over and used so many bytes; what it took beyond
// them goes back.
func (a *Allowance) Settle(used int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.from == nil {
		return
	}
	a.from.end(a.held, min(used, a.held))
	a.from = nil
}
