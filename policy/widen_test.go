package policy

import (
	"strings"
	"testing"
	"time"

	"cofferdam"
)

// Each of these was a way by which something lower opened what something higher
// had closed. The control says that the way itself works, and the twin what it
// leaves alone.
func TestNothingBelowOpensWhatIsClosedAbove(t *testing.T) {
	at := time.Now()
	given := func(entry string, people int) []Opening {
		r, err := ParseOpening(HTTP, entry)
		if err != nil {
			t.Fatal(err)
		}
		r.ID = "given.a-1"
		return []Opening{{Rule: r, Until: at.Add(time.Hour), People: people}}
	}
	two := "[[egress.rule]]\nid = \"two\"\neffect = \"ask\"\nhosts = [\"a.test\"]\npeople = 2\n"
	spliced := Query{Action: Connect, Host: "a.test", Port: 443, Splice: true}
	own := get(t, "https://a.test/x")
	own.Credential = true
	for _, c := range []struct {
		name         string
		organization string
		project      string
		given        []Opening
		q            Query
		want         cofferdam.Verdict
	}{
		{"control: an opening", "", "", given("a.test", 1), get(t, "https://a.test/"), cofferdam.Allowed},
		{"one person opens what two have to allow", "", two, given("a.test", 1), get(t, "https://a.test/"), cofferdam.Asked},
		{"so do two", "", two, given("a.test", 2), get(t, "https://a.test/"), cofferdam.Allowed},
		{"what nothing allows and the organisation asks two people about", two, "", given("a.test", 1), get(t, "https://a.test/"), cofferdam.Refused},
		{"by two people", two, "", given("a.test", 2), get(t, "https://a.test/"), cofferdam.Allowed},
		{"an opening beyond a later limit of the project", "", "[egress]\nlimit = [\"b.test\"]\n", given("a.test", 1), get(t, "https://a.test/"), cofferdam.Refused},
		{"within it", "", "[egress]\nlimit = [\"a.test\"]\n", given("a.test", 1), get(t, "https://a.test/"), cofferdam.Allowed},
		{"control: a splice", "", "[egress]\nallow = [\"splice:a.test\"]\n", nil, spliced, cofferdam.Allowed},
		{"a splice beyond a later limit that lets it be read", "[egress]\nlimit = [\"a.test\"]\n", "[egress]\nallow = [\"splice:a.test\"]\n", nil, spliced, cofferdam.Refused},
		{"within one that lets it pass unseen", "[egress]\nlimit = [\"splice:a.test\"]\n", "[egress]\nallow = [\"splice:a.test\"]\n", nil, spliced, cofferdam.Allowed},
		{"a splice of what is only allowed to be read", "", "[egress]\nallow = [\"a.test\"]\n", nil, spliced, cofferdam.Refused},
		{"control: credentials of the box", "", "[egress]\nallow = [\"credentials:a.test\"]\n", nil, own, cofferdam.Allowed},
		{"where they are not spoken of", "", "[egress]\nallow = [\"a.test\"]\n", nil, own, cofferdam.Refused},
		{"the same request without them", "", "[egress]\nallow = [\"a.test\"]\n", nil, get(t, "https://a.test/x"), cofferdam.Allowed},
		{"beyond a limit that does not speak of them", "[egress]\nlimit = [\"a.test\"]\n", "[egress]\nallow = [\"credentials:a.test\"]\n", nil, own, cofferdam.Refused},
		{"within one that does", "[egress]\nlimit = [\"credentials:a.test\"]\n", "[egress]\nallow = [\"credentials:a.test\"]\n", nil, own, cofferdam.Allowed},
		{"of a host that a person is asked about", "", "[egress]\nask = [\"a.test\"]\n", nil, own, cofferdam.Asked},
		{"in an opening that does not speak of them", "", "", given("a.test", 1), own, cofferdam.Refused},
		{"in one that does", "", "", given("credentials:a.test", 1), own, cofferdam.Allowed},
		{"a method that some servers read as a denied one", "", "[egress]\nallow = [\"a.test\"]\n[[egress.rule]]\nid = \"d\"\neffect = \"deny\"\nhosts = [\"a.test\"]\nmethods = [\"POST\"]\n", nil, Query{Action: HTTP, Host: "a.test", Port: 443, Method: "Post", Path: "/"}, cofferdam.Refused},
		{"another one", "", "[egress]\nallow = [\"a.test\"]\n[[egress.rule]]\nid = \"d\"\neffect = \"deny\"\nhosts = [\"a.test\"]\nmethods = [\"POST\"]\n", nil, Query{Action: HTTP, Host: "a.test", Port: 443, Method: "Put", Path: "/"}, cofferdam.Allowed},
	} {
		g := Grant{Openings: c.given, At: at}
		if c.organization != "" {
			d := doc(t, OrganizationName, c.organization)
			g.Organization = &d
		}
		if c.project != "" {
			d := doc(t, ProjectName, c.project)
			g.Project = &d
		}
		if d := mustCompile(t, g).Decide(c.q); d.Verdict != c.want {
			t.Errorf("%s: %s by %s, not %s", c.name, d.Verdict, d.Rule, c.want)
		}
	}
}

