package policy

import (
	"testing"
	"time"

	"cofferdam"
)

// part is one of those that a policy is put together from, with what it can say
// of one host.
type part struct {
	name  string
	gives func(g *Grant) // it alone lets the host pass; nil where a part gives nothing
	ask   func(g *Grant) // a person has to answer
	deny  func(g *Grant) // refuses it, by a rule
	leave func(g *Grant) // has a list, and the host is not on it
	above bool           // what it leaves out no person opens
}

// parts are all there are, and what each may do as docs/policy.md has it.
func parts(t *testing.T) []part {
	given := allow(t, "a.test")
	cedar := func(text string) func(*Grant) { return func(g *Grant) { g.Operator += text } }
	written := func(name, text string, at func(*Grant, Document)) func(*Grant) {
		return func(g *Grant) { at(g, doc(t, name, text)) }
	}
	org := func(g *Grant, d Document) { g.Organization = &d }
	project := func(g *Grant, d Document) { g.Project = &d }
	class := func(g *Grant, d Document) {
		if g.Organization == nil {
			g.Organization = &Document{Name: OrganizationName}
		}
		o := *g.Organization
		o.Base, g.Organization = &d, &o
	}
	narrows := func(g *Grant, d Document) { g.Narrowing = append(g.Narrowing, d) }
	const allow, ask, deny, limit = "[egress]\nallow = [\"a.test\"]\n", "[egress]\nask = [\"a.test\"]\n", "[egress]\ndeny = [\"a.test\"]\n", "[egress]\nlimit = [\"other.test\"]\n"
	return []part{
		{
			name: "operator", gives: cedar(`@id("op-yes") permit (principal, action, resource == Host::"a.test");`),
			ask:  cedar(`@id("op-ask") @effect("ask") permit (principal, action, resource == Host::"a.test");`),
			deny: cedar(`@id("op-no") forbid (principal, action, resource == Host::"a.test");`),
		},
		{
			name: "organisation", gives: written(OrganizationName, allow, org), ask: written(OrganizationName, ask, org), deny: written(OrganizationName, deny, org),
			leave: written(OrganizationName, limit, org), above: true,
		},
		{name: "class", ask: written("careful", ask, class), deny: written("careful", deny, class), leave: written("careful", limit, class), above: true},
		{name: "project", gives: written(ProjectName, allow, project), ask: written(ProjectName, ask, project), deny: written(ProjectName, deny, project)},
		{name: "task", gives: func(g *Grant) { g.Allow = given }},
		{
			name: "scope of the task", ask: written("scope", "[egress]\nask = [\"a.test\"]\nallow = []\n", narrows), deny: written("scope", deny, narrows),
			leave: written("scope", "[egress]\nallow = [\"other.test\"]\n", narrows),
		},
		{
			name: "repository", ask: written("repository", "[egress]\nask = [\"a.test\"]\nallow = []\n", narrows), deny: written("repository", deny, narrows),
			leave: written("repository", "[egress]\nallow = [\"other.test\"]\n", narrows),
		},
	}
}

// Every part that gives is met by every part that asks, denies or leaves out: the
// more restrictive one counts, whichever of the two is above the other.
func TestEveryPartAgainstEveryOther(t *testing.T) {
	q := get(t, "https://a.test/")
	at := time.Unix(1_800_000_000, 0)
	verdict := func(g Grant) cofferdam.Decision {
		t.Helper()
		g.At = at
		s, err := New(g.Under(Documents{g.Organization, g.Project}))
		if err != nil {
			t.Fatal(err)
		}
		return s.Decide(q)
	}
	opened := Opening{Rule: Rule{ID: cofferdam.RuleGiven + "q-1", Pattern: "a.test", Origin: "a.test", Effect: Allow}, Until: at.Add(time.Hour)}
	all := parts(t)
	for _, one := range all {
		if one.gives == nil {
			continue
		}
		var alone Grant
		one.gives(&alone)
		if d := verdict(alone); d.Verdict != cofferdam.Allowed {
			t.Errorf("%s gives: %s by %s", one.name, d.Verdict, d.Rule)
		}
		for _, other := range all {
			for _, c := range []struct {
				how  string
				does func(*Grant)
				want cofferdam.Verdict
				with cofferdam.Verdict // where a person opened it besides
			}{
				{"asks", other.ask, cofferdam.Asked, cofferdam.Allowed},
				{"denies", other.deny, cofferdam.Refused, cofferdam.Refused},
				{"leaves it out", other.leave, cofferdam.Refused, map[bool]cofferdam.Verdict{true: cofferdam.Refused, false: cofferdam.Allowed}[other.above]},
			} {
				if c.does == nil || one.name == other.name && one.name != "operator" { // a layer with itself: TestEffectsOfALayer
					continue
				}
				var g Grant
				one.gives(&g)
				c.does(&g)
				if d := verdict(g); d.Verdict != c.want {
					t.Errorf("%s gives, %s %s: %s by %s, not %s", one.name, other.name, c.how, d.Verdict, d.Rule, c.want)
				}
				g.Openings = []Opening{opened}
				if d := verdict(g); d.Verdict != c.with {
					t.Errorf("%s gives, %s %s, a person opened it: %s by %s, not %s", one.name, other.name, c.how, d.Verdict, d.Rule, c.with)
				}
			}
		}
	}
}

// What only narrows gives nothing: a list of the repository's, of the scope or of a
// class's limit lets no host pass that nobody gave.
func TestWhatNarrowsGivesNothing(t *testing.T) {
	for name, d := range map[string]Document{
		"scope": doc(t, "scope", "[egress]\nallow = [\"a.test\"]\n"), "repository": doc(t, "repository", "[egress]\nallow = [\"a.test\"]\n"),
		"organisation": doc(t, OrganizationName, "[egress]\nlimit = [\"a.test\"]\n"), "project": doc(t, ProjectName, "[egress]\nlimit = [\"a.test\"]\n"),
		"class": doc(t, "careful", "[egress]\nlimit = [\"a.test\"]\n"),
	} {
		var g Grant
		switch name {
		case "organisation":
			g.Organization = &d
		case "project":
			g.Project = &d
		case "class":
			g.Project = &Document{Name: ProjectName, Base: &d}
		default:
			g.Narrowing = []Document{d}
		}
		if got := mustCompile(t, g).Decide(get(t, "https://a.test/")); got.Verdict != cofferdam.Refused || got.Rule != DefaultDeny {
			t.Errorf("%s: %s by %s", name, got.Verdict, got.Rule)
		}
	}
	// A project's limit bounds what a task is given, and takes nothing from what the project gives itself.
	p := doc(t, ProjectName, "[egress]\nallow = [\"a.test\"]\nlimit = [\"b.test\"]\n")
	g := Grant{Allow: allow(t, "b.test", "c.test")}.Under(Documents{Project: &p})
	s := mustCompile(t, g)
	for host, want := range map[string]cofferdam.Verdict{"a.test": cofferdam.Allowed, "b.test": cofferdam.Allowed, "c.test": cofferdam.Refused} {
		if got := s.Decide(get(t, "https://"+host+"/")); got.Verdict != want {
			t.Errorf("%s: %s by %s, not %s", host, got.Verdict, got.Rule, want)
		}
	}
}
