package session

import (
	"bytes"
	"context"
	"errors"
	"strconv"
	"strings"
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
	d := dialogue{a}
	conversation := a.o.Conversation(a.plan.Scope, a.plan.ID)
	until, err := b.deadline(ctx, conversation)
	if err != nil {
		return err
	}
	thinking, cancel := context.WithDeadlineCause(ctx, until, errTimeUp)
	defer cancel()
	wire := gateway.Local(a.grant.caller, a.o.Router.Handler)
	defer wire.CloseIdleConnections()
	o := loop.Options{
		Prompt: prompt, Transport: wire, Provider: a.plan.Model.Provider, Model: a.plan.Model.Default,
		Hands: hands{a}, Conversation: conversation, Redact: b.clean,
		Turns: int(min(max(loop.DefaultTurns, a.plan.Budget.Calls), loop.MaxTurns)),
		Said:  func(ctx context.Context, _ int64) ([]cofferdam.TaskMessage, error) { return d.listen(ctx) },
		Last:  d.listenLast,
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
	timedOut := false
	switch {
	case err != nil && ctx.Err() == nil && errors.Is(context.Cause(thinking), errTimeUp):
		if err := d.hearNoMore(ctx); err != nil {
			return err
		}
		timedOut = true
		end.Said, end.Message = cofferdam.SaidBlocked, errTimeUp.Error()
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
	return d.conclude(ctx, turnEnd{End: end.End, TimedOut: timedOut})
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
		Text: p.Request.Text, Done: p.Request.Done, Checks: p.Request.Checks, Command: p.Request.Command,
		Branch:   strings.TrimPrefix(string(p.Branch), "refs/heads/"),
		Provider: p.Model.Provider, Model: p.Model.Default,
	}
}

// deadline is when the agent's time is up, counted from its first message.
func (b brain) deadline(ctx context.Context, conversation loop.Conversation) (time.Time, error) {
	limit := dialogue(b).timeout()
	entries, err := conversation.Entries(ctx)
	if err != nil || len(entries) == 0 {
		return time.Now().Add(limit), err
	}
	return entries[0].Time.Add(limit), nil
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
