package service

import (
	"context"
	"fmt"
	"strings"

	"cofferdam"
)

// Sandboxes has the boxes of sessions that run, and checkpoints of what is in them;
// package session offers it. Errors are *cofferdam.Error.
type Sandboxes interface {
	Boxes(ctx context.Context, scope cofferdam.Scope) ([]cofferdam.Sandbox, error)
	Box(ctx context.Context, scope cofferdam.Scope, id cofferdam.SessionID) (cofferdam.Sandbox, error)
	TakeCheckpoint(ctx context.Context, scope cofferdam.Scope, id cofferdam.SessionID, by cofferdam.Principal, comment string) (cofferdam.Checkpoint, error)
	Restore(ctx context.Context, scope cofferdam.Scope, id cofferdam.SessionID, by cofferdam.Principal, name string) (cofferdam.Restored, error)
	// Checkpoints are those of a workspace, the newest first; of a project with "".
	Checkpoints(ctx context.Context, scope cofferdam.Scope, workspace string) ([]cofferdam.Checkpoint, error)
	FindCheckpoint(ctx context.Context, scope cofferdam.Scope, workspace, name string) (cofferdam.Checkpoint, error)
	RemoveCheckpoint(ctx context.Context, by cofferdam.Principal, w cofferdam.Workspace, name string) error
	// Difference compares a checkpoint with another, or with "now".
	Difference(ctx context.Context, scope cofferdam.Scope, workspace, from, to string) (cofferdam.Difference, error)
}

// sessionOf finds the session that a name stands for: its own id, or the one that
// works, or worked last, for a task.
func (s *Service) sessionOf(ctx context.Context, op, name string) (cofferdam.Session, error) {
	if !strings.HasPrefix(name, "t-") {
		return s.Sessions.Session(ctx, s.scope(ctx), name)
	}
	t, err := s.Tasks.Get(ctx, s.scope(ctx), name)
	if err != nil {
		return cofferdam.Session{}, err
	}
	all, err := s.Sessions.Sessions(ctx, s.scope(ctx), t.ID, MaxList)
	if err != nil {
		return cofferdam.Session{}, err
	}
	for _, v := range all { // the newest first
		if v.Phase == "work" {
			return v, nil
		}
	}
	return cofferdam.Session{}, &cofferdam.Error{
		Op: op, Kind: cofferdam.NotFound, Subject: "box of " + t.Short(), Reason: "none of its sessions has worked yet", Hint: "cofferdam task follow " + t.Short(),
	}
}

// workspaceOf finds the workspace that a name stands for: that of a task's latest
// attempt, or of the attempt that a session is of.
func (s *Service) workspaceOf(ctx context.Context, op, name string) (cofferdam.Workspace, error) {
	if strings.HasPrefix(name, "t-") || strings.HasPrefix(name, "w-") {
		return s.Workspaces.View(ctx, s.scope(ctx), name)
	}
	v, err := s.Sessions.Session(ctx, s.scope(ctx), name)
	if err != nil {
		return cofferdam.Workspace{}, err
	}
	t, err := s.Tasks.Get(ctx, s.scope(ctx), string(v.Task))
	if err != nil {
		return cofferdam.Workspace{}, err
	}
	w, err := s.Workspaces.View(ctx, s.scope(ctx), t.Short())
	if err == nil && w.Attempt != v.Attempt {
		err = &cofferdam.Error{
			Op: op, Kind: cofferdam.NotFound, Subject: "workspace of session " + name, Reason: fmt.Sprintf("its attempt has none any more; that of the task is of attempt %d", w.Attempt),
			Hint: "name the task: " + w.Short(),
		}
	}
	return w, err
}

// ListSandboxes returns the boxes of the project's sessions that run, those of the
// latest tasks first.
func (s *Service) ListSandboxes(ctx context.Context) ([]cofferdam.Sandbox, error) {
	if err := s.may(ctx, "service.ListSandboxes"); err != nil {
		return nil, err
	}
	return s.Sandboxes.Boxes(ctx, s.scope(ctx))
}

// Sandbox returns the box of a session, by the session's id or its task.
func (s *Service) Sandbox(ctx context.Context, name string) (cofferdam.Sandbox, error) {
	const op = "service.Sandbox"
	if err := s.may(ctx, op); err != nil {
		return cofferdam.Sandbox{}, err
	}
	v, err := s.sessionOf(ctx, op, name)
	if err != nil {
		return cofferdam.Sandbox{}, err
	}
	return s.Sandboxes.Box(ctx, s.scope(ctx), v.ID)
}

