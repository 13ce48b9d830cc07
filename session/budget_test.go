package session

import (
	"testing"
	"time"

	"cofferdam"
	"cofferdam/budget"
	"cofferdam/gateway"
	"cofferdam/policy"
	"cofferdam/sandbox"
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

// TestWarningsGoOnFromTheLog: what a process before this one, or a session before
// it, has warned of is not told again, and what it spent beside models counts once.
func TestWarningsGoOnFromTheLog(t *testing.T) {
	seq := func(n uint64) *uint64 { return &n }
	type fields = map[string]string
	l := &ledger{}
	l.seen.calls, l.seen.execs = map[uint64]cofferdam.Usage{}, map[cofferdam.ExecID]*execution{}
	start := time.Now()
	ended := encode(sandbox.Result{Started: start, Ended: start.Add(2500 * time.Millisecond)})
	for _, e := range []cofferdam.Event{
		{Seq: 1, Kind: cofferdam.EventRequest, Verdict: cofferdam.Allowed, Fields: fields{cofferdam.FieldEgress: "900"}},
		{Seq: 2, Kind: cofferdam.EventRequest, Of: seq(1), Outcome: gateway.OK, Fields: fields{cofferdam.FieldEgress: "500"}},
		{Seq: 3, Kind: cofferdam.EventRequest, Verdict: cofferdam.Refused, Fields: fields{cofferdam.FieldEgress: "70"}},
		{Seq: 4, Kind: cofferdam.EventBudgetWarn, Resource: "egress"},
		{Seq: 5, Kind: cofferdam.EventConnect, Verdict: cofferdam.Asked, Fields: fields{}},
		{Seq: 6, Kind: cofferdam.EventExecStart, Fields: fields{fieldExec: "loop-1-1"}},
		{Seq: 7, Kind: cofferdam.EventExecEnd, Fields: fields{fieldExec: "loop-1-1", fieldData: ended}},
		{Seq: 8, Kind: cofferdam.EventExecStart, Fields: fields{fieldExec: "agent"}}, // not a tool of ours
		{Seq: 9, Kind: cofferdam.EventExecEnd, Fields: fields{fieldExec: "agent", fieldData: ended}},
		{Seq: 10, Kind: cofferdam.EventRequest, Verdict: cofferdam.Allowed, Fields: fields{cofferdam.FieldEgress: "40"}}, // the process ended here
	} {
		l.seen.note(e)
	}
	got := l.seen.spent()
	if got.Egress != 540 || got.ToolTime != 2500 || got.Approvals != 1 || !l.seen.low["egress"] || l.seen.invalid != nil {
		t.Errorf("the log says %+v, warned of %v, %v", got, l.seen.low, l.seen.invalid)
	}
	var told []string
	m := budget.New(cofferdam.Budget{Egress: 600, ToolTime: 3000, Approvals: 5}, got.Spent())
	m.OnWarning(l.seen.low, func(w budget.Warning) { told = append(told, w.Field.Key) })
	if len(told) != 1 || told[0] != "tool_time" {
		t.Errorf("warned of %v, want tool_time alone", told)
	}
}
