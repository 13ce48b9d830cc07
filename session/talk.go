package session

import (
	"context"
	"strconv"
	"time"

	"cofferdam"
	"cofferdam/gateway"
)

// Steps and fields of events about the agent.
const (
	stepFiles         = "files"        // of session.state: the agent's files are to be written
	stepTurn          = "turn"         // of session.state: a turn has ended
	fieldWhy          = "why"          // a turn begins
	fieldUpto         = "upto"         // the last message that a turn is told
	fieldKind         = "kind"         // of what an agent tells
	fieldConversation = "conversation" // the agent's own name of it
)

// talk is what was said between people and the session's agent, as the log has
// it.
type talk struct {
	messages     []cofferdam.TaskMessage // that the session has taken up, in order
	turn         turn                    // the latest
	told         int                     // events of its agent
	conversation string                  // the agent's own name of it
	interrupted  int                     // turns that began because of that
	took         time.Duration           // turns that have ended
	files        [2]int                  // how often files were written, and how many the last time
	provider     provider                // how its model calls go
}

// waiting returns the messages that no turn was told yet.
func (t *talk) waiting() []cofferdam.TaskMessage {
	for i, m := range t.messages {
		if m.Number > t.turn.upto {
			return t.messages[i:]
		}
	}
	return nil
}

// last is the number of the last message that was taken up.
func (t *talk) last() int64 {
	if len(t.messages) == 0 {
		return 0
	}
	return t.messages[len(t.messages)-1].Number
}

// note learns from one event; those that a reader makes are counted, so that
// another process that reads the same output again knows which are on record.
func (t *talk) note(e cofferdam.Event) {
	f := e.Fields
	switch e.Kind {
	case cofferdam.EventAgentMessage, cofferdam.EventAgentTool, cofferdam.EventAgentFile, cofferdam.EventAgentCost:
		t.told++
	case cofferdam.EventModelCall:
		t.provider.note(e)
	case cofferdam.EventSecret:
		t.provider.noteSecret(e)
	case cofferdam.EventResumed:
		if e.Fields[fieldMode] == modeCold {
			t.conversation = "" // it was in the box that is gone
		}
	case cofferdam.EventRestore:
		if e.Of != nil && e.Outcome == gateway.OK {
			t.conversation = "" // so was this one
		}
	case cofferdam.EventTaskMessage:
		t.messages = append(t.messages, cofferdam.TaskMessage{
			Task: e.Task, Number: number(f[fieldNumber]), Text: f[fieldText], By: e.Actor, Time: e.Time,
		})
	case cofferdam.EventAgentTurn:
		if f[fieldKind] != "" {
			t.told++
			t.conversation = f[fieldConversation]
			t.turn.upto = max(t.turn.upto, number(f[fieldUpto])) // of a brain, which has no turns
			return
		}
		t.turn = turn{number: int(number(f[fieldNumber])), why: f[fieldWhy], from: t.turn.upto, upto: number(f[fieldUpto])}
		t.told = 0
		if t.turn.why == whyInterrupted {
			t.interrupted++
		}
	}
}

// takeUp puts on record what people said since, in order, and returns how many
// messages wait to be told. With last, if there are none, people who say
// something from then on are refused: the agent has ended.
func (d dialogue) takeUp(ctx context.Context, last bool) (int, error) {
	waiting, after := 0, int64(0)
	d.ledger.look(func(s *seen) { waiting, after = len(s.talk.waiting()), s.talk.last() })
	messages, err := d.said(ctx, last && waiting == 0, after)
	if err != nil {
		return 0, err
	}
	for _, m := range messages {
		e := d.ledger.event
		e.Kind, e.Resource, e.Actor = cofferdam.EventTaskMessage, strconv.FormatInt(m.Number, 10), m.By
		e.Fields = map[string]string{fieldNumber: strconv.FormatInt(m.Number, 10), fieldText: m.Text, "said": m.Time.UTC().Format(time.RFC3339)}
		if _, err := d.ledger.Record(ctx, e); err != nil {
			return 0, err
		}
	}
	return waiting + len(messages), nil
}

// said asks for messages after one; nobody says anything where nobody was given
// to ask.
func (d dialogue) said(ctx context.Context, last bool, after int64) ([]cofferdam.TaskMessage, error) {
	switch {
	case d.o.Said == nil:
		return nil, nil
	case last && d.o.LastSaid != nil:
		return d.o.LastSaid(ctx, d.plan.ID, d.plan.Task, after)
	}
	return d.o.Said(ctx, d.plan.Task, after)
}

// hearNoMore takes up what is left for an agent that goes on no more.
func (d dialogue) hearNoMore(ctx context.Context) error {
	for {
		after := int64(0)
		d.ledger.look(func(s *seen) { after = s.talk.last() })
		left, err := d.said(ctx, true, after)
		if err != nil || len(left) == 0 {
			return err
		}
		if _, err := d.takeUp(ctx, false); err != nil {
			return err
		}
	}
}

// listen returns all that people said to the session so far, for a brain that
// remembers which of it it has. What is new goes on record first.
func (d dialogue) listen(ctx context.Context) ([]cofferdam.TaskMessage, error) {
	if _, err := d.takeUp(ctx, false); err != nil {
		return nil, err
	}
	var all []cofferdam.TaskMessage
	d.ledger.look(func(s *seen) { all = append(all, s.talk.messages...) })
	return all, nil
}
