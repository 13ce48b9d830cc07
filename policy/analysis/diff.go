package analysis

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"cofferdam"
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
		if r.Mode != policy.LogOnly {
			c.added(r, before)
		}
	}
	for _, r := range before.Rules {
		if r.Mode != policy.LogOnly {
			c.gone(r, after)
		}
	}
	c.unseen(before, after)
	c.sections(before, after)
	c.class(before, after)
	c.budget(before, after)
	if before.Second && !after.Second {
		c.Opens = append(c.Opens, "changes of policy by one person alone")
	}
	c.cedar(before.Cedar, after.Cedar)
	if after.Mode == policy.LogOnly && (before.Mode != policy.LogOnly || after.Until.After(before.Until)) {
		c.Opens = append(c.Opens, fmt.Sprintf("everything that nothing denies, until %s (log-only)", after.Until.Format("2006-01-02 15:04 UTC")))
	}
	return c
}

// added notes what a rule changes that was not there before.
func (c *Change) added(r policy.Rule, before policy.Document) {
	switch {
	case r.Effect == policy.Limit && !slices.Contains(before.Limits, section(r)): // there was no bound
	case (r.Effect == policy.Allow || r.Effect == policy.Limit) && !covered(r, before, r.Effect):
		c.Opens = append(c.Opens, line(r))
	case r.Effect == policy.Ask && !covered(r, before, policy.Ask):
		if possible(r, before) {
			c.Asks = append(c.Asks, line(r))
		} else {
			c.Opens = append(c.Opens, line(r)+", if a person allows it")
		}
	case r.Effect == policy.Deny && !covered(r, before, policy.Deny):
		c.Closes = append(c.Closes, line(r))
	}
}

// possible says whether all that r asks about passed unasked before, so that
// asking opens nothing. An ask of some requests also asks about bytes that nobody
// sees; an allow of some requests does not let them pass.
func possible(r policy.Rule, before policy.Document) bool {
	all := func(o policy.Rule) bool {
		return (o.Effect == policy.Allow || o.Effect == policy.Limit && before.Name == policy.OrganizationName) && len(o.Methods)+len(o.Paths) == 0 && o.Covers(r)
	}
	if before.Name == policy.OrganizationName && !slices.Contains(before.Limits, section(r)) {
		return true // it gives nothing, and keeps nothing from being given
	}
	return slices.ContainsFunc(before.Rules, all)
}

// gone notes what changes because a rule is not there any more.
func (c *Change) gone(r policy.Rule, after policy.Document) {
	switch {
	case r.Effect == policy.Deny && !covered(r, after, policy.Deny):
		c.Opens = append(c.Opens, fmt.Sprintf("what %s denied: %s", r.ID, r))
	case r.Effect == policy.Ask && !covered(r, after, policy.Ask) && !covered(r, after, policy.Deny):
		// Nothing else may allow it in this document; what a task is given may.
		if !covered(r, after, policy.Allow) {
			c.Closes = append(c.Closes, line(r))
		}
		c.Opens = append(c.Opens, fmt.Sprintf("without asking: %s", r))
	case r.Effect == policy.Ask && r.People > 1 && !slices.ContainsFunc(after.Rules, func(o policy.Rule) bool {
		return (o.Effect == policy.Ask && o.People >= r.People || o.Effect == policy.Deny) && o.Mode != policy.LogOnly && o.Covers(r)
	}):
		c.Opens = append(c.Opens, fmt.Sprintf("by one person alone: %s", r))
	case (r.Effect == policy.Allow || r.Effect == policy.Limit) && !covered(r, after, r.Effect) && !covered(r, after, policy.Ask):
		c.Closes = append(c.Closes, line(r))
	}
}

