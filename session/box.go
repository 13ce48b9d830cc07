package session

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"cofferdam"
	"cofferdam/gateway"
	"cofferdam/gateway/wire"
	"cofferdam/sandbox"
)

// spec is what both boxes of a session have in common.
func (a *attempt) spec() sandbox.Spec {
	return sandbox.Spec{Tier: a.tier(), Scope: a.plan.Scope, Image: a.image.Path, Limits: a.grant.limits, Files: a.o.Trust}
}

// tier is what the session's boxes must be of: the request's, which was held
// against the operator's when the task was made, or the operator's own.
func (a *attempt) tier() sandbox.Tier {
	if t := a.plan.Request.Tier; t != "" {
		return sandbox.Tier(t)
	}
	return a.o.Tier
}

// variables are those that every command of a box gets, the platform's own too.
func (a *attempt) variables() []string {
	return append(slices.Clone(a.o.Env), engine(a.tier())...)
}

// enter makes the session's box, or finds the one that an earlier process made.
func (a *attempt) enter(ctx context.Context) error {
	begun := false
	a.ledger.look(func(s *seen) {
		a.nth = s.nextBox(len(a.plan.Checks)) + s.colds
		begun = s.boxed == string(a.boxID(a.nth))
	})
	if err := a.lease(ctx); err != nil {
		return err
	}
	id := a.boxID(a.nth)
	if begun {
		box, err := a.o.Driver.Open(ctx, id)
		if err == nil {
			a.box = box
			return a.ready(ctx)
		}
		// Nothing has run in it as long as it was never ready, so it may be made
		// now. Afterwards a box that is gone has taken the work with it.
		ready, asked := false, false
		a.ledger.look(func(s *seen) { ready, asked = s.ready == string(id), s.asked || s.restore != nil })
		if lost(err) && ready && asked { // it is missed once there is an answer, or its workspace is put back
			a.gone = errBoxLost.Error()
			return nil
		}
		if !lost(err) || ready {
			return boxError(err)
		}
	} else if err := a.ledger.step(ctx, stepBox, map[string]string{fieldBox: string(id)}); err != nil {
		return err
	}
	s := a.spec()
	s.ID, s.Env = id, a.env.Path
	s.Hostname = fmt.Sprintf("t-%d", a.plan.Number)
	s.Workspace, s.Epoch = a.kept.ID, a.kept.Epoch
	box, err := a.create(ctx, s)
	if err != nil {
		return failFor(cofferdam.ReasonEnvironment, err)
	}
	a.box = box
	return a.ready(ctx)
}

// renew puts a fresh box with a workspace of its own in the place of the one
// that the check before has used.
func (a *attempt) renew(ctx context.Context) error {
	a.cut()
	if err := a.destroy(ctx, a.boxID(a.nth)); err != nil {
		return err
	}
	return inOrder(ctx, a.enter, a.connect, a.checkout, outfit{a}.dress)
}

// ready puts on record what the box really is.
func (a *attempt) ready(ctx context.Context) error {
	st, err := a.box.Status(ctx)
	if err != nil {
		return boxError(err)
	}
	asked := false
	a.ledger.look(func(s *seen) { asked = s.asked || s.restore != nil })
	switch {
	case st.State == sandbox.Suspending:
		if _, err := a.box.Wait(ctx, sandbox.Suspended, sandbox.Ready, sandbox.Busy, sandbox.Idle); err != nil {
			return boxError(err)
		}
		return a.ready(ctx)
	case st.State == sandbox.Suspended:
		a.asleep = true
	case st.State.Over() && asked:
		a.gone = st.Reason
	case st.State.Over():
		return fail(cofferdam.ReasonBox, errBoxLost.Error()+": "+st.Reason)
	}
	if st.Tier != a.tier() && !st.Tier.Satisfies(a.tier()) {
		return fail(cofferdam.ReasonEnvironment, fmt.Sprintf("the box is of tier %s, and %s was asked for", st.Tier, a.tier()))
	}
	a.goesOn = a.keepsCheckout(st)
	defer func() { a.remember(a.plan.ID, life{of: a, box: st.ID, ends: lifetime{a}.ends()}) }()
	known := false
	a.ledger.look(func(s *seen) { known = s.ready == string(st.ID) })
	if known {
		return nil
	}
	fields := map[string]string{
		fieldBox: string(st.ID), fieldTier: string(st.Tier), fieldKernel: st.Kernel, fieldImage: a.image.Name,
		fieldFlags: strings.Join(st.Flags, " "), fieldEnv: string(a.env.Digest), fieldHit: strconv.FormatBool(a.env.Hit), fieldFound: a.env.String(),
		fieldPolicy: string(a.grant.caller.Policy.Digest()), "limits": encode(st.Limits),
	}
	workspaceFields(st, fields)
	return a.ledger.step(ctx, stepReady, fields)
}

// boxError makes a failure of a box that is gone.
func boxError(err error) error {
	if lost(err) {
		return fail(cofferdam.ReasonBox, errBoxLost.Error())
	}
	return err
}

// connect gives the box its wire. After an earlier process, the names it gave
// out are known again before the first packet, and connections that it held are
// reset, so that programs in the box notice at once.
func (a *attempt) connect(ctx context.Context) error {
	var names []wire.Name
	wires := 0
	a.ledger.look(func(s *seen) { names, wires = s.names, s.wires+1 })
	if a.asleep || a.gone != "" {
		asked := false
		if a.ledger.look(func(s *seen) { asked = s.asked }); asked {
			return nil // there is time until an answer
		}
		_, err := (&nap{attempt: a}).rise(ctx, "the session goes on")
		return err
	}
	if err := (ticket{a}).take(ctx, true); err != nil {
		return err
	}
	w, err := a.o.Connect(ctx, a.box, a.grant.caller, names)
	if err != nil {
		return boxError(err)
	}
	a.wire = w
	if err := a.ledger.step(ctx, stepWire, map[string]string{"wires": strconv.Itoa(wires), "names": strconv.Itoa(len(names))}); err != nil {
		return err
	}
	if wires == 1 {
		return nil
	}
	var table socketTable
	_, err = sandbox.Run(ctx, a.box, sandbox.Command{
		ID: cofferdam.ExecID(fmt.Sprintf("sockets-%d", wires)), Argv: []string{"cat", "/proc/net/tcp"}, Dir: "/",
	}, &table, nil)
	if err != nil {
		return boxError(err)
	}
	w.ResetStale(table.Bytes())
	return nil
}

// socketTable keeps the box's table of sockets, as far as it is sane: 512
// processes with a few connections each are some 100 KiB. What is cut off only
// notices later that its connection is gone.
type socketTable struct{ bytes.Buffer }

const maxSocketTable = 1 << 20

// Write takes all of p and keeps what fits.
func (t *socketTable) Write(p []byte) (int, error) {
	t.Buffer.Write(p[:min(len(p), maxSocketTable-t.Len())])
	return len(p), nil
}

// attachWire is the usual Connect: the box's network device, with the gateways
// at its other end.
func (r *Runner) attachWire(ctx context.Context, box sandbox.Box, c *gateway.Caller, names []wire.Name) (Wire, error) {
	tap, err := box.Wire(ctx)
	if err != nil {
		return nil, err
	}
	return wire.Attach(tap, c, r.o.Router, names)
}
