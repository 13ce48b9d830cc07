package session_test

import (
	"context"
	"strings"
	"testing"

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
