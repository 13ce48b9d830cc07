package session

import (
	"fmt"
	"strings"
	"time"

	"cofferdam"
	"cofferdam/gateway"
)

// When a model counts as gone. Source: docs/SPECIFICATION.md, "Agents". Agents
// try again by themselves, for minutes or for ever.
const (
	goneCalls   = 5               // calls that failed one after the other …
	goneAfter   = 2 * time.Minute // … for so long
	keyRefusals = 3               // calls one after the other whose key was refused; waiting mends none
)

// provider is how the session's calls of its model go, as the log has it.
type provider struct {
	model   string // name of the latest call
	reason  string // why the latest that failed did, as the gateway says it
	denied  string // why the latest was refused by policy; "" if it was not
	keyless string // why policy refused the key of the one that is open; "" if it did not
	failed  int    // calls in a row
	refused int    // of them, because of the key, in a row
	since   time.Time
}

// note learns from a decision about a call, or from its outcome.
func (p *provider) note(e cofferdam.Event) {
	switch {
	case e.Verdict == cofferdam.Refused:
		p.model, p.denied = e.Resource, e.Reason
	case e.Of == nil:
	case e.Outcome == gateway.OK:
		*p = provider{}
	case e.Outcome == gateway.Failed: // else it was cut, by the end of the session or its budget
		p.model, p.reason, p.denied, p.keyless = e.Resource, e.Reason, p.keyless, ""
		if p.failed++; p.failed == 1 {
			p.since = e.Time
		}
		p.refused++
		if status := e.Fields["status"]; status != "401" && status != "403" {
			p.refused = 0
		}
	}
}

// noteSecret learns from a decision about a model's key. The call that it was for
// was let through and fails of it.
func (p *provider) noteSecret(e cofferdam.Event) {
	if e.Verdict == cofferdam.Refused && strings.HasPrefix(e.Resource, gateway.ModelSecret) {
		p.keyless = e.Reason
	}
}

// failing says whether the latest call failed or was refused.
func (p provider) failing() bool { return p.failed > 0 || p.denied != "" }

// gone says whether waiting longer is of no use.
func (p provider) gone(now time.Time) bool {
	return p.refused >= keyRefusals || p.failed >= goneCalls && now.Sub(p.since) >= goneAfter
}

// sentence says what is wrong, and with which model.
func (p provider) sentence() string {
	why, failed := p.denied, ""
	if why == "" {
		why, failed = p.reason, fmt.Sprintf(" (failed calls in a row: %d)", p.failed)
	}
	if why == "" {
		why = "the provider does not answer"
	}
	if name := "model " + p.model; !strings.Contains(why, name) {
		why = name + ": " + strings.TrimPrefix(why, "model provider: ")
	}
	return clip(why, 300) + failed
}
