package service

import (
	"context"

	"cofferdam"
	"cofferdam/internal/doctor"
	"cofferdam/task"
)

// Status counts the newest tasks by state and lists those that wait for a person.
func (s *Service) Status(ctx context.Context) (cofferdam.Status, error) {
	if err := s.may(ctx, "service.Status"); err != nil {
		return cofferdam.Status{}, err
	}
	st := cofferdam.Status{Schema: "cofferdam/status/v1", Version: s.Version, Build: s.Build, Started: s.Started, Keepers: s.Keepers(ctx), Tasks: map[cofferdam.TaskState]int{}, Waiting: []cofferdam.Task{}}
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

// Examine runs the host checks, as cofferdam doctor does.
func (s *Service) Examine(ctx context.Context) (doctor.Report, error) {
	if err := s.may(ctx, "service.Examine"); err != nil {
		return doctor.Report{}, err
	}
	return s.Doctor(ctx), nil
}
