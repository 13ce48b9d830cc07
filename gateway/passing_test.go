package gateway_test

import (
	"context"
	"testing"
	"time"

	"cofferdam"
	"cofferdam/gateway"
	"cofferdam/policy"
)

// begin starts an act that goes on until its context ends or finish is closed, and
// returns once it is under way.
func begin(t *testing.T, c *gateway.Caller, host cofferdam.Host) (finish chan struct{}, over chan bool) {
	t.Helper()
	began := make(chan struct{})
	finish, over = make(chan struct{}), make(chan bool, 1)
	go func() {
		cut := false
		err := gateway.Handle(t.Context(), c, request(host), func(ctx context.Context) (gateway.Outcome, error) {
			close(began)
			select {
			case <-ctx.Done():
				cut = true
			case <-finish:
			}
			return gateway.Outcome{}, nil
		})
		if err != nil {
			t.Errorf("%s: %v", host, err)
		}
		over <- cut
	}()
	<-began
	return finish, over
}

func parse(t *testing.T, text string) *policy.Document {
	t.Helper()
	d, err := policy.ParseDocument("project", []byte(text), nil)
	if err != nil {
		t.Fatal(err)
	}
	return &d
}

// A stream that began while it was allowed ends when a policy is taken that refuses
// it; one beside it goes on.
func TestAPolicyEndsWhatIsUnderWay(t *testing.T) {
	c, rec, _ := asking(t, "[egress]\nallow = [\"kept.test\", \"gone.test\"]\nask = [\"asked.test\"]\n")
	kept, keptOver := begin(t, c, "kept.test")
	asked, askedOver := begin(t, c, "asked.test") // a person allows it, once
	_, goneOver := begin(t, c, "gone.test")
	if err := c.Policy.Replace(policy.Grant{Project: parse(t, "[egress]\nallow = [\"kept.test\"]\nask = [\"asked.test\"]\n")}); err != nil {
		t.Fatal(err)
	}
	if !<-goneOver {
		t.Error("what is refused now went on to its end")
	}
	close(kept)
	close(asked)
	if <-keptOver || <-askedOver {
		t.Error("what is allowed still was cut")
	}
	_, shutOver := begin(t, c, "kept.test")
	if err := c.Policy.Shut(); err != nil {
		t.Fatal(err)
	}
	if !<-shutOver {
		t.Error("it went on although nothing may pass")
	}
	cut := 0
	for _, e := range rec.Events() {
		if e.Outcome == gateway.Cut && e.Reason == "policy refuses it since then" {
			cut++
		}
	}
	if cut != 2 {
		t.Errorf("on record as cut: %d\n%s", cut, verdicts(rec))
	}
}

// What began by an opening ends with its time, whether or not anything else
// happens; one that took the last use of an opening goes on until then.
func TestAnOpeningEndsWhatIsUnderWay(t *testing.T) {
	c, _, d := asking(t, askAsked)
	d.bounds = &cofferdam.Bounds{Entry: "new.test", Seconds: 1}
	pass := func(context.Context) (gateway.Outcome, error) { return gateway.Outcome{}, nil }
	if err := gateway.Handle(t.Context(), c, request("asked.test"), pass); err != nil {
		t.Fatal(err)
	}
	until := c.Policy.Set().Expires()
	_, over := begin(t, c, "new.test")
	if cut := <-over; !cut || time.Now().Before(until) {
		t.Errorf("cut %v, %s before the end of its time", cut, time.Until(until))
	}

	c, _, d = asking(t, askAsked)
	d.bounds = &cofferdam.Bounds{Entry: "new.test", Seconds: 3600, Uses: 1}
	if err := gateway.Handle(t.Context(), c, request("asked.test"), pass); err != nil {
		t.Fatal(err)
	}
	last, lastOver := begin(t, c, "new.test")
	if err := gateway.Handle(t.Context(), c, request("new.test"), pass); cofferdam.KindOf(err) != cofferdam.Denied {
		t.Errorf("beyond its uses: %v", err)
	}
	if err := c.Policy.Replace(policy.Grant{Project: parse(t, askAsked)}); err != nil {
		t.Fatal(err)
	}
	close(last)
	if <-lastOver {
		t.Error("the last act of an opening was cut when its uses were taken")
	}
	_, denied := begin(t, c, "asked.test")
	if err := c.Policy.Replace(policy.Grant{Project: parse(t, "[egress]\ndeny = [\"asked.test\"]\n")}); err != nil {
		t.Fatal(err)
	}
	if !<-denied {
		t.Error("what is denied now went on")
	}
}
