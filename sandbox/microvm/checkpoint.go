package microvm

import (
	"context"

	"cofferdam"
	"cofferdam/sandbox"
	"cofferdam/sandbox/snapshot"
)

// Snapshots returns every snapshot that is whole.
func (d *Driver) Snapshots(ctx context.Context) ([]sandbox.Snapshot, error) {
	return d.snapshots.Snapshots(ctx)
}

// SignSnapshot keeps a note beside a snapshot.
func (d *Driver) SignSnapshot(ctx context.Context, id sandbox.SnapshotID, note []byte) error {
	return d.snapshots.SignSnapshot(ctx, id, note)
}

// RemoveSnapshot removes a snapshot; boxes made from it have copies.
func (d *Driver) RemoveSnapshot(_ context.Context, id sandbox.SnapshotID) error {
	return d.snapshots.Remove(id)
}

// Differences compares workspaces. No kernel mounts their disks for that: they were
// written by one that is the agent's neighbour.
func (d *Driver) Differences(ctx context.Context, c sandbox.Compare) (sandbox.Differences, error) {
	return d.snapshots.Differences(ctx, c, func(ctx context.Context) (*snapshot.Stored, error) {
		found, err := d.Open(ctx, c.Box)
		if err != nil {
			return nil, err
		}
		b := found.(*box)
		if b.spec.Scope != c.Scope { // who is not told that it is there
			return nil, &cofferdam.Error{Op: "microvm.Differences", Kind: cofferdam.NotFound, Subject: "box " + string(c.Box), Reason: "there is no such box"}
		}
		b.step.Lock()
		defer b.step.Unlock()
		return takeOf(ctx, b, sandbox.Take{ID: sandbox.SnapshotID(cofferdam.NewID("s"))})
	})
}

// RestoreWorkspace puts a kept workspace back.
func (d *Driver) RestoreWorkspace(ctx context.Context, r sandbox.Restore) error {
	return d.snapshots.Restore(ctx, r, func(s *snapshot.Stored) error {
		return d.keeps[s.Tier].Replace(ctx, r.Workspace, r.Epoch, s.Size, func(path string, _ int64) error {
			return snapshot.Copy(s.Path(snapshot.Image), path)
		})
	})
}
