package session_test

import (
	"context"
	"strings"
	"testing"

	"cofferdam"
	"cofferdam/gateway"
	"cofferdam/policy"
)

// TestStuckAgentIsEnded: one that tries the same refused act again and again is
// warned of once, and ended, with what a person can do about it. Its twin tries as
// often, and something of it passes between: it goes on.
func TestStuckAgentIsEnded(t *testing.T) {
	b := newBench(t, nil)
	p := b.plan("echo it-runs; until [ -e /tmp/never ]; do sleep 1; done")
	p.Request.Allow = []string{"good.test"}
	ctx, end := context.WithCancel(context.Background())
	defer end()
	done := b.start(ctx, p)
	b.until(p, "agent", "it-run")
	c := b.wires[len(b.wires)-1].caller
	ask := func(host cofferdam.Host, times int) {
		for range times {
			_ = gateway.Handle(ctx, c, gateway.Request{
				Source: "egress", Kind: cofferdam.EventRequest, Resource: "GET " + string(host),
				Query: policy.Query{Action: policy.HTTP, Host: host, Port: 443, Method: "GET", Path: "/"},
			}, func(context.Context) (gateway.Outcome, error) { return gateway.Outcome{}, nil })
		}
	}
	count := func(kind string) (n int) {
		for _, e := range b.events(p) {
			if e.Kind == kind {
				n++
			}
		}
		return n
	}
	ask("evil.test", 60)
	b.poll("the warning", func() bool { return count(cofferdam.EventSessionStuck) > 0 })
	for range 2 { // the twin
		ask("good.test", 1)
		ask("evil.test", 400)
	}
	ask("good.test", 1)
	if count(cofferdam.EventAgentEnd) > 0 {
		t.Fatal("the twin was ended")
	}
	ask("evil.test", 500)
	o := <-done
	if o.err != nil || o.result.Failure != cofferdam.ReasonAgent || !strings.Contains(o.result.Reason, "GET evil.test by the rule default-deny") || !strings.Contains(o.result.Reason, "allow that act") {
		t.Errorf("%+v, %v", o.result, o.err)
	}
	if n := count(cofferdam.EventSessionStuck); n != 1 {
		t.Errorf("%d warnings", n)
	}
}
