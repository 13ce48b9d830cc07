package analysis

import (
	"encoding/json"
	"strings"

	"cofferdam"
	"cofferdam/policy"
)

// Replay is what a policy makes of old decisions.
type Replay struct {
	Schema  string       `json:"schema"` // cofferdam/policy-replay/v1
	Same    int          `json:"same"`
	Unknown int          `json:"unknown"` // decisions whose question is not on record whole, or that a person or a gateway made
	Changes []Difference `json:"changes"`
	More    int          `json:"more,omitempty"` // changes beyond MaxChanges
}

// MaxChanges bounds what is listed of a replay.
const MaxChanges = 10_000

// Difference is one decision that would be another.
type Difference struct {
	Session  cofferdam.SessionID `json:"session"`
	Seq      uint64              `json:"seq"`
	Resource string              `json:"resource"`
	Was      cofferdam.Verdict   `json:"was"`
	WasRule  string              `json:"was_rule"`
	Now      cofferdam.Verdict   `json:"now"`
	NowRule  string              `json:"now_rule"`
}

// Add judges the events of one page by s. Rules that a gateway applies by itself
// stay as they are.
func (r *Replay) Add(events []cofferdam.Event, s *policy.Set) {
	r.Schema = "cofferdam/policy-replay/v1"
	for _, e := range events {
		if e.Verdict == "" {
			continue
		}
		q, ok := question(e)
		if !ok {
			r.Unknown++
			continue
		}
		d := s.Decide(q)
		switch {
		case d.Verdict == e.Verdict:
			r.Same++
		case len(r.Changes) == MaxChanges:
			r.More++
		default:
			r.Changes = append(r.Changes, Difference{Session: e.Session, Seq: e.Seq, Resource: e.Resource, Was: e.Verdict, WasRule: e.Rule, Now: d.Verdict, NowRule: d.Rule})
		}
	}
}

// question reads what policy was asked from a decision's event.
func question(e cofferdam.Event) (policy.Query, bool) {
	var q policy.Query
	text, ok := e.Fields[cofferdam.FieldQuery]
	if !ok || strings.Contains(text, "[redacted") {
		return q, false
	}
	return q, json.Unmarshal([]byte(text), &q) == nil && q.Action != ""
}
