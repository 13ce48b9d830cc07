package microvm

import (
	"context"

	"cofferdam/sandbox"
)

func (b *box) restore(context.Context) error {
	return sandbox.Lacking(b.spec.Tier, sandbox.CanSnapshot)
}

// Pause implements sandbox.Box.
func (b *box) Pause(context.Context) error { return sandbox.Lacking(b.spec.Tier, sandbox.CanPause) }

// Suspend implements sandbox.Box.
func (b *box) Suspend(context.Context) error { return sandbox.Lacking(b.spec.Tier, sandbox.CanSuspend) }

// Resume implements sandbox.Box.
func (b *box) Resume(context.Context) error { return nil }

// Snapshot implements sandbox.Box.
func (b *box) Snapshot(context.Context, sandbox.SnapshotID) (sandbox.Snapshot, error) {
	return sandbox.Snapshot{}, sandbox.Lacking(b.spec.Tier, sandbox.CanSnapshot)
}

// RemoveSnapshot implements sandbox.Driver.
func (d *Driver) RemoveSnapshot(context.Context, sandbox.SnapshotID) error { return nil }