// CreateCheckpoint keeps the workspace of a running session as it is now.
func (s *Service) CreateCheckpoint(ctx context.Context, name, comment string) (cofferdam.Checkpoint, error) {
	const op = "service.CreateCheckpoint"
	by, err := s.who(ctx, op)
	if err != nil {
		return cofferdam.Checkpoint{}, err
	}
	v, err := s.sessionOf(ctx, op, name)
	if err != nil {
		return cofferdam.Checkpoint{}, err
	}
	c, err := s.Sandboxes.TakeCheckpoint(ctx, s.scope(ctx), v.ID, by, comment)
	return s.numbered(ctx, c, err)
}

// RestoreSandbox puts the workspace of a running session back to a checkpoint.
func (s *Service) RestoreSandbox(ctx context.Context, name, checkpoint string) (cofferdam.Restored, error) {
	const op = "service.RestoreSandbox"
	by, err := s.who(ctx, op)
	if err != nil {
		return cofferdam.Restored{}, err
	}
	v, err := s.sessionOf(ctx, op, name)
	if err != nil {
		return cofferdam.Restored{}, err
	}
	return s.Sandboxes.Restore(ctx, s.scope(ctx), v.ID, by, checkpoint)
}

// ListCheckpoints returns those of a workspace, by its task or one of its sessions,
// the newest first; of the whole project with "".
func (s *Service) ListCheckpoints(ctx context.Context, name string) ([]cofferdam.Checkpoint, error) {
	const op = "service.ListCheckpoints"
	if err := s.may(ctx, op); err != nil {
		return nil, err
	}
	w := cofferdam.Workspace{}
	if name != "" {
		var err error
		if w, err = s.workspaceOf(ctx, op, name); err != nil {
			return nil, err
		}
	}
	all, err := s.Sandboxes.Checkpoints(ctx, s.scope(ctx), w.ID)
	if err != nil || len(all) == 0 {
		return nil, err
	}
	names, err := s.tasksOfWorkspaces(ctx)
	for i := range all {
		all[i].Task, all[i].Number = names[all[i].Workspace].Task, names[all[i].Workspace].Number
	}
	return all, err
}

// tasksOfWorkspaces maps the ids of workspaces to what is known of them.
func (s *Service) tasksOfWorkspaces(ctx context.Context) (map[string]cofferdam.Workspace, error) {
	list, err := s.Workspaces.List(ctx, s.scope(ctx))
	known := map[string]cofferdam.Workspace{}
	for _, w := range list {
		known[w.ID] = w
	}
	return known, err
}

// numbered says of which task a checkpoint is.
func (s *Service) numbered(ctx context.Context, c cofferdam.Checkpoint, err error) (cofferdam.Checkpoint, error) {
	if err != nil {
		return c, err
	}
	names, err := s.tasksOfWorkspaces(ctx)
	c.Task, c.Number = names[c.Workspace].Task, names[c.Workspace].Number
	return c, err
}

// Checkpoint returns one of a workspace, with its manifest and how its signature is.
func (s *Service) Checkpoint(ctx context.Context, name, checkpoint string) (cofferdam.Checkpoint, error) {
	const op = "service.Checkpoint"
	if err := s.may(ctx, op); err != nil {
		return cofferdam.Checkpoint{}, err
	}
	w, err := s.workspaceOf(ctx, op, name)
	if err != nil {
		return cofferdam.Checkpoint{}, err
	}
	c, err := s.Sandboxes.FindCheckpoint(ctx, s.scope(ctx), w.ID, checkpoint)
	return s.numbered(ctx, c, err)
}

// RemoveCheckpoint removes one.
func (s *Service) RemoveCheckpoint(ctx context.Context, name, checkpoint string) error {
	const op = "service.RemoveCheckpoint"
	by, err := s.who(ctx, op)
	if err != nil {
		return err
	}
	w, err := s.workspaceOf(ctx, op, name)
	if err != nil {
		return err
	}
	return s.Sandboxes.RemoveCheckpoint(ctx, by, w, checkpoint)
}

// DiffCheckpoint says what differs between a checkpoint and another, or, with to "",
// the workspace as it is now.
func (s *Service) DiffCheckpoint(ctx context.Context, name, from, to string) (cofferdam.Difference, error) {
	const op = "service.DiffCheckpoint"
	if err := s.may(ctx, op); err != nil {
		return cofferdam.Difference{}, err
	}
	w, err := s.workspaceOf(ctx, op, name)
	if err != nil {
		return cofferdam.Difference{}, err
	}
	if to == "" {
		to = "now"
	}
	return s.Sandboxes.Difference(ctx, s.scope(ctx), w.ID, from, to)
}
