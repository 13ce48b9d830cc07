package service

import (
	"context"
	"io"
	"os"

	"cofferdam"
)

// Workspaces keeps what agents worked in; package workspace offers it. name is
// the id of one or a prefix of it, or a task's, which stands for the one of its
// latest attempt. Errors are *cofferdam.Error.
type Workspaces interface {
	List(ctx context.Context, scope cofferdam.Scope) ([]cofferdam.Workspace, error)
	View(ctx context.Context, scope cofferdam.Scope, name string) (cofferdam.Workspace, error)
	Export(ctx context.Context, scope cofferdam.Scope, name string) (cofferdam.Workspace, error)
	Bundle(ctx context.Context, scope cofferdam.Scope, name string) (*os.File, error)
	Remove(ctx context.Context, scope cofferdam.Scope, by cofferdam.Principal, name string, discard bool) error
	// PassOn gives the workspace of a task's attempt to the one that comes next;
	// undo takes that back.
	PassOn(ctx context.Context, t cofferdam.Task) (undo func(), err error)
}

// ListWorkspaces returns those that are there or have a bundle, newest first.
func (s *Service) ListWorkspaces(ctx context.Context) ([]cofferdam.Workspace, error) {
	if err := s.may(ctx, "service.ListWorkspaces"); err != nil {
		return nil, err
	}
	return s.Workspaces.List(ctx, s.scope(ctx))
}

// Workspace returns one.
func (s *Service) Workspace(ctx context.Context, name string) (cofferdam.Workspace, error) {
	if err := s.may(ctx, "service.Workspace"); err != nil {
		return cofferdam.Workspace{}, err
	}
	return s.Workspaces.View(ctx, s.scope(ctx), name)
}

// ExportWorkspace makes a bundle of what is in one and nowhere else.
func (s *Service) ExportWorkspace(ctx context.Context, name string) (cofferdam.Workspace, error) {
	if _, err := s.who(ctx, "service.ExportWorkspace"); err != nil {
		return cofferdam.Workspace{}, err
	}
	return s.Workspaces.Export(ctx, s.scope(ctx), name)
}

// WorkspaceBundle prepares the bundle of one and returns the function that writes
// it, so that a wrong name is told before the first byte.
func (s *Service) WorkspaceBundle(ctx context.Context, name string) (func(io.Writer) error, error) {
	if err := s.may(ctx, "service.WorkspaceBundle"); err != nil {
		return nil, err
	}
	f, err := s.Workspaces.Bundle(ctx, s.scope(ctx), name)
	if err != nil {
		return nil, err
	}
	return func(w io.Writer) error {
		defer f.Close()
		_, err := io.Copy(w, f)
		return err
	}, nil
}

// RemoveWorkspace removes one now; without discard it is exported before.
func (s *Service) RemoveWorkspace(ctx context.Context, name string, discard bool) error {
	by, err := s.who(ctx, "service.RemoveWorkspace")
	if err != nil {
		return err
	}
	return s.Workspaces.Remove(ctx, s.scope(ctx), by, name, discard)
}
