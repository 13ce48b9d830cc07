package gateway_test

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"cofferdam"
	"cofferdam/gateway"
	"cofferdam/policy"
)

// opened gives a caller a host that a person opened for so many bytes.
func opened(t *testing.T, bytes int64, uses int) (*gateway.Caller, *desk) {
	t.Helper()
	c, _, d := asking(t, "")
	r, err := policy.ParseOpening(policy.HTTP, "open.test")
	if err != nil {
		t.Fatal(err)
	}
	r.ID = "given.a-1"
	if err := c.Policy.Give(policy.Opening{Rule: r, Until: time.Now().Add(time.Hour), Bytes: bytes, Uses: uses}); err != nil {
		t.Fatal(err)
	}
	return c, d
}

func passing(context.Context) (gateway.Outcome, error) { return gateway.Outcome{}, nil }

// TestAnOpeningHasItsBytes: many acts at a time take no more of an opening than it
// has, whatever they give back; the one that would take more ends it, on record,
// once, and nothing passes by it any more.
func TestAnOpeningHasItsBytes(t *testing.T) {
	const bound = 1_000_000
	c, d := opened(t, bound, 0)
	var passed, flowed atomic.Int64
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			for range 40 {
				r := request("open.test")
				r.Carries = &gateway.Allowance{Ahead: 1000}
				err := gateway.Handle(t.Context(), c, r, func(ctx context.Context) (gateway.Outcome, error) {
					passed.Add(1)
					n := int64(500) // less than it said
					for range 3 {
						if r.Carries.Take(ctx, 700) != nil {
							break
						}
						n += 700
					}
					flowed.Add(n)
					r.Carries.Settle(n)
					return gateway.Outcome{}, nil
				})
				if err != nil && cofferdam.KindOf(err) != cofferdam.Denied {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if n := flowed.Load(); n > bound || n < bound-40_000 {
		t.Errorf("%d bytes flowed in %d acts of %d opened", n, passed.Load(), bound)
	}
	if len(d.ended) != 1 || !strings.Contains(d.ended[0], "1000000 bytes") {
		t.Errorf("ended: %q", d.ended)
	}
	if d.bytes["a-1"] != flowed.Load() {
		t.Errorf("the database has %d bytes, %d flowed", d.bytes["a-1"], flowed.Load())
	}
	r := request("open.test")
	r.Carries = &gateway.Allowance{}
	if err := gateway.Handle(t.Context(), c, r, passing); cofferdam.KindOf(err) != cofferdam.Denied {
		t.Errorf("after its end: %v", err)
	}
}

// TestWhatNobodyCountsDoesNotPass: by an opening with a bound of bytes no act passes
// whose gateway counts none; and one that is larger than what is left is refused
// before it goes.
func TestWhatNobodyCountsDoesNotPass(t *testing.T) {
	c, d := opened(t, 1000, 5)
	if err := gateway.Handle(t.Context(), c, request("open.test"), passing); cofferdam.KindOf(err) != cofferdam.Denied {
		t.Errorf("nobody counts: %v", err)
	}
	c, d = opened(t, 1000, 5)
	for _, ahead := range []int64{600, 600} {
		r := request("open.test")
		r.Carries = &gateway.Allowance{Ahead: ahead}
		_ = gateway.Handle(t.Context(), c, r, func(context.Context) (gateway.Outcome, error) {
			r.Carries.Settle(ahead)
			return gateway.Outcome{}, nil
		})
	}
	if d.bytes["a-1"] != 600 || d.opened["a-1"] != 1 || len(d.ended) != 1 {
		t.Errorf("%d bytes and %d acts are used, ended %q", d.bytes["a-1"], d.opened["a-1"], d.ended)
	}
	c, d = opened(t, 1000, 1) // what runs out of acts gives its bytes back
	for range 2 {
		r := request("open.test")
		r.Carries = &gateway.Allowance{Ahead: 100}
		_ = gateway.Handle(t.Context(), c, r, func(context.Context) (gateway.Outcome, error) {
			r.Carries.Settle(100)
			return gateway.Outcome{}, nil
		})
	}
	if d.bytes["a-1"] != 100 || d.opened["a-1"] != 1 || len(d.ended) != 1 {
		t.Errorf("%d bytes and %d acts are used, ended %q", d.bytes["a-1"], d.opened["a-1"], d.ended)
	}
}

// Two people have to open what a rule wants two for: one alone opens nothing there.
func TestOnePersonOpensNothingForTwo(t *testing.T) {
	c, _, _ := asking(t, "[[egress.rule]]\nid = \"two\"\neffect = \"ask\"\nhosts = [\"open.test\"]\npeople = 2\n")
	for people, want := range map[int]cofferdam.Verdict{0: cofferdam.Asked, 1: cofferdam.Asked, 2: cofferdam.Allowed} {
		r, err := policy.ParseOpening(policy.HTTP, "open.test")
		if err != nil {
			t.Fatal(err)
		}
		r.ID = "given.a-1"
		rules := gateway.NewRules(c.Policy.Set())
		if err := rules.Give(policy.Opening{Rule: r, Until: time.Now().Add(time.Hour), People: people}); err != nil {
			t.Fatal(err)
		}
		if v := rules.Decide(request("open.test").Query).Verdict; v != want {
			t.Errorf("%d people: %s", people, v)
		}
	}
}
