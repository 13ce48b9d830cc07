package session

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"cofferdam"
	"cofferdam/agent"
)

// Defaults of how a running agent is attended. Source: docs/SPECIFICATION.md, "Agents".
const (
	// DefaultLook is how often a running agent's messages and its model's answers
	// are looked at.
	DefaultLook = time.Second
	// DefaultPatience is how long a tool call may go on, or a conversation take to
	// begin, once a message waits.
	DefaultPatience = 30 * time.Second
)

// pulse is what an agent does right now, as far as it tells.
type pulse struct {
	wake chan struct{} // of size 1: something has changed

	mu      sync.Mutex
	begun   bool // its conversation has a name; guarded by mu, as all that follows
	open    int  // tool calls without an answer
	answers int
}

func newPulse() *pulse { return &pulse{wake: make(chan struct{}, 1)} }

// see takes in one event of the agent.
func (p *pulse) see(e agent.Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch e.Kind {
	case agent.Begin:
		p.begun = true
	case agent.Tool:
		p.open++
	case agent.Answer:
		p.open = max(0, p.open-1)
		p.answers++
	case agent.Message:
		p.open = 0 // it goes on to speak, so whatever it had not told is over
	}
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// between says whether the agent can be interrupted: its conversation has a
// name, and it is in no tool call or was through with one since.
func (p *pulse) between(since int) (now bool, answers int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.begun && (p.open == 0 || since >= 0 && p.answers > since), p.answers
}

// attend ends a turn when a person has said something, after the tool call the
// agent is in, and when its model is gone: then it returns the sentence that
// says so. What the turn did not hear is found again by whoever decides what
// comes next.
func (d dialogue) attend(ctx context.Context, t turn, id cofferdam.ExecID, p *pulse) (gone string) {
	tick := time.NewTicker(d.o.Look)
	defer tick.Stop()
	waiting, since := time.Time{}, -1
	for {
		looked := false
		select {
		case <-ctx.Done():
			return ""
		case <-tick.C:
			looked = true
		case <-p.wake:
		}
		end := looked && d.ledger.restoreWanted()
		if looked && !end {
			var calls provider
			d.ledger.look(func(s *seen) { calls = s.provider })
			if len(d.adapter.Providers) > 0 && calls.gone(time.Now()) {
				gone, end = calls.sentence(), true
			}
			spending(d).watchTime(ctx)
			if why := d.stuck(ctx); why != "" {
				gone, end = why, true
			}
		}
		between, answers := p.between(since)
		switch {
		case end, !d.adapter.Resumes():
		case waiting.IsZero():
			if !looked || !d.anySaid(ctx, t) {
				continue
			}
			waiting, since = time.Now(), answers
			end = between
		default:
			end = between || time.Since(waiting) >= d.o.Patience
		}
		if !end {
			continue
		}
		err := d.box.Kill(ctx, id)
		if err == nil {
			return gone
		}
		gone = ""
		if ctx.Err() == nil && cofferdam.KindOf(err) != cofferdam.NotFound { // not started yet, or the box is gone: others see that
			d.o.Log.WarnContext(ctx, "an agent could not be interrupted", slog.String("session", string(d.plan.ID)), slog.Any("error", err))
		}
	}
}

// anySaid looks whether a person has said something that the turn was not told.
func (d dialogue) anySaid(ctx context.Context, t turn) bool {
	after := t.upto
	waiting := 0
	d.ledger.look(func(s *seen) { waiting, after = len(s.talk.waiting()), max(after, s.talk.last()) })
	if waiting > 0 {
		return true
	}
	more, err := d.said(ctx, false, after)
	if err != nil && ctx.Err() == nil {
		d.o.Log.WarnContext(ctx, "messages of a task cannot be read", slog.String("session", string(d.plan.ID)), slog.Any("error", err))
	}
	return len(more) > 0
}
