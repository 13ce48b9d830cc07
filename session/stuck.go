package session

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"strings"

	"cofferdam"
)

// When an agent is stuck that tries the same acts again and again while nothing
// but calls of its model passes. Clients try by themselves up to ten times, ours
// in the box among them. Source: docs/SPECIFICATION.md, "Budget".
const (
	warnStuck = 20  // refusals of one act, after which there is a warning
	stopStuck = 500 // after which the agent is ended
	maxStuck  = 16  // different acts; one that tries more of them is not stuck
)

// rut is what an agent is refused while nothing else of it passes, as the log has it.
type rut struct {
	tries  map[string]int // refusals of an act since something passed
	most   int            // of the act that was tried most often
	what   string         // that act, and by what it is refused
	warned bool           // once a session
}

// note learns from one event.
func (r *rut) note(e cofferdam.Event) {
	switch {
	case e.Kind == cofferdam.EventSessionStuck:
		r.warned = true
	case e.Verdict == cofferdam.Refused && e.Rule != cofferdam.RuleBudget:
		r.refused(e)
	case e.Verdict == cofferdam.Allowed && e.Kind != cofferdam.EventModelCall && e.Kind != cofferdam.EventDNS, e.Kind == cofferdam.EventAgentTurn:
		*r = rut{warned: r.warned}
	}
}

func (r *rut) refused(e cofferdam.Event) {
	act := strings.Join([]string{e.Kind, e.Resource, e.Rule}, "\n")
	if _, known := r.tries[act]; r.tries == nil || !known && len(r.tries) >= maxStuck {
		*r = rut{tries: map[string]int{}, warned: r.warned}
	}
	r.tries[act]++
	if n := r.tries[act]; n > r.most {
		r.most, r.what = n, clip(e.Kind+" "+e.Resource, maxStray)+" by the rule "+clip(e.Rule, maxStray)
	}
}

// sentence says what the agent is stuck in.
func (r rut) sentence() string {
	return fmt.Sprintf("it was refused the same %d times while nothing else passed: %s; allow that act to a new task, or tell its agent to do without", r.most, r.what)
}

// stuck puts on record that the agent is stuck, once, and returns the sentence if
// it has to end because of that.
func (d dialogue) stuck(ctx context.Context) (why string) {
	var r rut
	d.ledger.look(func(s *seen) { r = s.rut; r.tries = nil })
	if r.most >= warnStuck && !r.warned {
		err := d.ledger.put(ctx, cofferdam.EventSessionStuck, d.adapter.Name, map[string]string{fieldText: r.sentence(), "times": strconv.Itoa(r.most)})
		if err != nil && ctx.Err() == nil {
			d.o.Log.WarnContext(ctx, "that an agent is stuck is not on record", slog.String("session", string(d.plan.ID)), slog.Any("error", err))
		}
	}
	if r.most < stopStuck {
		return ""
	}
	return r.sentence()
}
