package sandbox

import (
	"slices"
	"strings"
)

// Levels of a Finding.
const (
	OK   = "ok"
	Warn = "warn"
	Fail = "fail"
)

// Survey is what a host has for one tier: what its driver could do, and whether
// it can.
type Survey struct {
	Offer
	Usable   bool      `json:"usable"`
	Findings []Finding `json:"findings"`
}

// NewSurvey judges a tier by what was found. A tier that nothing was looked at
// for is not usable.
func NewSurvey(o Offer, findings []Finding) Survey {
	s := Survey{Offer: o, Findings: slices.Clone(findings)}
	for i := range s.Findings {
		s.Findings[i].Detail = strings.ReplaceAll(s.Findings[i].Detail, "\n", "; ") // each is one line
	}
	s.Usable = len(findings) > 0 && !slices.ContainsFunc(findings, func(f Finding) bool { return f.Level == Fail })
	return s
}

// Missing is the first finding that forbids a box, if any.
func (s Survey) Missing() (Finding, bool) {
	i := slices.IndexFunc(s.Findings, func(f Finding) bool { return f.Level == Fail })
	if i < 0 {
		return Finding{}, false
	}
	return s.Findings[i], true
}
