package session

import (
	"context"
	"errors"
	"testing"

	"cofferdam"
	"cofferdam/sandbox"
)

// heldDriver refuses to make a box as often as it is told to.
type heldDriver struct {
	sandbox.Driver
	refuse, asked int
	kind          cofferdam.Kind
}

func (d *heldDriver) Create(context.Context, sandbox.Spec) (sandbox.Box, error) {
	if d.asked++; d.asked <= d.refuse {
		return nil, &cofferdam.Error{Op: "held", Kind: d.kind, Subject: "workspace", Reason: "a box has it"}
	}
	return nil, nil
}

// TestWaitsForItsWorkspace: a workspace that another box has, for an export
// perhaps, is waited for; other refusals are not.
func TestWaitsForItsWorkspace(t *testing.T) {
	kept := sandbox.Spec{Workspace: "w-1"}
	for _, c := range []struct {
		name  string
		spec  sandbox.Spec
		kind  cofferdam.Kind
		asked int
	}{
		{"held", kept, cofferdam.Conflict, 2}, {"no room", kept, cofferdam.Exhausted, 1}, {"no workspace", sandbox.Spec{}, cofferdam.Conflict, 1},
	} {
		d := &heldDriver{refuse: 1, kind: c.kind}
		_, err := (&attempt{Runner: &Runner{o: Options{Driver: d}}}).create(t.Context(), c.spec)
		if (err == nil) != (c.asked == 2) || d.asked != c.asked {
			t.Errorf("%s: asked %d times, %v", c.name, d.asked, err)
		}
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(ErrTaskEnded)
	if _, err := (&attempt{Runner: &Runner{o: Options{Driver: &heldDriver{refuse: 100, kind: cofferdam.Conflict}}}}).create(ctx, kept); !errors.Is(err, ErrTaskEnded) {
		t.Errorf("ended meanwhile: %v", err)
	}
}
