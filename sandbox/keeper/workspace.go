package keeper

import (
	"context"
	"errors"

	"cofferdam/sandbox"
)

// Workspaces returns every workspace of the keeper.
func (c *Client) Workspaces(ctx context.Context) ([]sandbox.Workspace, error) {
	re, err := c.call(ctx, request{Op: opWorkspaces})
	return re.Workspaces, err
}

// RemoveWorkspace removes a workspace that no box has.
func (c *Client) RemoveWorkspace(ctx context.Context, id sandbox.WorkspaceID) error {
	_, err := c.call(ctx, request{Op: opDrop, Workspace: id})
	return err
}

// workspaces lists those of all drivers.
func (c *call) workspaces(ctx context.Context) (reply, error) {
	var re reply
	for _, d := range c.each() {
		list, err := d.Workspaces(ctx)
		if err != nil {
			return reply{}, err
		}
		re.Workspaces = append(re.Workspaces, list...)
	}
	return re, nil
}

// drop removes a workspace, whichever driver has it.
func (c *call) drop(ctx context.Context) error {
	var errs []error
	for _, d := range c.each() {
		errs = append(errs, d.RemoveWorkspace(ctx, c.r.Workspace))
	}
	return errors.Join(errs...)
}
