package service

import (
	"context"
	"os"

	"cofferdam"
)

// memoryWorkspaces is one workspace that is kept, of task t-1, without a bundle.
type memoryWorkspaces struct{ m *Memory }

func (w memoryWorkspaces) one(scope cofferdam.Scope) cofferdam.Workspace {
	return cofferdam.Workspace{Schema: "cofferdam/workspace/v1", ID: "w-aaaa1111", Scope: scope, Number: 1, Attempt: 1, State: cofferdam.WorkspaceKept, Tier: "gvisor"}
}

// List implements Workspaces.
func (w memoryWorkspaces) List(_ context.Context, scope cofferdam.Scope) ([]cofferdam.Workspace, error) {
	return []cofferdam.Workspace{w.one(scope)}, w.m.Fail
}

// View implements Workspaces.
func (w memoryWorkspaces) View(_ context.Context, scope cofferdam.Scope, name string) (cofferdam.Workspace, error) {
	if v := w.one(scope); name == v.ID || name == v.Short() {
		return v, w.m.Fail
	}
	return cofferdam.Workspace{}, notFound("workspace", name)
}

// Export implements Workspaces.
func (w memoryWorkspaces) Export(ctx context.Context, scope cofferdam.Scope, name string) (cofferdam.Workspace, error) {
	if v, err := w.View(ctx, scope, name); err != nil {
		return v, err
	}
	return cofferdam.Workspace{}, notFound("bundle", name)
}

// Bundle implements Workspaces.
func (w memoryWorkspaces) Bundle(_ context.Context, _ cofferdam.Scope, name string) (*os.File, error) {
	return nil, notFound("bundle", name)
}

// Remove implements Workspaces.
func (w memoryWorkspaces) Remove(ctx context.Context, scope cofferdam.Scope, _ cofferdam.Principal, name string, _ bool) error {
	_, err := w.View(ctx, scope, name)
	return err
}

// PassOn implements Workspaces.
func (w memoryWorkspaces) PassOn(context.Context, cofferdam.Task) (func(), error) {
	return func() {}, w.m.Fail
}
