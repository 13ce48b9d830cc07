package snapshot

import (
	"context"
	"errors"
	"os"

	"cofferdam"
	"cofferdam/sandbox"
	"cofferdam/sandbox/difference"
)

// opDifferences stands in the errors of a comparison.
const opDifferences = "Differences"

// compare compares the workspaces of two snapshots that were proved.
func (st *Store) compare(ctx context.Context, c sandbox.Compare, from, to *Stored) (d sandbox.Differences, err error) {
	if c.To == c.From { // it was proved, and that was all to be asked of it
		return d, nil
	}
	d, err = difference.Of(ctx, from.workspace(), to.workspace())
	if err != nil {
		return sandbox.Differences{}, explain(st.op(opDifferences), c, err)
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
