package session

import (
	"bytes"
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"time"

	"cofferdam"
	"cofferdam/agent"
	"cofferdam/agent/loop"
	"cofferdam/gateway"
)

// errTimeUp is why the context of our own agent ends before the session's.
var errTimeUp = errors.New("the agent's time is up")

// brain is the part of a session that is our own agent: its loop here, with the
// rights of the session's caller and no other, its hands in the box.
type brain struct{ *attempt }

// run runs it to its end.
func (b brain) run(ctx context.Context) error {
	a := b.attempt
	in := a.input()
	in.Text += a.lostNote()
	prompt, err := a.adapter.Instructions(in)
	if err != nil {
		return failFor(cofferdam.ReasonAgent, err)
	}
	note, err := b.waits(ctx)
	if errors.Is(err, errLifetime) {
		return b.conclude(ctx, loop.End{}, err)
	}
	if err != nil {
		return err
	}
	for {
		if err := (restorer{a}).restore(ctx); err != nil {
			return err
		}
		a.ledger.look(func(s *seen) {
			if s.untold {
				note = s.notice
			}
		})
		end, err := b.think(ctx, prompt, note)
		if errors.Is(err, errRestore) && ctx.Err() == nil {
			continue
		}
		for ctx.Err() == nil && atEnd(err) && !a.restoring.closes(a.ledger) {
			if rerr := (restorer{a}).refuse(ctx, "its agent has come to its end"); rerr != nil {
				return rerr
			}
		}
		return b.conclude(ctx, end, err)
	}
}

// atEnd says whether a brain that ended so thinks no more, in any process.
func atEnd(err error) bool {
	kind := cofferdam.KindOf(err)
	return err == nil || errors.Is(err, errTimeUp) || errors.Is(err, errLifetime) || kind == cofferdam.Exhausted || kind == cofferdam.Invalid
}

// think lets it go on with its conversation until that ends, or something ends it
// first. note, if not "", is for it to know before.
func (b brain) think(ctx context.Context, prompt, note string) (loop.End, error) {
	a := b.attempt
	d := dialogue{a}
	conversation := a.o.Conversation(a.plan.Scope, a.plan.ID)
	left, err := b.left(ctx, conversation)
	if err != nil {
		return loop.End{}, err
	}
	thinking, clock, stop := b.timed(ctx, left)
	defer stop()
	wire := gateway.Local(a.grant.caller, a.o.Router.Handler)
	defer wire.CloseIdleConnections()
	o := loop.Options{
		Prompt: prompt, Transport: wire, Provider: a.plan.Model.Provider, Model: a.plan.Model.Default,
		Hands: hands{a}, Conversation: conversation, Redact: b.clean, May: b.may,
		Turns: int(min(max(loop.DefaultTurns, a.plan.Budget.Calls), loop.MaxTurns)),
		Said:  func(ctx context.Context, _ int64) ([]cofferdam.TaskMessage, error) { return d.listen(ctx) },
		Last:  d.listenLast,
		Note:  note,
	}
	if a.plan.Request.Ask {
		o.Await = func(ctx context.Context, question string) (string, error) {
			clock.pause()
			defer clock.goOn()
			note, over, err := d.await(ctx, question)
			if over {
				err = errLifetime
			}
			return note, err
		}
	}
	told := 0
	a.ledger.look(func(s *seen) { told = s.talk.told })
	once := func(put func() error) error {
		if told--; told >= 0 {
			return nil // an earlier process recorded it
		}
		return put()
	}
	o.Emit = func(e agent.Event) error { return once(func() error { return a.tell(ctx, e) }) }
	o.Told = func(m cofferdam.TaskMessage) error { return once(func() error { return d.goOn(ctx, m) }) }
	end, err := loop.Run(thinking, o)
	if err != nil && ctx.Err() == nil && context.Cause(thinking) != nil {
		err = context.Cause(thinking) // what failed then failed because of that
	}
	return end, err
}

// timed returns a context that ends with errTimeUp when the agent's time is up,
// which clock counts, with errLifetime when its session's is, and with errRestore when its
// workspace is to be put back.
func (b brain) timed(ctx context.Context, left time.Duration) (thinking context.Context, clock *allowance, stop func()) {
	thinking, cancel := context.WithCancelCause(ctx)
	clock = newAllowance(left, func() { cancel(errTimeUp) })
	var watch sync.WaitGroup
	watch.Go(func() {
		if lifetime(b).expire(thinking) {
			cancel(errLifetime)
		}
	})
	watch.Go(func() {
		tick := time.NewTicker(b.o.Look)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
			case <-thinking.Done():
				return
			}
			spending(b).watchTime(thinking)
			if b.ledger.restoreWanted() {
				cancel(errRestore)
			}
		}
	})
	return thinking, clock, func() {
		clock.timer.Stop()
		cancel(nil)
		watch.Wait()
	}
}

