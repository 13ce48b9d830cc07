package client

import (
	"context"

	"cofferdam"
)

// Environments lists what boxes are made from, the newest first.
func (c *Client) Environments(ctx context.Context) ([]cofferdam.Environment, error) {
	return items[cofferdam.Environment](ctx, c, "/v1/environments")
}

// Environment finds one by its digest or a unique prefix of it.
func (c *Client) Environment(ctx context.Context, name string) (cofferdam.Environment, error) {
	return get[cofferdam.Environment](ctx, c, at("environments", name))
}

// RemoveEnvironment removes one, so that it is made anew.
func (c *Client) RemoveEnvironment(ctx context.Context, name string) error {
	return c.call(ctx, request{method: "DELETE", path: at("environments", name)}, nil)
}

// RollbackEnvironment puts the result of the setup before the last one back.
func (c *Client) RollbackEnvironment(ctx context.Context, name string) error {
	return c.call(ctx, request{method: "POST", path: at("environments", name) + "/rollback"}, nil)
}

// PruneEnvironments removes by age and size, and returns what went.
func (c *Client) PruneEnvironments(ctx context.Context, r cofferdam.PruneRequest) ([]cofferdam.Environment, error) {
	l, err := post[list[cofferdam.Environment]](ctx, c, "/v1/environments/prune", r, "")
	return l.Items, err
}
