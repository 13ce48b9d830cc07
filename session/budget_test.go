package session

import (
	"testing"

	"cofferdam"
	"cofferdam/budget"
	"cofferdam/gateway"
	"cofferdam/policy"
)

// TestBudgetGoesOnFromTheLog: what an earlier process spent counts, and so does
// what it had reserved for a call whose end nobody saw; what other attempts
// spent comes with the plan.
func TestBudgetGoesOnFromTheLog(t *testing.T) {
	seq := func(n uint64) *uint64 { return &n }
	l := &ledger{}
	l.seen.calls = map[uint64]cofferdam.Usage{}
	type fields = map[string]string
	for _, e := range []cofferdam.Event{
		{Seq: 1, Verdict: cofferdam.Allowed, Fields: fields{cofferdam.FieldReservedTokens: "500", cofferdam.FieldReservedCost: "70"}},
		{Seq: 2, Of: seq(1), Outcome: gateway.OK, Fields: fields{cofferdam.FieldInputTokens: "100", cofferdam.FieldOutputTokens: "20", cofferdam.FieldCost: "30"}},
		{Seq: 3, Verdict: cofferdam.Allowed, Fields: fields{cofferdam.FieldReservedTokens: "500", cofferdam.FieldReservedCost: "70"}}, // the process ended here
		{Seq: 4, Verdict: cofferdam.Allowed, Fields: fields{cofferdam.FieldReservedTokens: "500", cofferdam.FieldReservedCost: "70"}},
		{Seq: 5, Of: seq(4), Outcome: gateway.Failed, Fields: fields{}}, // never sent
		{Seq: 6, Verdict: cofferdam.Allowed, Fields: fields{}},          // a list of models
		{Seq: 7, Of: seq(6), Outcome: gateway.OK, Fields: fields{}},
		{Seq: 8, Verdict: cofferdam.Allowed, Fields: fields{cofferdam.FieldReservedTokens: "9", cofferdam.FieldReservedCost: "0"}},
		{Seq: 9, Of: seq(8), Outcome: gateway.OK, Fields: fields{cofferdam.FieldInputTokens: "3", cofferdam.FieldOutputTokens: "4", cofferdam.FieldUnpriced: "true"}},
	} {
		e.Kind = cofferdam.EventModelCall
		l.seen.note(e)
	}
	want := cofferdam.Usage{InputTokens: 603, OutputTokens: 24, ModelCalls: 3, Cost: 100, Unpriced: 1}
	if got := l.seen.spent(); got != want {
		t.Errorf("the log says %+v, want %+v", got, want)
	}
	a := &attempt{Runner: &Runner{ruled: map[cofferdam.SessionID][]ruled{}}, ledger: l, plan: Plan{
		Budget: cofferdam.Budget{Tokens: 5000}, Spent: cofferdam.Usage{InputTokens: 1000, OutputTokens: 200, ModelCalls: 7, Cost: 11},
	}}
	c, err := a.caller(t.Context(), func(policy.Documents) (policy.Grant, error) { return policy.Grant{}, nil }, gateway.Work)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := c.Budget.Taken(), (budget.Amount{Tokens: 1827, Calls: 10, Cost: 111}); got != want || c.Budget.Limits() != a.plan.Budget {
		t.Errorf("the budget goes on at %+v of %+v, want %+v", got, c.Budget.Limits(), want)
	}
}

// TestLimitThatWasMetIsTheReason: by a refusal, or by a cut, and by no other.
func TestLimitThatWasMetIsTheReason(t *testing.T) {
	seq := uint64(1)
	for name, c := range map[string]struct {
		e    cofferdam.Event
		want string
	}{
		"budget":   {cofferdam.Event{Verdict: cofferdam.Refused, Rule: cofferdam.RuleBudget, Reason: "used up"}, "used up"},
		"unpriced": {cofferdam.Event{Verdict: cofferdam.Refused, Rule: cofferdam.RuleUnpriced, Reason: "no price"}, "no price"},
		"cut":      {cofferdam.Event{Of: &seq, Outcome: gateway.Cut, Reason: "in the middle", Fields: map[string]string{cofferdam.FieldCutBy: cofferdam.RuleBudget}}, "in the middle"},
		"policy":   {cofferdam.Event{Verdict: cofferdam.Refused, Rule: "default-deny", Reason: "no"}, ""},
		"the box":  {cofferdam.Event{Of: &seq, Outcome: gateway.Cut, Reason: "it went away"}, ""},
	} {
		l := &ledger{}
		l.seen.calls = map[uint64]cofferdam.Usage{}
		c.e.Kind = cofferdam.EventModelCall
		l.seen.note(c.e)
		if got := l.overBudget(); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
