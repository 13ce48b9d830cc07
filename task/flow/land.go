package flow

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"

	"cofferdam"
	"cofferdam/session"
	"cofferdam/task"
)

// land moves the base branch to the approved commit, once. The wish of a person
// and the move itself are both on record before anything is moved; if the end of
// this process comes after the move, the next run finds it made.
func (s *steps) land(ctx context.Context, t cofferdam.Task) error {
	if t.State != cofferdam.InReview {
		return nil
	}
	l, err := s.o.Store.LandingOf(ctx, t.ID, t.Head)
	if err != nil {
		return err
	}
	if l.Landed.IsZero() {
		if err := s.mayLand(ctx, t); err != nil {
			if passing(err) {
				return err
			}
			return s.unland(ctx, t, cofferdam.ReasonPolicy, err)
		}
		if again, err := s.moveBase(ctx, t, l); err != nil || again {
			return err
		}
		s.o.Point("land:moved")
		if err := s.o.Store.FinishLanding(ctx, t.ID, t.Head, time.Now()); err != nil {
			return err
		}
	}
	_, err = s.move(ctx, t, verdict{to: cofferdam.Done}, func(t *cofferdam.Task) { t.Landed = t.Head })
	return err
}

// mayLand asks the gate once more, with the task as it is now.
func (s *steps) mayLand(ctx context.Context, t cofferdam.Task) error {
	if err := s.o.Tasks.Landable(ctx, t); err != nil {
		return err
	}
	return s.o.Landable(ctx, t)
}

// moveBase moves the branch between its two entries in the record, if policy lets
// it. dropped says that it cannot be done and that the wish was taken back.
func (s *steps) moveBase(ctx context.Context, t cofferdam.Task, l task.Landing) (dropped bool, err error) {
	repo, err := s.o.Store.RepoByID(ctx, t.Repo)
	if err != nil {
		return false, err
	}
	moved, tried := error(nil), false
	err = s.o.Land(ctx, t, l.By, func(ctx context.Context) error {
		tried = true
		moved = s.o.Repos.Land(ctx, repo, t.Base, t.BaseAt, t.Head)
		return moved
	})
	switch {
	case !tried && (passing(err) || ctx.Err() != nil):
		return false, fmt.Errorf("landing %s: %w", t.Short(), err)
	case !tried:
		return true, s.unland(ctx, t, cofferdam.ReasonPolicy, err)
	case moved == nil && err != nil: // what came of it is not on record
		return false, fmt.Errorf("landing %s: %w", t.Short(), err)
	case moved == nil:
		return false, nil
	case cofferdam.KindOf(moved) == cofferdam.Conflict:
		return true, s.unland(ctx, t, cofferdam.ReasonBaseMoved, moved)
	case passing(moved) && int(activity.GetInfo(ctx).Attempt) < maxRepeats, ctx.Err() != nil:
		return false, moved
	}
	return true, s.unland(ctx, t, cofferdam.ReasonRepository, moved)
}

// unland takes a person's wish back when it cannot be met. The task stays in
// review with the reason, so that the person can ask again or try anew.
func (s *steps) unland(ctx context.Context, t cofferdam.Task, reason string, why error) error {
	s.o.Log.WarnContext(ctx, "a landing was given up", slog.String("task", string(t.ID)), slog.Any("error", why))
	comment := "not landed: " + sentence(why)
	if reason == cofferdam.ReasonBaseMoved {
		comment += "; cofferdam task retry " + t.Short() + " starts from the base branch as it is now"
	}
	if _, err := s.move(ctx, t, verdict{to: t.State, reason: reason, comment: comment}, nil); err != nil {
		return err
	}
	return s.o.Store.DropLanding(ctx, t.ID, t.Head)
}

// end tears down what an attempt left behind when it ended while nothing of it
// ran here: every session without a result is run once more, and told at once
// that its task has ended.
func (s *steps) end(ctx context.Context, in Input) error {
	plans, err := s.o.Store.OpenSessions(ctx)
	for _, p := range plans {
		if err == nil && p.Task == in.Task && p.Attempt == in.Attempt {
			err = s.close(ctx, p)
		}
	}
	if err == nil {
		return nil
	}
	s.o.Log.WarnContext(ctx, "a session of a task that ended cannot be closed", slog.String("task", string(in.Task)), slog.Any("error", err))
	return temporal.NewApplicationError("not done yet; the reason is in the server's log", "again")
}

func (s *steps) close(ctx context.Context, p session.Plan) error {
	over, cancel := context.WithCancelCause(ctx)
	cancel(session.ErrTaskEnded)
	res, err := s.o.Sessions.Run(over, p)
	switch {
	case errors.Is(err, session.ErrTaskEnded):
		res = session.Result{Session: p.ID, Failure: cofferdam.ReasonCancelled, Reason: "its task has ended"}
	case err != nil:
		return err
	case res.Session != p.ID:
		return fmt.Errorf("closing session %s: the result is of %q", p.ID, res.Session)
	}
	return s.o.Store.SaveResult(ctx, res)
}
