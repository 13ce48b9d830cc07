package service

import (
	"context"
	"strings"

	"cofferdam"
)

// MaxList bounds one page of sessions and events.
const MaxList = 500

// Session finds an attempt by id or unique prefix.
func (s *Service) Session(ctx context.Context, name string) (cofferdam.Session, error) {
	if err := s.may(ctx, "service.Session"); err != nil {
		return cofferdam.Session{}, err
	}
	if strings.HasPrefix(name, "t-") {
		return cofferdam.Session{}, &cofferdam.Error{Op: "service.Session", Kind: cofferdam.NotFound, Subject: "session " + name, Reason: "that is the name of a task", Hint: "cofferdam session list --task " + name}
	}
	v, err := s.Sessions.Session(ctx, s.scope(ctx), name)
	if err != nil || s.Life == nil || !v.Sealed.IsZero() {
		return v, err
	}
	if life, err := s.Life(ctx, v.ID); err == nil { // without it the rest is said all the same
		v.Life = &life
		v.State = life.State
	}
	return v, nil
}

// ListSessions returns attempts, newest first; of one task if it is named.
func (s *Service) ListSessions(ctx context.Context, taskName string, limit int) ([]cofferdam.Session, error) {
	if err := s.may(ctx, "service.ListSessions"); err != nil {
		return nil, err
	}
	var id cofferdam.TaskID
	if taskName != "" {
		t, err := s.Tasks.Get(ctx, s.scope(ctx), taskName)
		if err != nil {
			return nil, err
		}
		id = t.ID
	}
	return s.Sessions.Sessions(ctx, s.scope(ctx), id, bounded(limit))
}

func bounded(limit int) int {
	if limit <= 0 || limit > MaxList {
		return MaxList
	}
	return limit
}
