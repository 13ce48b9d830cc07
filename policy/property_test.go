package policy_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"cofferdam"
	"cofferdam/policy"
	"cofferdam/policy/analysis"
)

// How much each property is tried, from one seed on; long runs try twenty times as
// much. A failure prints the seed of its case, which runs it alone when it is put
// here with one case.
const (
	firstSeed = 1
	cases     = 150 // sets of documents
	asked     = 60  // questions of each
)

// property runs a test for each seed.
func property(t *testing.T, try func(t *testing.T, g generator)) {
	t.Helper()
	last := uint64(firstSeed + cases)
	if os.Getenv("COFFERDAM_SOAK") != "" {
		last = firstSeed + 20*cases
	}
	for seed := uint64(firstSeed); seed < last; seed++ {
		try(t, generator{rand.New(rand.NewPCG(seed, 2))})
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

// restricting are the effects that a layer over or below another one may have: an
// allow of the organisation's gives, and so is left out.
var restricting = []string{"deny", "ask", "limit"}

// A layer that is added, above or below, makes nothing possible that was not: no
// answer is less restrictive, no fewer people are asked, and nothing passes unseen
// that was read.
func TestAddedLayersNeverWiden(t *testing.T) {
	seen := map[string]int{}
	property(t, func(t *testing.T, g generator) {
		project := parsed(t, policy.ProjectName, g.document(policy.ProjectName, g.cedar("project"), "deny", "ask", "allow"))
		org := parsed(t, policy.OrganizationName, g.document(policy.OrganizationName, g.cedar("org"), restricting...))
		below := parsed(t, "repository", g.document("repository", g.cedar("repository"), "deny", "ask", "allow"))
		plain := g.grant(t, policy.Documents{Project: project})
		file, err := policy.ParseProject([]byte("[egress]\nallow = " + lists(g.some(hostEntries, 3)) + "\n"))
		if err != nil {
			t.Fatal(err)
		}
		locked := plain.Under(policy.Documents{Organization: org, Project: project})
		narrowed := locked
		narrowed.Narrowing = []policy.Document{*below}
		filed, err := plain.Narrow(file)
		if err != nil {
			t.Fatal(err)
		}
		for name, pair := range map[string][2]policy.Grant{"organisation": {plain, locked}, "below": {locked, narrowed}, "project file": {plain, filed}} {
			wide, narrow := set(t, pair[0]), set(t, pair[1])
			for range asked {
				q := g.query()
				w, n := wide.Decide(q), narrow.Decide(q)
				seen[fmt.Sprint(w.Verdict, n.Verdict)]++
				if order(n) < order(w) {
					t.Errorf("%s: %+v was %s by %s (%d), and is %s by %s (%d)\n%s\n%s\n%s", name, q, w.Verdict, w.Rule, w.People, n.Verdict, n.Rule, n.People, project.Text, org.Text, below.Text)
				}
				if q.Port != 0 && n.Verdict == cofferdam.Allowed && narrow.Splices(q.Host, q.Port) && !wide.Splices(q.Host, q.Port) {
					t.Errorf("%s: %s:%d was read, and passes unseen", name, q.Host, q.Port)
				}
			}
		}
	})
	for _, v := range []cofferdam.Verdict{cofferdam.Allowed, cofferdam.Asked} {
		if seen[fmt.Sprint(v, cofferdam.Refused)] < 200 || seen[fmt.Sprint(v, v)] < 80 {
			t.Errorf("the questions show too little: %v", seen)
		}
	}
}

// denial is the document that denies what q is about, and how.
func denial(q policy.Query, long bool) string {
	if q.Host == "" {
		for section, list := range map[string][]string{
			"git": {policy.Fetch, policy.Push}, "model": {policy.Call}, "tool": {policy.Invoke}, "secret": {policy.Use}, "exec": {policy.Run},
			"file": {policy.Read, policy.Write}, "port": {policy.Expose}, "box": {policy.Fork, policy.Restore}, "merge": {policy.Land},
		} {
			for _, a := range list {
				if a != q.Action {
					continue
				}
				entry := string(q.Repo) + q.Model + q.Name
				if q.Ref != "" {
					entry = string(q.Ref)
				}
				if len(list) > 1 {
					entry = a + ":" + entry
				}
				return fmt.Sprintf("[%s]\ndeny = [%q]\n", section, entry)
			}
		}
	}
	if long && q.Action == policy.HTTP {
		return fmt.Sprintf("[[egress.rule]]\nid = \"never\"\neffect = \"deny\"\nhosts = [%q]\nmethods = [%q]\n", q.Host, q.Method)
	}
	return fmt.Sprintf("[egress]\ndeny = [%q]\n", q.Host)
}

// A deny of any layer refuses, whatever else any layer and any person says.
func TestADenyBeatsAllElse(t *testing.T) {
	opened := 0
	property(t, func(t *testing.T, g generator) {
		project := parsed(t, policy.ProjectName, g.document(policy.ProjectName, g.cedar("project"), "deny", "ask", "allow"))
		org := parsed(t, policy.OrganizationName, g.document(policy.OrganizationName, g.cedar("org"), "deny", "ask", "allow", "limit"))
		given := g.grant(t, policy.Documents{Project: project, Organization: org})
		open := set(t, given)
		for range asked / 10 {
			q := g.query()
			if open.Decide(q).Verdict != cofferdam.Refused {
				opened++
			}
			for _, layer := range []string{policy.OrganizationName, policy.ProjectName, "below"} {
				with := given
				switch no := parsed(t, "no", denial(q, g.IntN(2) == 0)); layer {
				case policy.OrganizationName:
					with.Organization = joined(*org, *no)
				case policy.ProjectName:
					with.Project = joined(*project, *no)
				default:
					with.Narrowing = []policy.Document{*no}
				}
				if d := set(t, with).Decide(q); d.Verdict != cofferdam.Refused || d.Rule == policy.DefaultDeny {
					t.Errorf("%s denies %+v, and it is %s by %s\n%s\n%s", layer, q, d.Verdict, d.Rule, project.Text, org.Text)
				}
			}
		}
	})
	if opened < 100 {
		t.Errorf("%d questions were let through without the deny: they show too little", opened)
	}
}

// joined is d with the rules of another document as well.
func joined(d, more policy.Document) *policy.Document {
	d.Rules = append(append([]policy.Rule{}, d.Rules...), more.Rules...)
	return &d
}

// changed is a document that is a little different: a rule less, more, or with
// another effect.
func (g generator) changed(d policy.Document, other policy.Document) policy.Document {
	d.Rules = append([]policy.Rule{}, d.Rules...)
	for range 1 + g.IntN(2) {
		if len(d.Rules) == 0 {
			break
		}
		i := g.IntN(len(d.Rules))
		switch g.IntN(4) {
		case 0:
			d.Rules = append(d.Rules[:i], d.Rules[i+1:]...)
		case 1:
			if r := &d.Rules[i]; !r.Splice && r.Mode != policy.LogOnly && r.Effect != policy.Limit {
				r.Effect, r.People = pick(g, []policy.Effect{policy.Deny, policy.Ask, policy.Allow}), 0
			}
		case 2:
			if r := &d.Rules[i]; r.Effect == policy.Deny || r.Effect == policy.Ask {
				r.Mode = pick(g, []policy.Mode{policy.LogOnly, policy.Enforce})
			}
		case 3:
			if len(other.Rules) > 0 {
				r := pick(g, other.Rules)
				r.ID = fmt.Sprintf("more-%d", g.Uint32())
				d.Rules = append(d.Rules, r)
			}
		}
	}
	return d
}

// Whatever a change lets through, asks of fewer people, or no longer reads, its diff
// says that it widens.
func TestDiffMissesNothing(t *testing.T) {
	found, silent := 0, 0
	property(t, func(t *testing.T, g generator) {
		name, other := policy.ProjectName, policy.OrganizationName
		effects := []string{"deny", "ask", "allow", "limit"}
		if g.IntN(2) == 0 {
			name, other = other, name
		}
		cedar := g.cedar("mine") // the same in both: a change of it is shown whole
		before, after := *parsed(t, name, g.document(name, cedar, effects...)), *parsed(t, name, g.document(name, cedar, effects...))
		if g.IntN(4) > 0 {
			after = g.changed(before, after)
		}
		// What another document splices was seen when that one was taken.
		beside := parsed(t, other, strings.ReplaceAll(g.document(other, g.cedar("beside"), effects...), "splice:", ""))
		in := func(d *policy.Document) policy.Documents {
			if name == policy.ProjectName {
				return policy.Documents{Organization: beside, Project: d}
			}
			return policy.Documents{Organization: d, Project: beside}
		}
		given := g.grant(t, policy.Documents{})
		was, is := set(t, given.Under(in(&before))), set(t, given.Under(in(&after)))
		c := analysis.Diff(before, after)
		if !c.Widens() {
			silent++
		}
		for range 2 * asked {
			q := g.query()
			w, n := was.Decide(q), is.Decide(q)
			unseen := q.Port != 0 && n.Verdict != cofferdam.Refused && is.Splices(q.Host, q.Port) && !was.Splices(q.Host, q.Port)
			if order(n) >= order(w) && !unseen {
				continue
			}
			found++
			if !c.Widens() {
				t.Errorf("%+v was %s by %s (%d), is %s by %s (%d), unseen %v, and the diff says %+v\n%+v\n%+v\nbeside:\n%s", q, w.Verdict, w.Rule, w.People, n.Verdict, n.Rule, n.People, unseen, c, before.Rules, after.Rules, beside.Text)
				return
			}
		}
	})
	if found < 150 || silent < cases/20 {
		t.Errorf("%d answers were wider, %d diffs said that nothing is: the changes show too little", found, silent)
	}
}

// The smallest rule that an explanation names allows what was asked, and of all else
// in a sample only what it says itself.
func TestTheSmallestRuleIsEnoughAndNoMore(t *testing.T) {
	named, rules := 0, 0
	property(t, func(t *testing.T, g generator) {
		project := parsed(t, policy.ProjectName, g.document(policy.ProjectName, g.cedar("project"), "deny", "ask", "allow"))
		org := parsed(t, policy.OrganizationName, g.document(policy.OrganizationName, g.cedar("org"), restricting...))
		given := g.grant(t, policy.Documents{Project: project, Organization: org})
		if g.IntN(2) == 0 {
			given.Narrowing = []policy.Document{*parsed(t, "repository", g.document("repository", "", "deny", "allow"))}
		}
		s := set(t, given)
		for range asked / 4 {
			q := g.query()
			e := analysis.Explain(s, q)
			if e.Decision.Verdict != cofferdam.Refused && e.Smallest+e.Rule != "" || e.Next == "" {
				t.Errorf("%+v: %+v", q, e)
			}
			for _, text := range []string{e.Smallest, e.Rule} {
				if text == "" {
					continue
				}
				named++
				with := given
				with.Project = joined(*project, *parsed(t, "smallest", text))
				open := set(t, with)
				if d := open.Decide(q); d.Verdict != cofferdam.Allowed {
					t.Errorf("%+v is %s by %s with\n%s", q, d.Verdict, d.Rule, text)
				}
				if text == e.Rule {
					rules++
				}
				for range asked / 2 {
					o := g.query()
					if d := open.Decide(o); d.Verdict != s.Decide(o).Verdict && !meant(q, o, text == e.Rule) {
						t.Errorf("for %+v, also %+v is %s by %s with\n%s", q, o, d.Verdict, d.Rule, text)
					}
				}
			}
		}
	})
	if named < 200 || rules < 40 {
		t.Errorf("%d rules were named, %d of them of one request: too few", named, rules)
	}
}

// meant says whether a rule for q is about o too: the same name, or the same host,
// and of a rule for one request the same method and the part of its path before
// what can be read in two ways.
func meant(q, o policy.Query, request bool) bool {
	if q.Host == "" {
		return o.Action == q.Action && o.Name == q.Name && o.Repo == q.Repo && o.Ref == q.Ref && o.Model == q.Model
	}
	web := func(p uint16) bool { return p == 80 || p == 443 }
	if o.Host != q.Host || o.Action != policy.Resolve && o.Port != q.Port && !(web(o.Port) && (web(q.Port) || q.Port == 0)) {
		return false
	}
	if !request || o.Action == policy.Resolve || o.Action == policy.Connect && !o.Splice {
		return true
	}
	end := strings.IndexAny(q.Path, `%;\`)
	if end < 0 {
		end = strings.Index(q.Path, "//") + 1
	}
	if end == 0 {
		end = strings.Index(q.Path, "..")
	}
	if end < 0 {
		return o.Method == q.Method && o.Path == q.Path
	}
	return o.Method == q.Method && strings.HasPrefix(o.Path, q.Path[:end])
}

// The same events under the same documents make the same replay, byte for byte.
func TestReplayIsDeterministic(t *testing.T) {
	property(t, func(t *testing.T, g generator) {
		texts := [3]string{g.document(policy.ProjectName, g.cedar("project"), "deny", "ask", "allow"), g.document(policy.OrganizationName, g.cedar("org"), restricting...), g.document("repository", "", "deny", "allow")}
		seed := g.Uint64()
		run := func() (string, cofferdam.Digest) {
			g := generator{rand.New(rand.NewPCG(seed, 3))}
			given := g.grant(t, policy.Documents{Project: parsed(t, policy.ProjectName, texts[0]), Organization: parsed(t, policy.OrganizationName, texts[1])})
			given.Narrowing = []policy.Document{*parsed(t, "repository", texts[2])}
			s := set(t, given)
			var r analysis.Replay
			var all []any
			for i := range asked {
				q := g.query()
				text, err := json.Marshal(q)
				if err != nil {
					t.Fatal(err)
				}
				r.Add([]cofferdam.Event{{Seq: uint64(i), Session: "s-1", Resource: q.Name, Verdict: cofferdam.Allowed, Rule: "was", Fields: map[string]string{cofferdam.FieldQuery: string(text)}}}, s)
				all = append(all, s.Decide(q)) // with what is said to people
				if i%10 == 0 {
					all = append(all, analysis.Explain(s, q))
				}
			}
			out, err := json.Marshal(append(all, r))
			if err != nil {
				t.Fatal(err)
			}
			return string(out), s.Digest()
		}
		one, first := run()
		two, second := run()
		if one != two || first != second {
			t.Errorf("%s\n%s", one, two)
		}
	})
}
