package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"cofferdam"
	"cofferdam/gateway"
	"cofferdam/gateway/gatewaytest"
	"cofferdam/policy"
)

func request(host cofferdam.Host) gateway.Request {
	return gateway.Request{
		Source: "egress", Kind: cofferdam.EventRequest, Resource: "GET " + string(host),
		Query: policy.Query{Action: policy.HTTP, Host: host, Port: 80, Method: "GET", Path: "/"},
	}
}

func TestHandleAllowed(t *testing.T) {
	c, rec, _ := gatewaytest.NewCaller(t, policy.Grant{Allow: gatewaytest.Allow(t, "good.test")})
	r := request("good.test")
	r.Durable = true
	r.Fields = map[string]string{"query": "x"}
	var steps []string
	note := func(s string) { steps = append(steps, fmt.Sprintf("%s with %d on record", s, len(rec.Events()))) }
	r.Attach = func(context.Context) error { note("attach"); return nil }
	err := gateway.Handle(context.Background(), c, r, func(context.Context) (gateway.Outcome, error) {
		note("forward")
		return gateway.Outcome{Fields: map[string]string{"status": "200"}}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(steps, ", "); got != "attach with 1 on record, forward with 1 on record" {
		t.Errorf("order: %s", got)
	}
	e := rec.Events()
	if len(e) != 2 {
		t.Fatalf("on record: %+v", e)
	}
	if e[0].Verdict != cofferdam.Allowed || e[0].Rule != "allow-1" || !e[0].Durable || e[0].Fields["query"] != "x" || e[0].Session != c.Session || e[0].Task != c.Task || e[0].Actor != c.Actor || e[0].Scope != c.Scope {
		t.Errorf("decision: %+v", e[0])
	}
	if e[1].Of == nil || *e[1].Of != e[0].Seq || e[1].Outcome != gateway.OK || e[1].Fields["status"] != "200" || !e[1].Durable || e[1].Verdict != "" {
		t.Errorf("outcome: %+v", e[1])
	}
}

func TestHandleRefused(t *testing.T) {
	c, rec, _ := gatewaytest.NewCaller(t, policy.Grant{Allow: gatewaytest.Allow(t, "good.test")})
	err := gateway.Handle(context.Background(), c, request("evil.test"), func(context.Context) (gateway.Outcome, error) {
		t.Error("forwarded")
		return gateway.Outcome{}, nil
	})
	if cofferdam.KindOf(err) != cofferdam.Denied || !strings.Contains(err.Error(), "evil.test") || !strings.Contains(cofferdam.HintOf(err), "good.test") {
		t.Errorf("%v, hint %q", err, cofferdam.HintOf(err))
	}
	d, ok := gateway.DecisionOf(err)
	if !ok || d.Rule != policy.DefaultDeny {
		t.Errorf("decision: %+v", d)
	}
	e := rec.Events()
	if len(e) != 1 || e[0].Verdict != cofferdam.Refused || e[0].Rule != d.Rule || e[0].Reason != d.Reason || c.Counts.Refused.Load() != 1 {
		t.Errorf("on record: %+v, counted %d", e, c.Counts.Refused.Load())
	}
}

func TestHandleOutcomes(t *testing.T) {
	broken := errors.New("broken")
	for _, c := range []struct {
		name    string
		attach  error
		forward func(ctx context.Context, end func()) (gateway.Outcome, error)
		status  string
		fails   bool
	}{
		{"fails", nil, func(context.Context, func()) (gateway.Outcome, error) { return gateway.Outcome{}, broken }, gateway.Failed, true},
		{"says cut", nil, func(context.Context, func()) (gateway.Outcome, error) {
			return gateway.Outcome{Status: gateway.Cut}, nil
		}, gateway.Cut, false},
		{"session ends", nil, func(ctx context.Context, end func()) (gateway.Outcome, error) {
			end()
			<-ctx.Done()
			return gateway.Outcome{}, ctx.Err()
		}, gateway.Cut, true},
		{"cannot attach", broken, func(context.Context, func()) (gateway.Outcome, error) {
			t.Error("forwarded without its credential")
			return gateway.Outcome{}, nil
		}, gateway.Failed, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			caller, rec, end := gatewaytest.NewCaller(t, policy.Grant{Allow: gatewaytest.Allow(t, "good.test")})
			r := request("good.test")
			r.Attach = func(context.Context) error { return c.attach }
			err := gateway.Handle(context.Background(), caller, r, func(ctx context.Context) (gateway.Outcome, error) { return c.forward(ctx, end) })
			if (err != nil) != c.fails {
				t.Errorf("returned %v", err)
			}
			e := rec.Events()
			if len(e) != 2 || e[1].Outcome != c.status || e[1].Of == nil {
				t.Errorf("on record: %+v", e)
			}
		})
	}
}

func TestHandlePanicIsOnRecord(t *testing.T) {
	c, rec, _ := gatewaytest.NewCaller(t, policy.Grant{Allow: gatewaytest.Allow(t, "good.test")})
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic was swallowed")
			}
		}()
		gateway.Handle(context.Background(), c, request("good.test"), func(context.Context) (gateway.Outcome, error) { panic("x") })
	}()
	if e := rec.Events(); len(e) != 2 || e[1].Outcome != gateway.Cut {
		t.Errorf("on record: %+v", e)
	}
}

