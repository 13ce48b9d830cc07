package analysis

import (
	"cmp"
	"fmt"
	"slices"

	"cofferdam/policy"
)

// Change is what one document makes of another, as a person has to see it before
// they agree.
type Change struct {
	Opens     []string `json:"opens"`     // what newly becomes possible
	Closes    []string `json:"closes"`    // what no longer is
	Asks      []string `json:"asks"`      // what a person newly has to answer
	Unbounded []string `json:"unbounded"` // texts whose effect nobody can bound: they are to be read whole
}

// Widens says whether anything may become possible.
func (c Change) Widens() bool { return len(c.Opens)+len(c.Unbounded) > 0 }

// Diff compares two versions of a document. What is only written differently is
// no change. Where it is not sure whether something is possible already, it says
// that it opens.
func Diff(before, after policy.Document) Change {
	var c Change
	for _, r := range after.Rules {
		switch {
		case r.Mode == policy.LogOnly:
		case r.Effect == policy.Limit && !slices.Contains(before.Limits, section(r)): // there was no bound
		case (r.Effect == policy.Allow || r.Effect == policy.Limit) && !covered(r, before, r.Effect):
			c.Opens = append(c.Opens, line(r))
		case r.Effect == policy.Ask && !covered(r, before, policy.Ask):
			if covered(r, before, policy.Allow) {
				c.Asks = append(c.Asks, line(r))
			} else {
				c.Opens = append(c.Opens, line(r)+", if a person allows it")
			}
		case r.Effect == policy.Deny && !covered(r, before, policy.Deny):
			c.Closes = append(c.Closes, line(r))
		}
	}
	for _, r := range before.Rules {
		switch {
		case r.Mode == policy.LogOnly:
		case r.Effect == policy.Deny && !covered(r, after, policy.Deny):
			c.Opens = append(c.Opens, fmt.Sprintf("what %s denied: %s", r.ID, r))
		case r.Effect == policy.Ask && r.People > 1 && covered(r, after, policy.Ask) && !slices.ContainsFunc(after.Rules, func(o policy.Rule) bool {
			return (o.Effect == policy.Ask && o.People >= r.People || o.Effect == policy.Deny) && o.Mode != policy.LogOnly && o.Covers(r)
		}):
			c.Opens = append(c.Opens, fmt.Sprintf("by one person alone: %s", r))
		case r.Effect == policy.Ask && !covered(r, after, policy.Ask) && !covered(r, after, policy.Deny):
			if covered(r, after, policy.Allow) {
				c.Opens = append(c.Opens, fmt.Sprintf("without asking: %s", r))
			} else {
				c.Closes = append(c.Closes, line(r))
			}
		case (r.Effect == policy.Allow || r.Effect == policy.Limit) && !covered(r, after, r.Effect) && !covered(r, after, policy.Ask):
			c.Closes = append(c.Closes, line(r))
		}
	}
	c.sections(before, after)
	if before.Second && !after.Second {
		c.Opens = append(c.Opens, "changes of policy by one person alone")
	}
	if before.Cedar != after.Cedar {
		c.Unbounded = append(c.Unbounded, "Cedar text: "+after.Cedar)
	}
	if after.Mode == policy.LogOnly && (before.Mode != policy.LogOnly || after.Until.After(before.Until)) {
		c.Opens = append(c.Opens, fmt.Sprintf("everything that nothing denies, until %s (log-only)", after.Until.Format("2006-01-02 15:04 UTC")))
	}
	return c
}

// sections notes lists that are gone: without a limit there is no bound, and a
// narrowing document without an allow list narrows nothing.
func (c *Change) sections(before, after policy.Document) {
	for _, s := range before.Limits {
		if !slices.Contains(after.Limits, s) {
			c.Opens = append(c.Opens, fmt.Sprintf("%s: there is no limit any more", s))
		}
	}
	for _, s := range after.Limits {
		if !slices.Contains(before.Limits, s) {
			c.Closes = append(c.Closes, fmt.Sprintf("%s: all that is beyond the new limit", s))
		}
	}
}

func covered(r policy.Rule, by policy.Document, effect policy.Effect) bool {
	return slices.ContainsFunc(by.Rules, func(o policy.Rule) bool {
		return o.Effect == effect && o.Mode != policy.LogOnly && o.Covers(r)
	})
}

func section(r policy.Rule) policy.Section { return cmp.Or(r.Section, policy.Egress) }

// line shows a rule with everything that bounds it.
func line(r policy.Rule) string {
	s := fmt.Sprintf("%s %s: %s", section(r), r.Effect, r)
	if len(r.Methods) > 0 {
		s += fmt.Sprintf(" %v", r.Methods)
	}
	if len(r.Paths) > 0 {
		s += fmt.Sprintf(" %v", r.Paths)
	}
	return s
}
