package analysis

import (
	"fmt"
	"slices"
	"time"

	"cofferdam/policy"
)

// What a project has to show before a wider class is suggested. They are chosen,
// not derived: enough work to see a habit, long enough for it to be seen on more
// than one day. Source: docs/policy.md and docs/SPECIFICATION.md, "Policy".
const (
	PromotionTasks    = 20 // that ended well under the class: landed with a proof, or with nothing to do and every check held
	PromotionDays     = 14 // since the class counts
	PromotionUnproved = 10 // of a hundred tasks, at most, that ended without proof
)

// Standing is what is on record of a project since its class counts.
type Standing struct {
	Class    string
	Since    time.Time
	Version  int64          // that brought the class
	Proved   int            // tasks that ended well
	Unproved int            // that ended otherwise, unless a person cancelled them
	Sessions int            // whose traces were read
	Refused  map[string]int // acts, by the rule that refused
	Beyond   int            // pushes beyond the scope of their task, refused or marked
	Denied   int            // questions to which a person said no
	Allowed  int            // and yes
	Partly   bool           // there is more on record than was read: the newest counts
}

// Promotion says whether a wider class is suggested, and why. It changes nothing.
type Promotion struct {
	Schema    string      `json:"schema"` // cofferdam/policy-promotion/v1
	Class     string      `json:"class,omitempty"`
	Since     time.Time   `json:"since,omitzero"`
	Version   int64       `json:"version,omitempty"`
	Next      string      `json:"next,omitempty"` // the next wider class; "": there is none
	Says      string      `json:"says,omitempty"` // of it
	Suggested bool        `json:"suggested"`
	Reasons   []Reason    `json:"reasons"`
	Refused   []RuleCount `json:"refused"` // the most frequent first
	Partly    bool        `json:"partly,omitempty"`
}

// Reason is one thing that has to hold.
type Reason struct {
	What  string `json:"what"`
	Holds bool   `json:"holds"`
}

// RuleCount is how often a rule refused something.
type RuleCount struct {
	Rule  string `json:"rule"`
	Count int    `json:"count"`
}

// maxRefusedRules bounds what is listed.
const maxRefusedRules = 20

// Promote judges what is on record. What the class itself refuses counts against
// nobody: it is what the next one would ask about or let through, and is listed.
func Promote(s Standing, now time.Time) Promotion {
	p := Promotion{Schema: "cofferdam/policy-promotion/v1", Class: s.Class, Since: s.Since, Version: s.Version, Reasons: []Reason{}, Refused: refused(s), Partly: s.Partly}
	all := policy.Classes()
	at := slices.IndexFunc(all, func(c policy.Class) bool { return c.Name == s.Class })
	if at < 0 || at+1 == len(all) {
		return p // no class, one of another program, or the widest
	}
	p.Next, p.Says = all[at+1].Name, all[at+1].Says
	days := int(now.Sub(s.Since) / (24 * time.Hour))
	ended := s.Proved + s.Unproved
	p.Reasons = []Reason{
		{fmt.Sprintf("%d of at least %d tasks ended with every check held", s.Proved, PromotionTasks), s.Proved >= PromotionTasks},
		{fmt.Sprintf("%d of at least %d days under %s", days, PromotionDays, s.Class), days >= PromotionDays},
		{fmt.Sprintf("%d of %d tasks ended without proof; at most %d in 100 may", s.Unproved, ended, PromotionUnproved), s.Unproved*100 <= PromotionUnproved*ended},
		{fmt.Sprintf("%d pushes beyond the scope of their task; none may be", s.Beyond), s.Beyond == 0},
		{fmt.Sprintf("%d questions were denied by a person and %d allowed; none may be denied", s.Denied, s.Allowed), s.Denied == 0},
	}
	p.Suggested = !slices.ContainsFunc(p.Reasons, func(r Reason) bool { return !r.Holds })
	return p
}

func refused(s Standing) []RuleCount {
	out := []RuleCount{}
	for _, rule := range sorted(s.Refused) {
		out = append(out, RuleCount{rule, s.Refused[rule]})
	}
	slices.SortStableFunc(out, func(a, b RuleCount) int { return b.Count - a.Count })
	return out[:min(len(out), maxRefusedRules)]
}
