package session

import (
	"strings"
	"testing"
	"time"

	"cofferdam"
	"cofferdam/gateway"
)

// TestWhenAModelIsGone plays calls and asks when waiting is of no use.
func TestWhenAModelIsGone(t *testing.T) {
	at := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	of := uint64(1)
	call := func(after time.Duration, outcome, status string) cofferdam.Event {
		return cofferdam.Event{Kind: cofferdam.EventModelCall, Of: &of, Resource: "work", Outcome: outcome, Time: at.Add(after), Reason: "it said " + status, Fields: map[string]string{"status": status}}
	}
	down := func(n int, step time.Duration) (all []cofferdam.Event) {
		for i := range n {
			all = append(all, call(time.Duration(i)*step, gateway.Failed, "503"))
		}
		return all
	}
	refused := cofferdam.Event{Kind: cofferdam.EventModelCall, Resource: "work", Verdict: cofferdam.Refused, Reason: "no such rule"}
	for name, c := range map[string]struct {
		calls         []cofferdam.Event
		after         time.Duration
		gone, failing bool
		says          string
	}{
		"none":                 {nil, time.Hour, false, false, ""},
		"well":                 {[]cofferdam.Event{call(0, gateway.OK, "200")}, time.Hour, false, false, ""},
		"four in a row":        {down(goneCalls-1, time.Minute), time.Hour, false, true, "it said 503 (failed calls in a row: 4)"},
		"five too fast":        {down(goneCalls, time.Second), goneAfter - time.Second, false, true, ""},
		"five for long enough": {down(goneCalls, time.Second), goneAfter, true, true, "it said 503 (failed calls in a row: 5)"},
		"well in between":      {append(down(goneCalls, time.Second), call(time.Minute, gateway.OK, "200")), time.Hour, false, false, ""},
		"cut by the session":   {append(down(1, time.Second), call(time.Minute, "cut", "")), time.Hour, false, true, ""},
		"a key refused twice":  {[]cofferdam.Event{call(0, gateway.Failed, "401"), call(1, gateway.Failed, "403")}, 1, false, true, "it said 403"},
		"a key refused thrice": {[]cofferdam.Event{call(0, gateway.Failed, "401"), call(1, gateway.Failed, "401"), call(2, gateway.Failed, "401")}, 2, true, true, ""},
		"a key, then an error": {[]cofferdam.Event{call(0, gateway.Failed, "401"), call(1, gateway.Failed, "401"), call(2, gateway.Failed, "503"), call(3, gateway.Failed, "401")}, 3, false, true, ""},
		"refused by policy":    {[]cofferdam.Event{call(0, gateway.OK, "200"), refused}, time.Hour, false, true, "no such rule"},
	} {
		var p provider
		for _, e := range c.calls {
			p.note(e)
		}
		if p.gone(at.Add(c.after)) != c.gone || p.failing() != c.failing || c.says != "" && !strings.Contains(p.sentence(), c.says) {
			t.Errorf("%s: gone %v, failing %v, %q", name, p.gone(at.Add(c.after)), p.failing(), p.sentence())
		}
	}
}
