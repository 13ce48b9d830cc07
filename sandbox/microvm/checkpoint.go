package microvm

import (
	"context"

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

// Differences compares workspaces.
func (d *Driver) Differences(context.Context, sandbox.Compare) (sandbox.Differences, error) {
	return sandbox.Differences{}, sandbox.Lacking(sandbox.MicroVM, sandbox.CanCheckpoint)
}

// RestoreWorkspace puts a kept workspace back.
func (d *Driver) RestoreWorkspace(ctx context.Context, r sandbox.Restore) error {
	return d.snapshots.Restore(ctx, r, func(s *snapshot.Stored) error {
		return d.keeps[s.Tier].Replace(ctx, r.Workspace, r.Epoch, s.Size, func(path string, _ int64) error {
			return snapshot.Copy(s.Path(snapshot.Image), path)
		})
	})
}
