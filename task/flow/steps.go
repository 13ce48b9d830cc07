package flow

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"

	"cofferdam"
	"cofferdam/session"
	"cofferdam/task"
)

// steps is the activities. Every one may run again after the end of a process
// in its middle, and finds in the store how far the last one came.
type steps struct {
	o Options

	mu     sync.Mutex
	flight map[Input]*turn // what is being done for an attempt; guarded by mu
}

// turn lets one step at a time work on an attempt. The engine may think that a
// step is lost and start it again while it still runs here.
type turn struct {
	slot chan struct{} // of size 1
	n    int           // who holds or waits; guarded by steps.mu
}

func newSteps(o Options) *steps {
	return &steps{o: o, flight: map[Input]*turn{}}
}

// table is every activity by its name.
func (s *steps) table() map[task.Do]any {
	return map[task.Do]any{
		doNext:         s.next,
		doEnd:          s.guard(doEnd, s.end),
		doFail:         s.wrap(doFail, s.fail),
		task.DoPrepare: s.wrap(task.DoPrepare, s.prepare),
		task.DoWork:    s.wrap(task.DoWork, s.work),
		task.DoVerify:  s.wrap(task.DoVerify, s.verify),
		task.DoLand:    s.wrap(task.DoLand, s.land),
	}
}

func (s *steps) next(ctx context.Context, in Input) (task.Do, error) {
	step, err := s.o.Tasks.Next(ctx, in.Task, in.Attempt)
	if err != nil {
		s.o.Log.WarnContext(ctx, "the store does not say what is next", slog.String("task", string(in.Task)), slog.Any("error", err))
		return "", errors.New("the store does not answer") // payloads carry no texts of ours
	}
	return step.Do, nil
}

// step does one thing for a task that it finds in the state it is for.
type step func(ctx context.Context, t cofferdam.Task) error

// wrap makes an activity of a step: guarded, interrupted when the task ends, and
// with one way to deal with errors.
func (s *steps) wrap(name task.Do, do step) func(context.Context, Input) error {
	return s.guard(name, func(ctx context.Context, in Input) error {
		ctx, cancel := context.WithCancelCause(ctx)
		var watching sync.WaitGroup
		defer watching.Wait()
		defer cancel(nil)
		t, err := s.o.Tasks.ByID(ctx, in.Task)
		if err == nil && t.Attempt == in.Attempt {
			watching.Go(func() { s.watch(ctx, in, cancel) })
			err = do(ctx, t)
		}
		return s.conclude(ctx, name, in, err)
	})
}

// guard lets one activity at a time work on an attempt, and beats meanwhile.
func (s *steps) guard(name task.Do, do func(context.Context, Input) error) func(context.Context, Input) error {
	return func(ctx context.Context, in Input) error {
		beating, cancel := context.WithCancel(ctx)
		var beats sync.WaitGroup
		defer beats.Wait()
		defer cancel()
		beats.Go(func() { beat(beating) })
		release, err := s.take(ctx, in)
		if err != nil {
			return err
		}
		defer release()
		s.o.Point(string(name) + ":before")
		if err = do(ctx, in); err == nil {
			s.o.Point(string(name) + ":after")
		}
		return err
	}
}

// beat tells the engine that the step is alive until ctx ends.
func beat(ctx context.Context) {
	tick := time.NewTicker(heartbeatPause)
	defer tick.Stop()
	for {
		activity.RecordHeartbeat(ctx)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// watch ends ctx with session.ErrTaskEnded as soon as the attempt is over.
func (s *steps) watch(ctx context.Context, in Input, cancel context.CancelCauseFunc) {
	err := s.o.Tasks.Watch(ctx, in.Task, func(t cofferdam.Task) error {
		if t.State.Ended() || t.Attempt != in.Attempt {
			return session.ErrTaskEnded
		}
		return nil
	})
	if errors.Is(err, session.ErrTaskEnded) {
		cancel(session.ErrTaskEnded)
	}
}

// take waits for the attempt's turn.
func (s *steps) take(ctx context.Context, in Input) (release func(), err error) {
	s.mu.Lock()
	t := s.flight[in]
	if t == nil {
		t = &turn{slot: make(chan struct{}, 1)}
		s.flight[in] = t
	}
	t.n++
	s.mu.Unlock()
	leave := func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if t.n--; t.n == 0 {
			delete(s.flight, in)
		}
	}
	select {
	case t.slot <- struct{}{}:
		return func() { <-t.slot; leave() }, nil
	case <-ctx.Done():
		leave()
		return nil, context.Cause(ctx)
	}
}

// busy says whether something is being done for an attempt in this process.
func (s *steps) busy(in Input) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.flight[in] != nil
}

