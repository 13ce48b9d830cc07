package client

import (
	"context"
	"io"
	"strconv"

	"cofferdam"
)

// Workspaces lists what agents worked in and is kept, the newest first.
func (c *Client) Workspaces(ctx context.Context) ([]cofferdam.Workspace, error) {
	return items[cofferdam.Workspace](ctx, c, "/v1/workspaces")
}

// Workspace finds one by its task, its id or a prefix of it.
func (c *Client) Workspace(ctx context.Context, name string) (cofferdam.Workspace, error) {
	return get[cofferdam.Workspace](ctx, c, at("workspaces", name))
}

// ExportWorkspace has the server make a bundle of what is in one and nowhere else.
func (c *Client) ExportWorkspace(ctx context.Context, name string) (cofferdam.Workspace, error) {
	return post[cofferdam.Workspace](ctx, c, at("workspaces", name)+"/export", nil, "")
}

// WorkspaceBundle writes the bundle that was made.
func (c *Client) WorkspaceBundle(ctx context.Context, name string, w io.Writer) error {
	return c.copyTo(ctx, at("workspaces", name)+"/bundle", w)
}

// RemoveWorkspace removes one now; without discard it is exported before.
func (c *Client) RemoveWorkspace(ctx context.Context, name string, discard bool) error {
	return c.call(ctx, request{method: "DELETE", path: at("workspaces", name) + "?discard=" + strconv.FormatBool(discard)}, nil)
}

// ResumeTask starts a new attempt that goes on in the workspace of the one before;
// limits as with RetryTask.
func (c *Client) ResumeTask(ctx context.Context, name string, limits *cofferdam.Budget) (cofferdam.Task, error) {
	return post[cofferdam.Task](ctx, c, at("tasks", name)+"/retry?resume=true", retry{limits}, "")
}
