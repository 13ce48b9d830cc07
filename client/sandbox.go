package client

import (
	"context"
	"net/url"

	"cofferdam"
)

// Sandboxes lists the boxes of sessions that run.
func (c *Client) Sandboxes(ctx context.Context) ([]cofferdam.Sandbox, error) {
	return items[cofferdam.Sandbox](ctx, c, "/v1/sandboxes")
}

// Sandbox finds the box of a session, by the session's id or its task.
func (c *Client) Sandbox(ctx context.Context, name string) (cofferdam.Sandbox, error) {
	return get[cofferdam.Sandbox](ctx, c, at("sandboxes", name))
}

func checkpointAt(name, checkpoint string) string {
	return at("sandboxes", name) + "/checkpoints/" + url.PathEscape(checkpoint)
}

// CreateCheckpoint keeps the workspace of a running session as it is now.
func (c *Client) CreateCheckpoint(ctx context.Context, name, comment string) (cofferdam.Checkpoint, error) {
	return post[cofferdam.Checkpoint](ctx, c, at("sandboxes", name)+"/checkpoints", map[string]any{"comment": comment}, "")
}

// Checkpoints lists those of a workspace, the newest first; of all with "".
func (c *Client) Checkpoints(ctx context.Context, name string) ([]cofferdam.Checkpoint, error) {
	if name == "" {
		return items[cofferdam.Checkpoint](ctx, c, "/v1/checkpoints")
	}
	return items[cofferdam.Checkpoint](ctx, c, at("sandboxes", name)+"/checkpoints")
}

// Checkpoint returns one, with its manifest and how its signature is.
func (c *Client) Checkpoint(ctx context.Context, name, checkpoint string) (cofferdam.Checkpoint, error) {
	return get[cofferdam.Checkpoint](ctx, c, checkpointAt(name, checkpoint))
}

// RemoveCheckpoint removes one.
func (c *Client) RemoveCheckpoint(ctx context.Context, name, checkpoint string) error {
	return c.call(ctx, request{method: "DELETE", path: checkpointAt(name, checkpoint)}, nil)
}

// DiffCheckpoint says what differs between one and another; with to "", and the
// workspace as it is now.
func (c *Client) DiffCheckpoint(ctx context.Context, name, from, to string) (cofferdam.Difference, error) {
	return get[cofferdam.Difference](ctx, c, checkpointAt(name, from)+"/diff?"+url.Values{"to": {to}}.Encode())
}

// RestoreSandbox puts the workspace of a running session back to a checkpoint, and
// waits for it.
func (c *Client) RestoreSandbox(ctx context.Context, name, checkpoint string) (cofferdam.Restored, error) {
	return post[cofferdam.Restored](ctx, c, at("sandboxes", name)+"/restore", map[string]any{"checkpoint": checkpoint}, "")
}
