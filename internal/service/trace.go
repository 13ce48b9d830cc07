package service

import (
	"context"
	"io"
	"strings"

	"cofferdam"
	"cofferdam/proof"
)

// Events returns the events of a session from a sequence number on.
func (s *Service) Events(ctx context.Context, name string, from uint64, limit int) ([]cofferdam.Event, error) {
	session, err := s.Session(ctx, name)
	if err != nil {
		return nil, err
	}
	return s.Trace.Events(ctx, session.ID, from, bounded(limit))
}

// FollowEvents sends a session's events from a sequence number on until its
// log is sealed.
func (s *Service) FollowEvents(ctx context.Context, name string, from uint64, send func(cofferdam.Event) error) error {
	session, err := s.Session(ctx, name)
	if err != nil {
		return err
	}
	return s.Trace.Follow(ctx, session.ID, from, send)
}

// Export prepares the evidence of a task, or of the task that a session
// belongs to, and returns the function that writes it, so that a wrong name is
// told before the first byte.
func (s *Service) Export(ctx context.Context, name string) (func(io.Writer) error, error) {
	if err := s.may(ctx, "service.Export"); err != nil {
		return nil, err
	}
	if strings.HasPrefix(name, "s-") {
		session, err := s.Sessions.Session(ctx, s.scope(ctx), name)
		if err != nil {
			return nil, err
		}
		name = string(session.Task)
	}
	t, err := s.Tasks.Get(ctx, s.scope(ctx), name)
	if err != nil {
		return nil, err
	}
	receipts, err := s.Receipts.ReceiptsOf(ctx, t.ID)
	if err != nil {
		return nil, err
	}
	var notes [][]byte
	for _, r := range receipts {
		notes = append(notes, r.Note)
	}
	return func(w io.Writer) error { return s.Trace.Export(ctx, w, t.Sessions, t.ID, s.texts(t.Scope), notes...) }, nil
}

// texts finds what judged the sessions of a project, as it was signed.
func (s *Service) texts(scope cofferdam.Scope) Texts {
	return func(ctx context.Context, of []cofferdam.Digest) (list []proof.SignedPolicy, err error) {
		for _, d := range of {
			versions, err := s.Policies.PoliciesOf(ctx, scope, d)
			if err != nil {
				return nil, err
			}
			for _, v := range versions {
				list = append(list, proof.SignedPolicy{Note: []byte(v.Signature), Text: v.Text})
			}
		}
		return list, nil
	}
}