// unseen notes hosts that were read because of a closer rule, and that a splice of
// the same document lets pass now that it is gone. What another document splices
// was shown when that one was taken.
func (c *Change) unseen(before, after policy.Document) {
	for _, s := range after.Rules {
		if s.Effect != policy.Allow || !s.Splice {
			continue
		}
		for _, r := range before.Rules {
			still := func(o policy.Rule) bool {
				return o.Effect == policy.Allow && !o.Splice && o.Pattern == r.Pattern && (o.Port == r.Port || o.Port == 0 && policy.WebPort(r.Port))
			}
			wide := s
			wide.Port, wide.Methods, wide.Paths = r.Port, r.Methods, r.Paths
			if section(r) == policy.Egress && r.Effect == policy.Allow && !r.Splice && wide.Covers(r) && !slices.ContainsFunc(after.Rules, still) {
				c.Opens = append(c.Opens, fmt.Sprintf("unseen, by %s: %s", s, r))
			}
		}
	}
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

// budget notes what a task may newly ask for, or no longer.
func (c *Change) budget(before, after policy.Document) {
	for _, f := range cofferdam.BudgetFields() {
		was, is := *f.Of(&before.Budget), *f.Of(&after.Budget)
		switch {
		case was == is:
		case is == 0:
			c.Opens = append(c.Opens, fmt.Sprintf("a task may ask for more than %s: there is no limit any more", f.Show(was)))
		case was == 0:
			c.Closes = append(c.Closes, fmt.Sprintf("a task may ask for at most %s", f.Show(is)))
		case is > was:
			c.Opens = append(c.Opens, fmt.Sprintf("a task may ask for up to %s, until now %s", f.Show(is), f.Show(was)))
		default:
			c.Closes = append(c.Closes, fmt.Sprintf("a task may ask for at most %s, until now %s", f.Show(is), f.Show(was)))
		}
	}
}

// class notes another class. Those of this program are ordered, each by a test; of
// one that it does not have, the text is shown.
func (c *Change) class(before, after policy.Document) {
	rank := func(d policy.Document) int {
		if d.Class() == "" {
			return len(policy.Classes())
		}
		return slices.IndexFunc(policy.Classes(), func(k policy.Class) bool { return k.Name == d.Class() })
	}
	switch {
	case before.Class() == after.Class() && (before.Base == nil || before.Base.Text == after.Base.Text):
	case before.Class() == "" && !after.Ships(): // it may be called as one that ships, and leave nothing out
		c.Unbounded = append(c.Unbounded, fmt.Sprintf("class %s, which is not as this program has it: %s", after.Class(), after.Base.Text))
	case before.Class() == "":
		c.Closes = append(c.Closes, fmt.Sprintf("what its class %s leaves out: %s", after.Class(), after.Says()))
	case after.Class() == "":
		c.Opens = append(c.Opens, fmt.Sprintf("what its class %s left out: %s", before.Class(), before.Says()))
	case !before.Ships() || !after.Ships():
		c.Unbounded = append(c.Unbounded, fmt.Sprintf("class %s in place of %s, of which one is that of another program: %s", after.Class(), before.Class(), after.Base.Text))
	case rank(before) < rank(after):
		c.Opens = append(c.Opens, fmt.Sprintf("what class %s leaves out and class %s does not: %s", before.Class(), after.Class(), after.Says()))
	default:
		c.Closes = append(c.Closes, fmt.Sprintf("what class %s lets through and class %s does not: %s", before.Class(), after.Class(), after.Says()))
	}
}

// cedar notes a change of Cedar text: all of the new one, and the lines that it
// lacks, since a forbid that is gone is nowhere to be seen in it.
func (c *Change) cedar(before, after string) {
	if before == after {
		return
	}
	if strings.TrimSpace(after) != "" {
		c.Unbounded = append(c.Unbounded, "Cedar text: "+after)
	}
	kept := map[string]bool{}
	for l := range strings.Lines(after) {
		kept[strings.TrimSpace(l)] = true
	}
	var gone strings.Builder
	for l := range strings.Lines(before) {
		if !kept[strings.TrimSpace(l)] {
			gone.WriteString(l)
		}
	}
	if strings.TrimSpace(gone.String()) != "" {
		c.Unbounded = append(c.Unbounded, "Cedar text that is gone: "+gone.String())
	}
}

func covered(r policy.Rule, by policy.Document, effect policy.Effect) bool {
	for i := range by.Rules {
		if o := &by.Rules[i]; o.Effect == effect && o.Mode != policy.LogOnly && mayCover(o, &r) && o.Covers(r) {
			return true
		}
	}
	return false
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