// conclude decides what becomes of a step's error. nil means: ask the store
// what is next. An error means: try this step again, or leave it to whoever
// comes after this process.
func (s *steps) conclude(ctx context.Context, name task.Do, in Input, err error) error {
	cause := context.Cause(ctx)
	switch {
	case err == nil, errors.Is(err, task.ErrStale), errors.Is(cause, session.ErrTaskEnded):
		return nil
	case cause != nil:
		return cause
	}
	attrs := []any{slog.String("task", string(in.Task)), slog.Int("attempt", in.Attempt), slog.String("step", string(name)), slog.Any("error", err)}
	if try := int(activity.GetInfo(ctx).Attempt); passing(err) && try < maxRepeats {
		s.o.Log.WarnContext(ctx, "a step is tried again", append(attrs, slog.Int("try", try))...)
		return temporal.NewApplicationError("not done yet; the reason is in the server's log", "again")
	}
	s.o.Log.ErrorContext(ctx, "a step is given up", attrs...)
	t, storeErr := s.o.Tasks.ByID(ctx, in.Task)
	if storeErr == nil {
		storeErr = s.giveUp(ctx, in, t, err)
	}
	if storeErr == nil || errors.Is(storeErr, task.ErrStale) {
		return nil
	}
	s.o.Log.ErrorContext(ctx, "the end of a task cannot be stored", append(attrs, slog.Any("store", storeErr))...)
	return temporal.NewApplicationError("the store does not answer", "again")
}

// passing says whether trying again can help.
func passing(err error) bool {
	switch cofferdam.KindOf(err) {
	case cofferdam.Unavailable, cofferdam.Exhausted, cofferdam.Internal:
		return true
	}
	return false
}

// giveUp ends an attempt whose step could not be done.
func (s *steps) giveUp(ctx context.Context, in Input, t cofferdam.Task, why error) error {
	to, reason := cofferdam.Failed, cofferdam.ReasonInternal
	if a := (*session.Accident)(nil); errors.As(why, &a) {
		reason = a.Code
	}
	var coded *codedError
	if errors.As(why, &coded) {
		to, reason = cofferdam.Blocked, coded.reason
	}
	_, err := s.o.Tasks.Advance(ctx, task.Move{Task: in.Task, Attempt: in.Attempt, From: t.State, To: to, Reason: reason, Comment: sentence(why)})
	return err
}

// sentence is what a person may read of an error: what and why, and what to do.
func sentence(err error) string {
	var e *cofferdam.Error
	if errors.As(err, &e) {
		if hint := cofferdam.HintOf(e); hint != "" {
			return e.Error() + " (" + hint + ")"
		}
		return e.Error()
	}
	return "an internal error; the server's log has it"
}

// codedError is an error whose reason code is known.
type codedError struct {
	reason string
	err    error
}

// Error returns the cause's text.
func (e *codedError) Error() string { return e.err.Error() }

// Unwrap returns the cause.
func (e *codedError) Unwrap() error { return e.err }

func coded(reason string, err error) error {
	if err == nil {
		return nil
	}
	return &codedError{reason, err}
}

// fail is the last resort of the workflow: a step was lost again and again
// without a word from it.
func (s *steps) fail(ctx context.Context, t cofferdam.Task) error {
	if t.State.Ended() {
		return nil
	}
	_, err := s.o.Tasks.Advance(ctx, task.Move{
		Task: t.ID, Attempt: t.Attempt, From: t.State, To: cofferdam.Failed,
		Reason: cofferdam.ReasonInternal, Comment: "its work was lost several times; the server's log has more",
	})
	return err
}
