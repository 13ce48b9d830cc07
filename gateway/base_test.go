package gateway_test

import (
	"context"
	"testing"

	"cofferdam"
	"cofferdam/gateway"
	"cofferdam/gateway/gatewaytest"
	"cofferdam/policy"
)

// TestDecisionNamesItsPolicy: each decision on record names the policy that was
// asked, also the one before that of now, and what people opened makes it no other:
// that is named by its rule.
func TestDecisionNamesItsPolicy(t *testing.T) {
	c, rec, _ := gatewaytest.NewCaller(t, policy.Grant{Allow: gatewaytest.Allow(t, "good.test")})
	ask := func(host cofferdam.Host) cofferdam.Event {
		_ = gateway.Handle(context.Background(), c, request(host), func(context.Context) (gateway.Outcome, error) { return gateway.Outcome{}, nil })
		var last cofferdam.Event
		for _, e := range rec.Events() {
			if e.Verdict != "" {
				last = e
			}
		}
		return last
	}
	named := func(when string, e cofferdam.Event, verdict cofferdam.Verdict, want cofferdam.Digest) {
		t.Helper()
		if got := e.Fields[cofferdam.FieldPolicy]; e.Verdict != verdict || got != string(want) || got == "" {
			t.Errorf("%s: %s by %q, want %s by %q", when, e.Verdict, got, verdict, want)
		}
	}
	first := c.Policy.Set().Base()
	named("allowed", ask("good.test"), cofferdam.Allowed, first)
	named("refused", ask("evil.test"), cofferdam.Refused, first)
	_ = gateway.Reject(context.Background(), c, request("good.test"), "x", "y", "z")
	named("by the gateway itself", rec.Events()[len(rec.Events())-1], cofferdam.Refused, first)
	if err := c.Policy.Replace(policy.Grant{Allow: gatewaytest.Allow(t, "evil.test")}); err != nil {
		t.Fatal(err)
	}
	if c.Policy.Set().Base() == first {
		t.Fatal("another policy has the same digest")
	}
	named("under another policy", ask("evil.test"), cofferdam.Allowed, c.Policy.Set().Base())
}
