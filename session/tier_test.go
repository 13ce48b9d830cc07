package session_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"cofferdam"
	"cofferdam/sandbox"
	"cofferdam/session"
)

// asking is a driver that makes what it makes, whatever tier is asked for, and
// keeps what was asked.
type asking struct {
	sandbox.Driver
	asked []sandbox.Tier
}

func (d *asking) Create(ctx context.Context, s sandbox.Spec) (sandbox.Box, error) {
	d.asked = append(d.asked, s.Tier)
	s.Tier = sandbox.None
	return d.Driver.Create(ctx, s)
}

// A box of another tier than the one asked for is no box: the session ends
// before anything runs in it.
func TestWeakerBoxIsRefused(t *testing.T) {
	d := new(asking)
	b := newBench(t, func(o *session.Options) { d.Driver, o.Driver = o.Driver, d })
	// The control: what the operator's tier says is what is made.
	if r := b.run(b.plan("true")); r.Failure == "environment" || r.Box.Tier != "none" {
		t.Fatalf("control: %+v", r)
	}
	p := b.plan("echo ran")
	p.Request.Tier = "microvm"
	r := b.run(p)
	if r.Failure != "environment" || !strings.Contains(r.Reason, "microvm was asked for") || r.Box.Tier != "" {
		t.Errorf("result %+v", r)
	}
	if last := d.asked[len(d.asked)-1]; last != sandbox.MicroVM {
		t.Errorf("asked for %s", last)
	}
	for _, e := range b.events(p) {
		if strings.Contains(string(e.Kind), "agent") {
			t.Errorf("something ran: %+v", e)
		}
	}
}

// lacking is a driver that lacks a layer of the host's.
type lacking struct{ sandbox.Driver }

func (lacking) Create(context.Context, sandbox.Spec) (sandbox.Box, error) {
	return nil, &cofferdam.Error{Op: "lacking.Create", Kind: cofferdam.Unavailable, Subject: "kernel for machines", Reason: "there is none", Hint: "install one"}
}

// TestBoxThatCannotBeHad: it may be had later, so the session is not over. Whoever
// gives it up knows that it was for want of a box.
func TestBoxThatCannotBeHad(t *testing.T) {
	b := newBench(t, func(o *session.Options) { o.Driver = lacking{o.Driver} })
	_, err := b.runner.Run(context.Background(), b.plan("true"))
	var a *session.Accident
	if !errors.As(err, &a) || a.Code != cofferdam.ReasonEnvironment || cofferdam.KindOf(err) != cofferdam.Unavailable || cofferdam.HintOf(err) != "install one" {
		t.Errorf("%v (%s)", err, cofferdam.HintOf(err))
	}
}