// A repository's list and a task's scope narrow what Cedar text permits, and what
// passes because a policy is only tried out.
func TestNarrowingHoldsOverCedarAndTrials(t *testing.T) {
	scope, err := ParseAllow([]string{"in.test"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"Cedar":    "[cedar]\ntext = '''permit (principal, action, resource);'''\n",
		"log-only": "mode = \"log-only\"\nuntil = 2099-01-01T00:00:00Z\n",
	} {
		d := doc(t, ProjectName, text)
		for _, narrow := range []bool{false, true} {
			g := Grant{At: time.Now()}.Under(Documents{Project: &d})
			if narrow {
				if g, err = g.Narrow(Project{Name: "scope", Narrows: true, Allow: scope}); err != nil {
					t.Fatal(err)
				}
			}
			s := mustCompile(t, g)
			if in, out := s.Decide(get(t, "https://in.test/")), s.Decide(get(t, "https://out.test/")); in.Verdict != cofferdam.Allowed || (out.Verdict == cofferdam.Allowed) == narrow {
				t.Errorf("%s, narrowed %v: in %s, out %s by %s", name, narrow, in.Verdict, out.Verdict, out.Rule)
			}
		}
	}
}

// A key has one spelling. Others would be read as the same key, and the later one
// of the two would count.
func TestKeysHaveOneSpelling(t *testing.T) {
	for text, key := range map[string]string{
		"[egress]\ndeny = [\"a.test\"]\nDENY = []\n":                              "egress.DENY",
		"[egress]\ndeny = [\"a.test\"]\n[Egress]\nallow = [\"b.test\"]\n":         "Egress",
		"[[egress.rule]]\nid = \"x\"\neffect = \"allow\"\nHosts = [\"a.test\"]\n": "egress.rule.Hosts",
		"Second_Person = true\n":                                                  "Second_Person",
		"[[Test]]\nexpect = \"deny\"\nurl = \"https://a.test/\"\n":                "Test",
	} {
		if _, err := ParseDocument(OrganizationName, []byte(text), nil); cofferdam.KindOf(err) != cofferdam.Invalid || !strings.Contains(err.Error(), key) {
			t.Errorf("%q: %v", text, err)
		}
	}
	if _, err := ParseProject([]byte("[egress]\nallow = []\nAllow = [\"a.test\"]\n")); cofferdam.KindOf(err) != cofferdam.Invalid {
		t.Errorf("a project file: %v", err)
	}
	if _, err := ParseDocument(ProjectName, []byte("[[egress.rule]]\nid = \"Big\"\neffect = \"allow\"\nhosts = [\"A.test\"]\nmethods = [\"GET\"]\n"), nil); err != nil {
		t.Errorf("values are as they are: %v", err)
	}
}

// Cedar text is read by calls within calls: what is nested without end would end
// the whole server by its stack, which nothing catches.
func TestCedarTextIsBounded(t *testing.T) {
	wrap := func(s string) string { return "permit (principal, action, resource) when { " + s + " };" }
	nested := func(open, in, end string, n int) string {
		return wrap(strings.Repeat(open, n) + in + strings.Repeat(end, n))
	}
	for name, c := range map[string]struct {
		text string
		says string // "": it is read
	}{
		"60 brackets":        {nested("(", "true", ")", 60), ""},
		"100 brackets":       {nested("(", "true", ")", 100), "nested"},
		"a megabyte of them": {nested("(", "true", ")", 400_000), "larger"},
		"lists":              {nested("[", "1", "]", 100), "nested"},
		"records":            {nested("{a: ", "1", "}", 100), "nested"},
		"ifs":                {nested("if true then true else ", "true", "", 100), "nested"},
		"brackets in text":   {wrap("context.path == \"" + strings.Repeat("(", 100) + "\\\"[[\""), ""},
		"in a comment":       {"// " + strings.Repeat("(", 100) + "\n" + wrap("true"), ""},
		"one after another":  {strings.Repeat(wrap("if (true) then (true) else (false)"), 200), ""},
		"a long chain":       {wrap("true" + strings.Repeat(" && true", 20_000)), ""},
		"too long":           {"// " + strings.Repeat("x", maxCedar), "larger"},
	} {
		d, err := ParseDocument(ProjectName, []byte("[cedar]\ntext = '''"+c.text+"'''\n"), nil)
		switch {
		case c.says != "":
			if cofferdam.KindOf(err) != cofferdam.Invalid || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%s: %v", name, err)
			}
		case err != nil:
			t.Errorf("%s: %v", name, err)
		default:
			mustCompile(t, Grant{Project: &d}).Decide(get(t, "https://a.test/"))
		}
	}
}

// What has too many rules is refused while it is read, and not after hours.
func TestTooManyRulesAreRefusedAtOnce(t *testing.T) {
	var b strings.Builder
	b.WriteString("[tool]\ndeny = [\n")
	for i := 0; b.Len() < maxDocument-20; i++ {
		b.WriteString("'" + strings.Repeat("x", i%7) + string(rune('a'+i%26)) + string(rune('a'+i/26%26)) + string(rune('a'+i/676%26)) + "',\n")
	}
	b.WriteString("]\n")
	if _, err := ParseDocument(ProjectName, []byte(b.String()), nil); cofferdam.KindOf(err) != cofferdam.Invalid || !strings.Contains(err.Error(), "more than 10000 rules") {
		t.Errorf("%v", err)
	}
}
