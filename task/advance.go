package task

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"

	"cofferdam"
)

// Next says what has to be done for an attempt of a task. An attempt that is
// not the present one is over, whatever state the task is in.
func (s *Service) Next(ctx context.Context, id cofferdam.TaskID, attempt int) (Step, error) {
	t, err := s.store.TaskByID(ctx, id)
	if err != nil {
		return Step{}, err
	}
	step := Step{Do: DoStop, Task: id, Attempt: attempt}
	if t.Attempt != attempt {
		return step, nil
	}
	switch t.State {
	case cofferdam.Queued, cofferdam.Preparing:
		step.Do = DoPrepare
	case cofferdam.Running, cofferdam.Waiting: // the session that waits is one that runs
		step.Do = DoWork
	case cofferdam.Verifying:
		step.Do = DoVerify
	case cofferdam.InReview:
		step.Do, err = s.landOrWait(ctx, t)
	}
	return step, err
}

func (s *Service) landOrWait(ctx context.Context, t cofferdam.Task) (Do, error) {
	_, err := s.store.LandingOf(ctx, t.ID, t.Head)
	switch {
	case err == nil:
		return DoLand, nil
	case cofferdam.KindOf(err) == cofferdam.NotFound:
		return DoWait, nil
	}
	return DoStop, err
}

// Move is one change of state that the platform reports.
type Move struct {
	Task    cofferdam.TaskID
	Attempt int
	From    cofferdam.TaskState // where the reporter saw it
	To      cofferdam.TaskState // the same as From: only Set
	Reason  string
	Comment string
	Set     func(*cofferdam.Task) // what else is known now; may be nil
}

// ErrStale says that a task has moved on since the reporter looked: look again.
var ErrStale = errors.New("the task has moved on")

// Advance moves a task. If it is no longer where the Move starts from, nothing
// happens and the error wraps ErrStale.
func (s *Service) Advance(ctx context.Context, m Move) (cofferdam.Task, error) {
	platform := cofferdam.Principal{Kind: cofferdam.Platform, Name: "task"}
	return s.move(ctx, m.Task, platform, func(t *cofferdam.Task) error {
		if t.Attempt != m.Attempt || t.State != m.From {
			return &cofferdam.Error{Op: "task.Advance", Kind: cofferdam.Conflict, Subject: t.Short(), Reason: fmt.Sprintf("is %s in attempt %d", t.State, t.Attempt), Err: ErrStale}
		}
		if m.Set != nil {
			m.Set(t)
		}
		t.State, t.Reason, t.Comment = m.To, m.Reason, clip(m.Comment)
		return s.gate(ctx, *t)
	})
}

// gate is the done gate: for agents, the platform and people alike.
func (s *Service) gate(ctx context.Context, t cofferdam.Task) error {
	if t.State != cofferdam.Done {
		return nil
	}
	if err := s.Landable(ctx, t); err != nil {
		return err
	}
	l, err := s.store.LandingOf(ctx, t.ID, t.Head)
	if err != nil || l.Landed.IsZero() || t.Landed != t.Head {
		return &cofferdam.Error{Op: "task.Advance", Kind: cofferdam.Conflict, Subject: t.Short(), Reason: "its commit has not landed", Err: err}
	}
	return nil
}

// move changes a task inside one transaction of the store: the state machine
// is asked, the change goes on record, then it is written. A record without its
// change can be left behind by a crash between the two; a change without its
// record cannot.
func (s *Service) move(ctx context.Context, id cofferdam.TaskID, by cofferdam.Principal, change func(*cofferdam.Task) error) (cofferdam.Task, error) {
	return s.moveWith(ctx, id, by, nil, change)
}

// moveWith is move with more for the record.
func (s *Service) moveWith(ctx context.Context, id cofferdam.TaskID, by cofferdam.Principal, more map[string]string, change func(*cofferdam.Task) error) (cofferdam.Task, error) {
	t, err := s.store.ChangeTask(ctx, id, func(t *cofferdam.Task) error {
		from := t.State
		if err := change(t); err != nil {
			return err
		}
		t.Updated = s.now().UTC()
		if t.State == from {
			return nil
		}
		if err := mayMove(from, t.State); err != nil {
			return &cofferdam.Error{Op: "task.Advance", Kind: cofferdam.Conflict, Subject: t.Short(), Reason: err.Error()}
		}
		e := s.event(*t, from, by)
		maps.Copy(e.Fields, more)
		if _, err := s.record.Record(ctx, e); err != nil {
			return unrecorded("task.Advance", *t, err)
		}
		return nil
	})
	if err == nil {
		s.changes.tell()
	}
	return t, err
}

// Watch calls see with the task now and after every change, until see returns
// an error or ctx ends. Changes that follow each other fast may be seen as one.
func (s *Service) Watch(ctx context.Context, id cofferdam.TaskID, see func(cofferdam.Task) error) error {
	var last cofferdam.Task
	for first := true; ; first = false {
		changed := s.changes.wait()
		t, err := s.store.TaskByID(ctx, id)
		if err != nil {
			return err
		}
		if first || !t.Updated.Equal(last.Updated) || t.State != last.State || len(t.Sessions) != len(last.Sessions) {
			last = t
			if err := see(t); err != nil {
				return err
			}
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// SessionBegan tells whoever watches a task that it has another session.
func (s *Service) SessionBegan() { s.changes.tell() }

// changes tells everybody who waits that some task has changed.
type changes struct {
	mu sync.Mutex
	ch chan struct{} // closed at the next change; guarded by mu
}

func newChanges() *changes { return &changes{ch: make(chan struct{})} }

func (c *changes) wait() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ch
}

func (c *changes) tell() {
	c.mu.Lock()
	defer c.mu.Unlock()
	close(c.ch)
	c.ch = make(chan struct{})
}
