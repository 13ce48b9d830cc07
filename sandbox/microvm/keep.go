package microvm

import (
	"context"

	"cofferdam/sandbox"
)

// Workspaces returns every workspace that is kept: none.
func (d *Driver) Workspaces(context.Context) ([]sandbox.Workspace, error) { return nil, nil }

// RemoveWorkspace removes a workspace; there is none.
func (d *Driver) RemoveWorkspace(context.Context, sandbox.WorkspaceID) error { return nil }