// waits goes on with waiting for a person, if that is what the last process did.
func (b brain) waits(ctx context.Context) (note string, err error) {
	asked, question := false, ""
	b.ledger.look(func(s *seen) { asked, question = s.asked, s.question })
	if !asked {
		return "", nil
	}
	note, over, err := dialogue(b).await(ctx, question)
	if over {
		err = errLifetime
	}
	return note, err
}

// conclude takes down how the loop ended: with an end of its own, or with the
// error that cut it.
func (b brain) conclude(ctx context.Context, end loop.End, err error) error {
	a, d := b.attempt, dialogue(b)
	timedOut, expired := errors.Is(err, errTimeUp), errors.Is(err, errLifetime)
	switch {
	case timedOut, expired:
		if _, err := (&nap{attempt: a}).rise(ctx, err.Error()); err != nil {
			return err
		}
		if err := d.hearNoMore(ctx); err != nil {
			return err
		}
		if expired {
			if err := b.endHands(ctx); err != nil {
				return err
			}
		}
		end.Said, end.Message = cofferdam.SaidBlocked, err.Error()
	case cofferdam.KindOf(err) == cofferdam.Exhausted || cofferdam.KindOf(err) == cofferdam.Invalid:
		return failFor(cofferdam.ReasonAgent, err)
	case err != nil:
		return err
	}
	if err := b.letGo(ctx); err != nil {
		return err
	}
	// Where the log knows better, conclude says so.
	if end.Exhausted {
		a.result.Failure, a.result.Reason, end.Failed = cofferdam.ReasonBudget, end.Message, false
	} else if end.Failed {
		a.result.Failure, a.result.Reason = cofferdam.ReasonProvider, "the model provider failed: "+lastLine(end.Message)
	}
	left, err := b.left(ctx, a.o.Conversation(a.plan.Scope, a.plan.ID))
	if err != nil {
		return err
	}
	return d.conclude(ctx, turnEnd{End: end.End, TimedOut: timedOut, Expired: expired, Seconds: max(0, d.timeout()-left).Seconds()})
}

// listenLast is listen before the end of a brain: if it returns nothing, people
// who say something from then on are refused.
func (d dialogue) listenLast(ctx context.Context, _ int64) ([]cofferdam.TaskMessage, error) {
	if n, err := d.takeUp(ctx, true); err != nil || n == 0 {
		return nil, err
	}
	return d.listen(ctx)
}

// goOn puts on record that a brain was told a message and goes on with it.
func (d dialogue) goOn(ctx context.Context, m cofferdam.TaskMessage) error {
	return d.ledger.put(ctx, cofferdam.EventAgentTurn, "loop", map[string]string{
		fieldKind: whyMessage, fieldWhy: whyMessage, fieldUpto: strconv.FormatInt(m.Number, 10), fieldConversation: "loop",
	})
}

// input is what the adapter makes the agent's instructions from.
func (a *attempt) input() agent.Input {
	p := a.plan
	return agent.Input{
		Text: p.Request.Text, Done: p.Request.Done, Checks: p.Request.Checks, Command: p.Request.Command, Ask: p.Request.Ask,
		Branch:   strings.TrimPrefix(string(p.Branch), "refs/heads/"),
		Provider: p.Model.Provider, Model: p.Model.Default,
	}
}

// left is how much of the agent's time is left, which counts from its first
// message on and stands still while it waits for a person.
func (b brain) left(ctx context.Context, conversation loop.Conversation) (time.Duration, error) {
	limit := dialogue(b).timeout()
	entries, err := conversation.Entries(ctx)
	if err != nil || len(entries) == 0 {
		return limit, err
	}
	b.ledger.look(func(s *seen) {
		limit += s.waited
		if s.asked {
			limit += time.Since(s.since)
		}
	})
	return limit - time.Since(entries[0].Time), nil
}

// letGo ends what the agent's commands left running.
func (b brain) letGo(ctx context.Context) error {
	var left []cofferdam.ExecID
	b.ledger.look(func(s *seen) {
		for id := range s.execs {
			if strings.HasPrefix(string(id), "loop-") {
				left = append(left, id)
			}
		}
	})
	for _, id := range left {
		if err := (hands{b.attempt}).abandon(ctx, id); err != nil {
			return err
		}
	}
	return nil
}

// clean removes secrets from text.
func (b brain) clean(text string) string {
	var clean bytes.Buffer
	w := b.o.Redact(&clean)
	_, err := w.Write([]byte(text))
	if err == nil {
		err = w.Flush()
	}
	if err != nil {
		return "[redacted]" // cannot happen: a Buffer takes everything
	}
	return clean.String()
}
