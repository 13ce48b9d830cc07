package session

import (
	"context"
	"log/slog"
	"maps"
	"strconv"
	"strings"
	"time"

	"cofferdam"
	"cofferdam/budget"
	"cofferdam/gateway"
	"cofferdam/sandbox"
)

// spending is the part of a session that is about its budget.
type spending struct{ *attempt }

// meter goes on with the task's budget where its log and its sessions before it
// stand. It warns once of each limit, whatever process or session comes next.
func (a spending) meter(ctx context.Context) *budget.Meter {
	p := a.plan
	spent, told := p.Spent.Spent(), map[string]bool{}
	for _, f := range cofferdam.BudgetFields() {
		if budget.Warns(*f.Of(&spent), *f.Of(&p.Budget)) {
			told[f.Key] = true // a session before this one did
		}
	}
	a.ledger.look(func(s *seen) {
		spent = spent.Plus(s.spent().Spent())
		maps.Copy(told, s.low)
	})
	m := budget.New(p.Budget, spent)
	m.OnWarning(told, func(w budget.Warning) { a.warn(ctx, w) })
	return m
}

// warn puts on record that most of something is used.
func (a spending) warn(ctx context.Context, w budget.Warning) {
	err := a.ledger.put(context.WithoutCancel(ctx), cofferdam.EventBudgetWarn, w.Field.Key, map[string]string{
		"used": strconv.FormatInt(w.Used, 10), "limit": strconv.FormatInt(w.Limit, 10),
		fieldText: "of its " + w.Field.Show(w.Limit) + " the task has used " + w.Field.Show(w.Used),
	})
	if err != nil { // what is spent is on record by itself, or does not happen
		a.o.Log.WarnContext(ctx, "a warning of a budget is not on record", slog.Any("error", err))
	}
}

// watchTime warns when most of the agent's time is used, which nobody reserves: it
// is called now and then while the agent runs.
func (a spending) watchTime(ctx context.Context) {
	limit := a.plan.Budget.Time
	if limit == 0 || a.plan.Phase != gateway.Work {
		return
	}
	used, told := a.plan.Spent.Time, budget.Warns(a.plan.Spent.Time, limit)
	a.ledger.look(func(s *seen) {
		used += s.stopwatch.now(s.waited, s.asked).Milliseconds()
		told = told || s.low[timeKey]
	})
	if !told && budget.Warns(used, limit) {
		for _, f := range cofferdam.BudgetFields() {
			if f.Key == timeKey {
				a.warn(ctx, budget.Warning{Field: f, Used: used, Limit: limit})
			}
		}
	}
}

// timeKey is that of the agent's time among the fields of a budget.
const timeKey = "time"

// timeLeft refuses to start an agent that has no time left.
func (a spending) timeLeft() error {
	if b := a.plan.Budget; b.Time > 0 && a.plan.Phase == gateway.Work && a.plan.Spent.Time >= b.Time {
		return fail(cofferdam.ReasonBudget, "the time of the agent is used up: "+limitText(budget.New(b, budget.Amount{}), timeKey))
	}
	return nil
}

// limited runs a command of our own agent: what is left of the time of tools is
// reserved before it starts, as far as it may run, and what it took is settled.
func (h hands) limited(c sandbox.Command, run func(sandbox.Command) (*ran, error)) (*ran, error) {
	m := h.a.grant.caller.Budget
	x, _ := h.a.ledger.exec(c.ID)
	left, limited := m.Left(func(b *cofferdam.Budget) *int64 { return &b.ToolTime })
	if x.result != nil || !limited { // it has ended, and counts already
		return run(c)
	}
	if left == 0 {
		return nil, fail(cofferdam.ReasonBudget, "the time of tools is used up: "+limitText(m, "tool_time"))
	}
	c.Timeout = min(c.Timeout, time.Duration(left)*time.Millisecond)
	held, err := m.AtMost(budget.Amount{ToolTime: c.Timeout.Milliseconds()})
	if err != nil {
		return nil, failFor(cofferdam.ReasonBudget, err)
	}
	done, err := run(c)
	if err != nil {
		return nil, err // what is reserved stays so: it may still run
	}
	held.Settle(budget.Amount{ToolTime: toolTime(done.Result)})
	return done, nil
}

// toolTime is how long a command took, in milliseconds; one that ran at all took one.
func toolTime(r sandbox.Result) int64 { return max(1, r.Ended.Sub(r.Started).Milliseconds()) }

// isTool says whether a command is one of our own agent.
func isTool(id cofferdam.ExecID) bool { return strings.HasPrefix(string(id), "loop-") }

// limitText tells a limit for people.
func limitText(m *budget.Meter, key string) string {
	limits := m.Limits()
	for _, f := range cofferdam.BudgetFields() {
		if f.Key == key {
			return "the task had " + f.Show(*f.Of(&limits))
		}
	}
	return ""
}

// noteSpent learns from an event what was spent beside models.
func (s *seen) noteSpent(e cofferdam.Event) {
	f := e.Fields
	switch e.Kind {
	case cofferdam.EventBudgetWarn:
		if s.low == nil {
			s.low = map[string]bool{}
		}
		s.low[e.Resource] = true
	case cofferdam.EventRequest, cofferdam.EventConnect:
		switch {
		case e.Of != nil:
			delete(s.calls, *e.Of)
			s.usage.Egress += number(f[cofferdam.FieldEgress])
		case e.Verdict == cofferdam.Allowed && f[cofferdam.FieldEgress] != "":
			s.calls[e.Seq] = cofferdam.Usage{Egress: number(f[cofferdam.FieldEgress])}
		}
	case cofferdam.EventExecEnd:
		if x := s.execs[cofferdam.ExecID(f[fieldExec])]; x != nil && x.result != nil && isTool(cofferdam.ExecID(f[fieldExec])) {
			s.usage.ToolTime += toolTime(*x.result)
		}
	}
	switch {
	case e.Verdict == cofferdam.Asked: // policy's word; whether somebody is asked comes after
		s.usage.Approvals++
	case e.Verdict == cofferdam.Refused && f[gateway.FieldUnasked] != "":
		s.usage.Approvals--
	}
}
