package session

import (
	"time"

	"cofferdam"
	"cofferdam/gateway"
)

// stopwatch is for how long the agent of a session ran, as the log has it: also of a
// turn that nobody saw end, because its box was lost, up to when the host last saw
// it do something. It stands still while the agent waits for a person.
type stopwatch struct {
	ran    time.Duration // what has ended
	began  time.Time     // of what has not; zero for none
	active time.Time     // when it was last seen to do something
	before time.Duration // that it had waited when that began
}

// note learns from one event. waited is how long the agent has waited for people
// by then.
func (w *stopwatch) note(e cofferdam.Event, waited time.Duration) {
	switch e.Kind {
	case cofferdam.EventAgentTurn: // also where a brain or a reader tells of its conversation
		if w.began.IsZero() {
			w.began, w.before = e.Time, waited
		}
		w.active = e.Time
	case cofferdam.EventAgentEnd: // of a brain, whose turns are not told
		w.active = e.Time
		w.ran, w.began = w.ran+w.open(waited), time.Time{}
	case cofferdam.EventAgentMessage, cofferdam.EventAgentTool, cofferdam.EventAgentFile, cofferdam.EventAgentCost, cofferdam.EventExecOutput, cofferdam.EventExecEnd:
		w.active = e.Time
	default:
		if e.Verdict != "" || e.Of != nil && e.Outcome != gateway.Cut {
			w.active = e.Time
		}
	}
}

// lap takes in how long a turn took.
func (w *stopwatch) lap(took time.Duration) {
	w.ran, w.began = w.ran+took, time.Time{}
}

// open is how long what has not ended has run.
func (w *stopwatch) open(waited time.Duration) time.Duration {
	if w.began.IsZero() {
		return 0
	}
	return max(0, w.active.Sub(w.began)-(waited-w.before))
}

// now is how long the agent has run by now, asleep while it waits for a person.
func (w *stopwatch) now(waited time.Duration, waits bool) time.Duration {
	if w.began.IsZero() || waits {
		return w.ran + w.open(waited)
	}
	return w.ran + max(0, time.Since(w.began)-(waited-w.before))
}
