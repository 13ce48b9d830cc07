package service

import (
	"context"

	"cofferdam"
	"cofferdam/identity"
	"cofferdam/internal/doctor"
	"cofferdam/task"
)

// Status counts the newest tasks by state and lists those that wait for a person.
func (s *Service) Status(ctx context.Context) (cofferdam.Status, error) {
	a, err := s.enter(ctx, "service.Status")
	if err != nil {
		return cofferdam.Status{}, err
	}
	st := cofferdam.Status{Schema: "cofferdam/status/v1", Version: s.Version, Build: s.Build, Started: s.Started, Tasks: map[cofferdam.TaskState]int{}, Waiting: []cofferdam.Task{}}
	if s.ofServer(a) {
		st.Keepers = s.Keepers(ctx)
	}
	tasks, err := s.Tasks.List(ctx, s.scope(ctx), task.Filter{})
	if err != nil {
		return st, err
	}
	for _, t := range tasks {
		st.Tasks[t.State]++
		if t.State == cofferdam.InReview || t.State == cofferdam.Waiting {
			st.Waiting = append(st.Waiting, t)
		}
	}
	kept, err := s.Workspaces.List(ctx, s.scope(ctx))
	for _, w := range kept {
		if w.State == cofferdam.WorkspaceKept && (!w.Noticed.IsZero() || w.Note != "") {
			st.Workspaces = append(st.Workspaces, w)
		}
	}
	return st, err
}

// ofServer says whether the caller is of the server's own organisation: counts over
// all boxes, and what the host is like, are for nobody else.
func (s *Service) ofServer(a Acting) bool { return a.Caller.Organization == s.Scope.Organization }

// ofMachine refuses what is of the server's machine, such as a path there, to whoever
// does not operate all of its own organisation: it may be another project's
// or another organisation's, or the server's own keys.
func (s *Service) ofMachine(ctx context.Context, op, what string) error {
	a, _ := ActingOf(ctx)
	if s.ofServer(a) && a.Caller.RoleIn(cofferdam.Scope{Organization: a.Caller.Organization}).Has(identity.Operator) {
		return nil
	}
	return &cofferdam.Error{
		Op: op, Kind: cofferdam.Forbidden, Subject: what, Reason: "it is for operators of all of the server's own organisation",
		Hint: "name a repository by its https URL and an image by its name, or ask who runs the server",
	}
}

// Examine runs the host checks, as cofferdam doctor does.
func (s *Service) Examine(ctx context.Context) (doctor.Report, error) {
	const op = "service.Examine"
	a, err := s.enter(ctx, op)
	if err != nil {
		return doctor.Report{}, err
	}
	if !s.ofServer(a) {
		return doctor.Report{}, &cofferdam.Error{Op: op, Kind: cofferdam.Forbidden, Subject: "host", Reason: "it is not your organisation's", Hint: "ask who runs the server"}
	}
	return s.Doctor(ctx), nil
}
