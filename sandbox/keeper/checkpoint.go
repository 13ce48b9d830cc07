package keeper

import (
	"cmp"
	"context"
	"errors"

	"cofferdam"
	"cofferdam/sandbox"
)

func (b *box) Snapshot(ctx context.Context, t sandbox.Take) (sandbox.Snapshot, error) {
	re, err := b.client.call(ctx, request{Op: opSnapshot, Box: b.id, Take: &t})
	if err != nil || re.Snapshot == nil {
		return sandbox.Snapshot{}, err
	}
	return *re.Snapshot, nil
}

// Snapshots returns every snapshot of the keeper.
func (c *Client) Snapshots(ctx context.Context) ([]sandbox.Snapshot, error) {
	re, err := c.call(ctx, request{Op: opSnapshots})
	return re.Snapshots, err
}

// SignSnapshot keeps a note beside a snapshot.
func (c *Client) SignSnapshot(ctx context.Context, id sandbox.SnapshotID, note []byte) error {
	_, err := c.call(ctx, request{Op: opSign, Snapshot: id, Note: note})
	return err
}

// RemoveSnapshot removes a snapshot.
func (c *Client) RemoveSnapshot(ctx context.Context, id sandbox.SnapshotID) error {
	_, err := c.call(ctx, request{Op: opForget, Snapshot: id})
	return err
}

// Differences compares workspaces.
func (c *Client) Differences(ctx context.Context, what sandbox.Compare) (sandbox.Differences, error) {
	re, err := c.call(ctx, request{Op: opDifferences, Compare: &what})
	if err != nil || re.Differences == nil {
		return sandbox.Differences{}, err
	}
	return *re.Differences, nil
}

// RestoreWorkspace puts a workspace back.
func (c *Client) RestoreWorkspace(ctx context.Context, r sandbox.Restore) error {
	_, err := c.call(ctx, request{Op: opRestore, Restore: &r})
	return err
}

// checkpoint answers the calls that have to do with snapshots.
func (c *call) checkpoint(ctx context.Context) (reply, error) {
	switch {
	case c.r.Op == opSnapshots:
		return c.snapshots(ctx)
	case c.r.Op == opForget:
		return reply{}, c.forget(ctx)
	case c.r.Op == opSign:
		return reply{}, c.whoever(func(d sandbox.Driver) error { return d.SignSnapshot(ctx, c.r.Snapshot, c.r.Note) })
	case c.r.Op == opDifferences && c.r.Compare != nil:
		var found sandbox.Differences
		err := c.whoever(func(d sandbox.Driver) (err error) {
			found, err = d.Differences(ctx, *c.r.Compare)
			return err
		})
		return reply{Differences: &found}, err
	case c.r.Op == opRestore && c.r.Restore != nil:
		return reply{}, c.whoever(func(d sandbox.Driver) error { return d.RestoreWorkspace(ctx, *c.r.Restore) })
	}
	return reply{}, invalid(string(c.r.Op) + " without what")
}

// whoever asks each driver until one has what is meant. One that lacks it, or that
// has none of that id, leaves it to the others.
func (c *call) whoever(ask func(sandbox.Driver) error) error {
	var lacking, missing error
	for _, d := range c.each() {
		err := ask(d)
		switch {
		case err == nil:
			return nil
		case sandbox.IsLacking(err):
			lacking = err
		case cofferdam.KindOf(err) == cofferdam.NotFound:
			missing = err
		default:
			return err
		}
	}
	return cmp.Or(missing, lacking, invalid("this keeper has no tier"))
}

// snapshots lists those of all drivers.
func (c *call) snapshots(ctx context.Context) (reply, error) {
	var re reply
	for _, d := range c.each() {
		list, err := d.Snapshots(ctx)
		if err != nil {
			return reply{}, err
		}
		re.Snapshots = append(re.Snapshots, list...)
	}
	return re, nil
}

// forget removes a snapshot, whichever driver has it.
func (c *call) forget(ctx context.Context) error {
	var errs []error
	for _, d := range c.each() {
		errs = append(errs, d.RemoveSnapshot(ctx, c.r.Snapshot))
	}
	return errors.Join(errs...)
}

// Snapshots returns those of every keeper.
func (s *Set) Snapshots(ctx context.Context) ([]sandbox.Snapshot, error) {
	var all []sandbox.Snapshot
	err := s.every(ctx, func(c *Client) error {
		list, err := c.Snapshots(ctx)
		all = append(all, list...)
		return err
	})
	return all, err
}

// RemoveSnapshot removes a snapshot, whichever keeper has it.
func (s *Set) RemoveSnapshot(ctx context.Context, id sandbox.SnapshotID) error {
	return s.every(ctx, func(c *Client) error { return c.RemoveSnapshot(ctx, id) })
}

// SignSnapshot keeps a note beside a snapshot, whichever keeper has it.
func (s *Set) SignSnapshot(ctx context.Context, id sandbox.SnapshotID, note []byte) error {
	return s.whoever(ctx, func(c *Client) error { return c.SignSnapshot(ctx, id, note) })
}

// Differences compares workspaces where the first of them is.
func (s *Set) Differences(ctx context.Context, what sandbox.Compare) (found sandbox.Differences, err error) {
	err = s.whoever(ctx, func(c *Client) (err error) {
		found, err = c.Differences(ctx, what)
		return err
	})
	return found, err
}

// RestoreWorkspace puts a workspace back from whichever keeper has the snapshot.
func (s *Set) RestoreWorkspace(ctx context.Context, r sandbox.Restore) error {
	return s.whoever(ctx, func(c *Client) error { return c.RestoreWorkspace(ctx, r) })
}

// every asks each keeper that has not ended; one that does not answer is an error.
func (s *Set) every(ctx context.Context, ask func(*Client) error) error {
	err := ask(s.Client)
	for _, e := range s.older {
		c, joinErr := e.join(ctx)
		if joinErr == nil {
			joinErr = ask(c)
		}
		if joinErr != nil && !errors.Is(joinErr, errGone) && !e.left(joinErr) {
			err = errors.Join(err, joinErr)
		}
	}
	return err
}

// whoever asks the newest keeper, and the others only for what it has none of. One
// that does not answer may have it: that is no proof that there is none.
func (s *Set) whoever(ctx context.Context, ask func(*Client) error) error {
	err := ask(s.Client)
	for _, e := range s.older {
		if cofferdam.KindOf(err) != cofferdam.NotFound || err == nil {
			return err
		}
		c, joinErr := e.join(ctx)
		if joinErr == nil {
			joinErr = ask(c)
		}
		if !errors.Is(joinErr, errGone) && !e.left(joinErr) {
			err = joinErr
		}
	}
	return err
}
