package snapshot

import (
	"context"
	"errors"
	"os"

	"cofferdam"
	"cofferdam/sandbox"
	"cofferdam/sandbox/difference"
)

// Differences compares the workspaces of two snapshots; now takes, and does not keep,
// what stands for that of the box that c names, if it is of c's scope.
func (st *Store) Differences(ctx context.Context, c sandbox.Compare, now func(context.Context) (*Stored, error)) (d sandbox.Differences, err error) {
	const call = "Differences"
	if (c.To == "") == (c.Box == "") {
		return d, sandbox.Refuse(st.op(call), "snapshot "+string(c.From), "neither with one snapshot nor with one box", "name one of the two")
	}
	from, release, err := st.Open(ctx, c.Scope, c.From, "")
	if err != nil {
		return d, err
	}
	defer release()
	var to *Stored
	if c.To != "" {
		var release func()
		if to, release, err = st.Open(ctx, c.Scope, c.To, ""); err != nil {
			return d, err
		}
		defer release()
	} else {
		if to, err = now(ctx); err != nil {
			return d, err
		}
		defer func() { err = errors.Join(err, st.Drop(to)) }()
	}
	if c.To == c.From { // it was proved, and that was all to be asked of it
		return d, nil
	}
	d, err = difference.Of(ctx, from.workspace(), to.workspace())
	if err != nil {
		return sandbox.Differences{}, explain(st.op(call), c, err)
	}
	return d, nil
}

// workspace is the path of the workspace: an image, or a folder.
func (s *Stored) workspace() string {
	if _, err := os.Lstat(s.Path(Image)); err == nil {
		return s.Path(Image)
	}
	return s.Path(Tree)
}

// explain says of an error of a comparison what can be done about it.
func explain(op string, c sandbox.Compare, err error) error {
	e := &cofferdam.Error{Op: op, Kind: cofferdam.Internal, Subject: "differences from snapshot " + string(c.From), Reason: err.Error(), Err: err}
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	case errors.Is(err, difference.ErrTooMuch):
		e.Kind, e.Hint = cofferdam.Exhausted, "compare them in a box that has both"
	case errors.Is(err, difference.ErrBroken):
		e.Kind, e.Hint = cofferdam.Unavailable, "its box left it so: start a box that has it, and run e2fsck on it or go on without"
	default:
		e.Kind, e.Hint = cofferdam.Unavailable, "see whether the disk of the keeper's state folder is whole"
	}
	return e
}
