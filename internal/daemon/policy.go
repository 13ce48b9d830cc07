package daemon

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"cofferdam"
	"cofferdam/gateway"
	"cofferdam/internal/service"
	"cofferdam/policy"
)

// documents are the policies that count for a project now.
func (s *server) documents(ctx context.Context, scope cofferdam.Scope) (policy.Documents, error) {
	return service.Documents(ctx, s.store, scope, s.presets, s.signer.Public())
}

// landing is by what the landing of a task's commit is judged at the time.
func landing(s *server) func(context.Context, cofferdam.Task) (*policy.Set, error) {
	return func(ctx context.Context, t cofferdam.Task) (*policy.Set, error) {
		d, err := s.documents(ctx, t.Scope)
		if err != nil {
			return nil, err
		}
		return policy.New(policy.Grant{Repo: t.Repo, Operator: s.Policy, At: time.Now()}.Under(d))
	}
}

// given are what people opened for a task by their answers. One that cannot be
// read any more opens nothing.
func (s *server) given(ctx context.Context, t cofferdam.TaskID) ([]policy.Opening, error) {
	list, err := s.store.Openings(ctx, t)
	var all []policy.Opening
	for _, q := range list {
		g, ok, err := gateway.OpeningOf(q)
		if err != nil {
			s.log.WarnContext(ctx, "what a person opened cannot be read", slog.String("question", string(q.ID)), slog.Any("error", err))
		}
		if ok && err == nil {
			all = append(all, g)
		}
	}
	return all, err
}

// grant is what a session may do by documents, or without one every task.
func (s *server) grant(ctx context.Context, scope cofferdam.Scope, id cofferdam.SessionID, d policy.Documents) (policy.Grant, error) {
	if id == "" {
		allow, err := policy.ParseAllow(s.Allow, s.presets)
		return policy.Grant{Allow: allow, Operator: s.Policy}.Under(d), err
	}
	p, err := s.store.Plan(ctx, id)
	if err != nil {
		return policy.Grant{}, err
	}
	if p.Scope != scope { // who asks has found it in this one
		return policy.Grant{}, &cofferdam.Error{Op: "daemon.grant", Kind: cofferdam.NotFound, Subject: "session " + string(id), Reason: "there is none"}
	}
	return s.sessions.Grant(ctx, p, d)
}

// judge has running sessions judged by the documents as they are now. What waits
// for a person's answer under those before is void.
func (s *server) judge(ctx context.Context, scope cofferdam.Scope) error {
	moved, err := s.sessions.Judge(ctx, scope)
	for id, now := range moved {
		err = errors.Join(err, s.desk.Void(ctx, id, now))
	}
	return err
}
