package task

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"

	"cofferdam"
)

// Bounds of what a task is told while it runs. Source: docs/SPECIFICATION.md, "Task".
const (
	MaxMessage  = 64 << 10 // bytes of one message
	MaxMessages = 64       // of one task, over all its attempts
)

// Hearing is what decides whether a task can be told something.
type Hearing struct {
	Task     cofferdam.Task
	Messages int64 // it was told so far
	Deaf     bool  // the agent of its present attempt has ended for good
}

// Send keeps what a person says to a task that runs, or that is about to. Its
// agent is told after the tool call it is in; whether an agent can be told
// anything is for the caller to find out.
func (s *Service) Send(ctx context.Context, scope cofferdam.Scope, by cofferdam.Principal, name, text string) (cofferdam.TaskMessage, error) {
	const op = "task.Send"
	if !by.IsPerson() {
		return cofferdam.TaskMessage{}, onlyPersons(op, name, "send a message")
	}
	if why := plain(text, MaxMessage); why != "" {
		return cofferdam.TaskMessage{}, &cofferdam.Error{Op: op, Kind: cofferdam.Invalid, Subject: "message", Reason: why, Hint: "say in words what the agent should know; put long material into a file of the repository"}
	}
	t, err := s.store.FindTask(ctx, scope, name)
	if err != nil {
		return cofferdam.TaskMessage{}, err
	}
	m := cofferdam.TaskMessage{Schema: "cofferdam/task-message/v1", Task: t.ID, Text: text, By: by, Time: s.now().UTC()}
	var was cofferdam.TaskState
	m, err = s.store.AddMessage(ctx, m, func(h Hearing, m cofferdam.TaskMessage) error {
		if err := hears(h); err != nil {
			return err
		}
		was = h.Task.State
		sum := sha256.Sum256([]byte(m.Text))
		_, err := s.record.Record(ctx, cofferdam.Event{
			Scope: h.Task.Scope, Task: m.Task, Actor: by, Source: "task", Kind: cofferdam.EventTaskMessage, Resource: h.Task.Short(),
			Fields: map[string]string{"number": strconv.FormatInt(m.Number, 10), "sha256": hex.EncodeToString(sum[:]), "bytes": strconv.Itoa(len(m.Text))},
		})
		if err != nil {
			return unrecorded(op, h.Task, err)
		}
		return nil
	})
	if err != nil {
		return m, err
	}
	m.While = was
	return m, s.answered(ctx, t.ID, by)
}

// answered says that a task which waited for a person goes on: who waits for
// its outcome from here on is not told of the question again. Its session finds
// the message by itself, also if this is never reached.
func (s *Service) answered(ctx context.Context, id cofferdam.TaskID, by cofferdam.Principal) error {
	t, err := s.store.TaskByID(ctx, id)
	if err != nil || t.State != cofferdam.Waiting {
		return err
	}
	_, err = s.move(ctx, id, by, func(t *cofferdam.Task) error {
		if t.State == cofferdam.Waiting {
			t.State, t.Comment = cofferdam.Running, ""
		}
		return nil
	})
	return err
}

// hears says why a task cannot be told anything now; nil if it can.
func hears(h Hearing) error {
	t := h.Task
	e := &cofferdam.Error{Op: "task.Send", Kind: cofferdam.Conflict, Subject: t.Short(), Reason: fmt.Sprintf("is %s, and nobody is there to be told", t.State)}
	switch t.State {
	case cofferdam.Queued, cofferdam.Preparing, cofferdam.Running, cofferdam.Waiting:
		if h.Messages >= MaxMessages {
			e.Kind, e.Reason, e.Hint = cofferdam.Exhausted, fmt.Sprintf("was told %d things already", h.Messages), "cancel it and give a new task that says all of it"
			return e
		}
		if h.Deaf {
			e.Reason, e.Hint = "has an agent that has ended, and its work is being judged", "wait for the outcome with cofferdam task wait "+t.Short()+", then give a new task"
			return e
		}
		return nil
	case cofferdam.Verifying:
		e.Hint = "wait for the outcome with cofferdam task wait " + t.Short() + ", then give a new task"
	case cofferdam.InReview:
		e.Hint = "reject it with cofferdam merge reject " + t.Short() + ", or try again with cofferdam task retry " + t.Short()
	case cofferdam.Done:
		e.Hint = "give a new task"
	default:
		e.Hint = "try again with cofferdam task retry " + t.Short() + ", or give a new task"
	}
	return e
}
