package microvm

import (
	"context"

	"cofferdam"
	"cofferdam/sandbox"
	"cofferdam/sandbox/snapshot"
)

// find finds a box for a comparison of workspaces. No kernel mounts its disk for that:
// it was written by one that is the agent's neighbour.
func (d *Driver) find(ctx context.Context, id cofferdam.BoxID) (cofferdam.Scope, snapshot.Taker, error) {
	found, err := d.Open(ctx, id)
	if err != nil {
		return cofferdam.Scope{}, nil, err
	}
	b := found.(*box)
	return b.spec.Scope, func(ctx context.Context, t sandbox.Take) (*snapshot.Stored, error) {
		b.step.Lock()
		defer b.step.Unlock()
		return takeOf(ctx, b, t)
	}, nil
}

// RestoreWorkspace puts a kept workspace back.
func (d *Driver) RestoreWorkspace(ctx context.Context, r sandbox.Restore) error {
	return d.snapshots.Restore(ctx, r, func(s *snapshot.Stored) error {
		return d.keeps[s.Tier].Replace(ctx, r.Workspace, r.Epoch, s.Size, func(path string, _ int64) error {
			return snapshot.Copy(s.Path(snapshot.Image), path)
		})
	})
}