func TestNoRecordNoPass(t *testing.T) {
	c, rec, _ := gatewaytest.NewCaller(t, policy.Grant{Allow: gatewaytest.Allow(t, "good.test")})
	full := errors.New("disk full at /var/lib/secret/path")
	rec.FailWhen(func(cofferdam.Event) error { return full })
	err := gateway.Handle(context.Background(), c, request("good.test"), func(context.Context) (gateway.Outcome, error) {
		t.Error("forwarded without a record")
		return gateway.Outcome{}, nil
	})
	if cofferdam.KindOf(err) != cofferdam.Unavailable || !errors.Is(err, full) {
		t.Errorf("%v", err)
	}
	if reason, hint := gateway.Explain(err); strings.Contains(reason+hint, "/var/lib") {
		t.Errorf("a box is told about this machine: %s %s", reason, hint)
	}
	// The outcome cannot be recorded: the act happened, and the caller hears of it.
	rec.FailWhen(func(e cofferdam.Event) error {
		if e.Of != nil {
			return full
		}
		return nil
	})
	err = gateway.Handle(context.Background(), c, request("good.test"), func(context.Context) (gateway.Outcome, error) { return gateway.Outcome{}, nil })
	if !errors.Is(err, full) {
		t.Errorf("an outcome that is not on record: %v", err)
	}
}

func TestDeadSessionPassesNothing(t *testing.T) {
	c, rec, end := gatewaytest.NewCaller(t, policy.Grant{Allow: gatewaytest.Allow(t, "good.test")})
	end()
	err := gateway.Handle(context.Background(), c, request("good.test"), func(context.Context) (gateway.Outcome, error) {
		t.Error("forwarded")
		return gateway.Outcome{}, nil
	})
	if cofferdam.KindOf(err) != cofferdam.Unavailable || len(rec.Events()) != 0 {
		t.Errorf("%v; %+v", err, rec.Events())
	}
	if err := gateway.Reject(context.Background(), c, request("good.test"), "x", "y", "z"); cofferdam.KindOf(err) != cofferdam.Unavailable {
		t.Errorf("reject: %v", err)
	}
}

func TestActCeiling(t *testing.T) {
	c, rec, _ := gatewaytest.NewCaller(t, policy.Grant{Allow: gatewaytest.Allow(t, "good.test")})
	c.Counts.Acts.Store(gateway.MaxActs - 1)
	forwarded := 0
	try := func() error {
		return gateway.Handle(context.Background(), c, request("good.test"), func(context.Context) (gateway.Outcome, error) {
			forwarded++
			return gateway.Outcome{}, nil
		})
	}
	if err := try(); err != nil {
		t.Errorf("the last act: %v", err)
	}
	for range 5 {
		if err := try(); cofferdam.KindOf(err) != cofferdam.Exhausted || cofferdam.HintOf(err) == "" {
			t.Errorf("beyond the ceiling: %v", err)
		}
	}
	if err := gateway.Reject(context.Background(), c, request("good.test"), "x", "y", "z"); cofferdam.KindOf(err) != cofferdam.Exhausted {
		t.Errorf("reject beyond the ceiling: %v", err)
	}
	if e := rec.Events(); forwarded != 1 || len(e) != 3 || e[2].Rule != gateway.RuleActs || c.Counts.Refused.Load() != 6 {
		t.Errorf("forwarded %d, counted %d, on record %+v", forwarded, c.Counts.Refused.Load(), e)
	}
}

func TestReject(t *testing.T) {
	c, rec, _ := gatewaytest.NewCaller(t, policy.Grant{Allow: gatewaytest.Allow(t, "good.test")})
	err := gateway.Reject(context.Background(), c, request("good.test"), "host-mismatch", "the bytes disagree", "make them agree")
	if d, ok := gateway.DecisionOf(err); !ok || d.Rule != "host-mismatch" || cofferdam.KindOf(err) != cofferdam.Denied || d.Policy == "" {
		t.Errorf("%v %+v", err, d)
	}
	if e := rec.Events(); len(e) != 1 || e[0].Verdict != cofferdam.Refused || e[0].Reason != "the bytes disagree" {
		t.Errorf("on record: %+v", e)
	}
}

func TestHandleConcurrently(t *testing.T) {
	c, rec, _ := gatewaytest.NewCaller(t, policy.Grant{Allow: gatewaytest.Allow(t, "good.test")})
	var forwarded atomic.Int64
	done := make(chan error)
	for i := range 50 {
		host := cofferdam.Host("good.test")
		if i%2 == 1 {
			host = "evil.test"
		}
		go func() {
			done <- gateway.Handle(context.Background(), c, request(host), func(context.Context) (gateway.Outcome, error) {
				forwarded.Add(1)
				return gateway.Outcome{}, nil
			})
		}()
	}
	for range 50 {
		<-done
	}
	if forwarded.Load() != 25 || len(rec.Events()) != 75 || c.Counts.Refused.Load() != 25 {
		t.Errorf("forwarded %d, on record %d", forwarded.Load(), len(rec.Events()))
	}
}

func TestOwnNamesAgree(t *testing.T) {
	set, err := policy.New(policy.Grant{Repo: "r-1", Model: "m"})
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range []cofferdam.Host{gateway.GitHost, gateway.ModelHost} {
		if d := set.Decide(policy.Query{Action: policy.Resolve, Host: h}); d.Verdict != cofferdam.Allowed {
			t.Errorf("%s: %+v", h, d)
		}
	}
}
