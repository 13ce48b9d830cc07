package session

import (
	"context"
	"slices"
	"time"

	"cofferdam"
	"cofferdam/gateway"
	"cofferdam/sandbox"
)

// Workspaces says which workspace the sessions of an attempt work in, one after
// the other, and hears how far they came.
type Workspaces interface {
	// Take returns the workspace for a session that works, and counts it as in
	// use. image is the path of what its box has at "/"; keep is how long the project
	// wants it kept; 0: it says nothing.
	Take(ctx context.Context, p Plan, t sandbox.Tier, image string, keep time.Duration) (Lease, error)
	// Ready says that the session's checkout is in it.
	Ready(ctx context.Context, p Plan) error
	// Left says that the session's box is gone.
	Left(ctx context.Context, p Plan) error
}

// Lease is a workspace for one session.
type Lease struct {
	ID    sandbox.WorkspaceID
	Epoch int64 // higher for a later session of the same workspace
	Ready bool  // a checkout was in it before this session
}

// lease finds the workspace of a session that works, if the tier keeps any.
func (a *attempt) lease(ctx context.Context) error {
	if a.plan.Phase != gateway.Work || a.o.Workspaces == nil {
		return nil
	}
	offers, err := a.o.Driver.Offers(ctx)
	if err != nil {
		return err
	}
	keeps := slices.ContainsFunc(offers, func(o sandbox.Offer) bool {
		return o.Tier == a.tier() && slices.Contains(o.Can, sandbox.CanKeep)
	})
	if !keeps {
		return nil
	}
	a.kept, err = a.o.Workspaces.Take(ctx, a.plan, a.tier(), a.image.Path, a.grant.keep)
	return err
}

// keepsCheckout says whether a checkout is in the workspace: an earlier session's,
// or this one's of a box that did not come back.
func (a *attempt) keepsCheckout(st sandbox.Status) bool {
	again, back := false, false
	a.ledger.look(func(s *seen) { again, back = s.colds > 0, s.from != "" })
	return (a.kept.Ready || again) && st.Workspace != nil && st.Workspace.ID == a.kept.ID && (!st.Workspace.Fresh || back)
}

// workspaceFields say in the trace what the box has at /work.
func workspaceFields(st sandbox.Status, fields map[string]string) {
	fields["workspace"] = "of this box alone"
	if w := st.Workspace; w != nil {
		fields["workspace"] = string(w.ID)
		fields["workspace_state"] = "kept from an earlier session"
		if w.Fresh {
			fields["workspace_state"] = "new"
		}
	}
}

// workspacePatience is how long a session waits for a workspace that another box
// has: one that is being ended, or that reads it for an export.
const workspacePatience = 2 * time.Minute

// create makes a box. For a workspace that another has it waits a while; after
// that it is tried again like anything that this machine cannot do now.
func (a *attempt) create(ctx context.Context, s sandbox.Spec) (sandbox.Box, error) {
	for end := time.Now().Add(workspacePatience); ; {
		box, err := a.o.Driver.Create(ctx, s)
		if err == nil || s.Workspace == "" || cofferdam.KindOf(err) != cofferdam.Conflict {
			return box, err
		}
		if time.Now().After(end) {
			return nil, &cofferdam.Error{Op: "session.create", Kind: cofferdam.Unavailable, Subject: "box of the session", Reason: err.Error(), Hint: cofferdam.HintOf(err), Err: err}
		}
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}
