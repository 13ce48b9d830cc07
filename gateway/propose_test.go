package gateway_test

import (
	"context"
	"strings"
	"testing"

	"cofferdam"
	"cofferdam/gateway"
	"cofferdam/policy"
)

// proposal is one to open a host, within bounds.
func proposal(t *testing.T, host string) gateway.Request {
	t.Helper()
	rule, err := policy.ParseOpening(policy.HTTP, host)
	if err != nil {
		t.Fatal(err)
	}
	r := request(cofferdam.Host(rule.Pattern))
	r.Kind, r.Query.Port = cofferdam.EventProposal, 443
	r.Proposes = &gateway.Proposal{Rule: rule, Bounds: cofferdam.Bounds{Entry: host, Seconds: 60, Uses: 2, Bytes: 1000}}
	return r
}

// TestAProposalIsAQuestion: a proposal opens nothing by itself; a person is shown
// its bounds, and what they allow is open for as many acts as it says.
func TestAProposalIsAQuestion(t *testing.T) {
	c, rec, d := asking(t, "")
	r := proposal(t, "new.test")
	d.bounds = &cofferdam.Bounds{Entry: "new.test", Seconds: 60, Uses: 1, Bytes: 500}
	if err := gateway.Handle(t.Context(), c, r, passing); err != nil {
		t.Fatal(err)
	}
	q := d.asked[0]
	if q.Proposed == nil || *q.Proposed != r.Proposes.Bounds || q.Rule != gateway.RuleProposal || q.Needs != 1 {
		t.Errorf("%+v", q)
	}
	if o := r.Proposes.Opened; o.Uses != 1 || o.Bytes != 500 || o.Pattern != "new.test" {
		t.Errorf("opened: %+v", o)
	}
	if got := verdicts(rec); got != "asked:proposal allowed:given.q-1 ok:" {
		t.Errorf("on record: %s", got)
	}
	for i, want := range []bool{true, false} { // to have been allowed took none of the acts
		r := request("new.test")
		r.Carries = &gateway.Allowance{Ahead: 10}
		if err := gateway.Handle(t.Context(), c, r, passing); (err == nil) != want {
			t.Errorf("act %d: %v", i+1, err)
		}
	}
}

// TestProposalsThatNobodyIsAsked: what is denied, limited or open already is refused
// at once, and nobody is asked.
func TestProposalsThatNobodyIsAsked(t *testing.T) {
	c, rec, d := asking(t, "[egress]\nallow = [\"have.test\"]\ndeny = [\"never.test\"]\nlimit = [\"*.acme.test\", \"have.test\"]\n")
	for host, reason := range map[string]string{"never.test": "lets a task have", "stranger.test": "lets a task have", "have.test": "allowed already"} {
		err := gateway.Handle(t.Context(), c, proposal(t, host), passing)
		if cofferdam.KindOf(err) != cofferdam.Denied || !strings.Contains(err.Error(), reason) {
			t.Errorf("%s: %v", host, err)
		}
	}
	c2, _, d2 := asking(t, "[egress]\ndeny = [\"never.test\"]\n")
	if err := gateway.Handle(t.Context(), c2, proposal(t, "never.test"), passing); cofferdam.KindOf(err) != cofferdam.Denied || !strings.Contains(err.Error(), "project.egress.deny-1") {
		t.Errorf("denied: %v", err)
	}
	if len(d.asked)+len(d2.asked) != 0 || len(rec.Events()) != 3 {
		t.Errorf("%d were asked; %s", len(d.asked)+len(d2.asked), verdicts(rec))
	}
	if err := gateway.Handle(t.Context(), c, proposal(t, "a.acme.test"), passing); err == nil || len(d.asked) != 1 { // control: it is asked, and opens nothing without bounds
		t.Errorf("within the limit: %v, %d asked", err, len(d.asked))
	}
}

// TestARuleOverProposals: a deny that comes while a person looks counts, and what
// wants two people wants two for a proposal too.
func TestARuleOverProposals(t *testing.T) {
	c, _, d := asking(t, "[[egress.rule]]\nid = \"two\"\neffect = \"ask\"\nhosts = [\"two.test\"]\npeople = 2\n")
	d.bounds = &cofferdam.Bounds{Entry: "two.test", Seconds: 60, Uses: 1, Bytes: 500}
	_ = gateway.Handle(t.Context(), c, proposal(t, "two.test"), passing)
	if len(d.asked) != 1 || d.asked[0].Needs != 2 {
		t.Errorf("%+v", d.asked)
	}
	no, err := policy.ParseDocument("project", []byte("[egress]\ndeny = [\"new.test\"]\n"), nil)
	if err != nil {
		t.Fatal(err)
	}
	d.bounds = &cofferdam.Bounds{Entry: "new.test", Seconds: 60, Uses: 1, Bytes: 500}
	d.answer = func(cofferdam.Question) error { return c.Policy.Replace(policy.Grant{Project: &no}) }
	if err := gateway.Handle(t.Context(), c, proposal(t, "new.test"), passing); cofferdam.KindOf(err) != cofferdam.Denied {
		t.Errorf("a deny came while it was asked: %v", err)
	}
}

// TestARefusalSaysHowToAsk: where a person could open what was refused, one line
// says how an agent asks; nowhere else.
func TestARefusalSaysHowToAsk(t *testing.T) {
	c, _, _ := asking(t, "[egress]\ndeny = [\"never.test\"]\n")
	hint := func(host cofferdam.Host) string {
		return cofferdam.HintOf(gateway.Handle(t.Context(), c, request(host), func(context.Context) (gateway.Outcome, error) { return gateway.Outcome{}, nil }))
	}
	if h := hint("new.test"); !strings.Contains(h, `curl -d '{"entry":"new.test","why":"..."}' http://policy.cofferdam.internal/`) || strings.Contains(h, "\n") {
		t.Errorf("%q", h)
	}
	if h := hint("never.test"); strings.Contains(h, "curl") {
		t.Errorf("denied: %q", h)
	}
	c.Ask = nil
	if h := hint("new.test"); strings.Contains(h, "curl") {
		t.Errorf("nobody to ask: %q", h)
	}
}
