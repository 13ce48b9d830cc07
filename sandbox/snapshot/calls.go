package snapshot

import (
	"context"
	"errors"
	"fmt"

	"cofferdam"
	"cofferdam/sandbox"
)

// Calls are those of sandbox.Driver that are alike in all drivers that have snapshots.
// Such a driver embeds them.
type Calls struct {
	Of *Store
	// Find finds a box: whose it is, and what takes a snapshot of it that is not kept.
	// There is none: NotFound.
	Find func(ctx context.Context, id cofferdam.BoxID) (cofferdam.Scope, Taker, error)
}

// Taker begins a snapshot of a box: its caller calls Keep or Drop.
type Taker func(ctx context.Context, t sandbox.Take) (*Stored, error)

// Snapshots implements sandbox.Driver.
func (c Calls) Snapshots(context.Context) ([]sandbox.Snapshot, error) { return c.Of.List() }

// SignSnapshot implements sandbox.Driver.
func (c Calls) SignSnapshot(_ context.Context, id sandbox.SnapshotID, note []byte) error {
	return c.Of.Sign(id, note)
}

// RemoveSnapshot implements sandbox.Driver.
func (c Calls) RemoveSnapshot(_ context.Context, id sandbox.SnapshotID) error { return c.Of.Remove(id) }

// Differences implements sandbox.Driver.
func (c Calls) Differences(ctx context.Context, what sandbox.Compare) (d sandbox.Differences, err error) {
	if (what.To == "") == (what.Box == "") {
		return d, sandbox.Refuse(c.Of.op(opDifferences), "snapshot "+string(what.From), "neither with one snapshot nor with one box", "name one of the two")
	}
	from, release, err := c.Of.Open(ctx, what.Scope, what.From, "")
	if err != nil {
		return d, err
	}
	defer release()
	if what.To != "" {
		to, release, err := c.Of.Open(ctx, what.Scope, what.To, "")
		if err != nil {
			return d, err
		}
		defer release()
		return c.Of.compare(ctx, what, from, to)
	}
	to, err := c.now(ctx, what)
	if err != nil {
		return d, err
	}
	defer func() { err = errors.Join(err, c.Of.Drop(to)) }()
	return c.Of.compare(ctx, what, from, to)
}

// now takes what stands for the workspace of a box, and does not keep it. A caller of
// another project is not told that there is one.
func (c Calls) now(ctx context.Context, what sandbox.Compare) (*Stored, error) {
	scope, take, err := c.Find(ctx, what.Box)
	missing := err != nil && cofferdam.KindOf(err) == cofferdam.NotFound
	if err != nil && !missing {
		return nil, err
	}
	if missing || scope != what.Scope {
		return nil, &cofferdam.Error{
			Op: c.Of.op(opDifferences), Kind: cofferdam.NotFound, Subject: fmt.Sprintf("box %.64q", string(what.Box)),
			Reason: "there is no such box", Hint: "a box ends with its keeper; compare with a checkpoint of it",
		}
	}
	return take(ctx, sandbox.Take{ID: sandbox.SnapshotID(cofferdam.NewID("s"))})
}
