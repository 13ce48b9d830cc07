package policy

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"cofferdam"
)

// doc parses a document that must be right.
func doc(t testing.TB, name, text string) Document {
	t.Helper()
	d, err := ParseDocument(name, []byte(text), map[string][]string{"npm": {"registry.npm.test", "*.cdn.npm.test"}})
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return d
}

func mustCompile(t testing.TB, g Grant) *Set {
	t.Helper()
	s, err := New(g)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func get(t testing.TB, url string) Query {
	t.Helper()
	method, rest, ok := strings.Cut(url, " ")
	if !ok {
		method, rest = "GET", url
	}
	q, err := ParseURL(rest, method)
	if err != nil {
		t.Fatal(err)
	}
	return q
}

func act(t testing.TB, action, on string) Query {
	t.Helper()
	q, err := ParseAct(action, on)
	if err != nil {
		t.Fatal(err)
	}
	return q
}

func TestEffectsOfALayer(t *testing.T) {
	project := doc(t, "project", `
[egress]
allow = ["a.test", "both.test", "asked.test", "preset:npm"]
ask = ["asked.test", "only-asked.test"]
deny = ["both.test", "*.evil.test"]
[[egress.rule]]
id = "read"
effect = "allow"
hosts = ["api.test"]
methods = ["GET"]
paths = ["/repos/acme/*"]
[[egress.rule]]
id = "no-admin"
effect = "deny"
hosts = ["a.test"]
paths = ["/admin*"]
[tool]
allow = ["github:list_*"]
ask = ["github:create_issue"]
deny = ["github:list_secrets"]
`)
	s := mustCompile(t, Grant{Project: &project})
	for _, c := range []struct {
		q    Query
		want cofferdam.Verdict
		rule string
	}{
		{get(t, "https://a.test/x"), cofferdam.Allowed, "project.egress.allow-1"},
		{get(t, "https://a.test:8443/x"), cofferdam.Refused, DefaultDeny},
		{get(t, "https://a.test/admin/x"), cofferdam.Refused, "project.no-admin"},
		{get(t, "https://a.test/x/..%2Fadmin"), cofferdam.Refused, "project.no-admin"},
		{get(t, "https://both.test/"), cofferdam.Refused, "project.egress.deny-1"},
		{get(t, "https://asked.test/"), cofferdam.Asked, "project.egress.ask-1"},
		{get(t, "https://only-asked.test/"), cofferdam.Asked, "project.egress.ask-2"},
		{Query{Action: Resolve, Host: "only-asked.test"}, cofferdam.Allowed, "project.egress.ask-2" + knownNote},
		{Query{Action: Connect, Host: "only-asked.test", Port: 443}, cofferdam.Allowed, "project.egress.ask-2" + knownNote},
		{Query{Action: Connect, Host: "only-asked.test", Port: 443, Splice: true}, cofferdam.Asked, "project.egress.ask-2"},
		{Query{Action: Resolve, Host: "x.evil.test"}, cofferdam.Refused, "project.egress.deny-2"},
		{get(t, "https://registry.npm.test/left-pad"), cofferdam.Allowed, "project.egress.allow-4"},
		{get(t, "https://api.test/repos/acme/1"), cofferdam.Allowed, "project.read"},
		{get(t, "https://api.test/repos/acme/../other/1"), cofferdam.Refused, DefaultDeny},
		{get(t, "https://api.test/repos/acme%2F..%2Fother/1"), cofferdam.Refused, DefaultDeny},
		{get(t, "https://api.test/repos/other/1"), cofferdam.Refused, DefaultDeny},
		{get(t, "POST https://api.test/repos/acme/1"), cofferdam.Refused, DefaultDeny},
		{Query{Action: Connect, Host: "api.test", Port: 443}, cofferdam.Allowed, "project.read"},
		{Query{Action: Connect, Host: "api.test", Port: 443, Splice: true}, cofferdam.Refused, DefaultDeny},
		{act(t, Invoke, "github:list_issues"), cofferdam.Allowed, "project.tool.allow-1"},
		{act(t, Invoke, "github:list_secrets"), cofferdam.Refused, "project.tool.deny-1"},
		{act(t, Invoke, "github:create_issue"), cofferdam.Asked, "project.tool.ask-1"},
		{act(t, Invoke, "github:delete"), cofferdam.Refused, DefaultDeny},
		{act(t, Invoke, "other:list_issues"), cofferdam.Refused, DefaultDeny},
		{act(t, Use, "npm-token"), cofferdam.Refused, DefaultDeny},
	} {
		if d := s.Decide(c.q); d.Verdict != c.want || d.Rule != c.rule {
			t.Errorf("%+v: %s by %s, not %s by %s", c.q, d.Verdict, d.Rule, c.want, c.rule)
		}
	}
}

func TestOrganisationLocks(t *testing.T) {
	org := doc(t, "organisation", `
[egress]
deny = ["paste.test"]
ask = ["*.prod.test"]
limit = ["*.acme.test", "*.prod.test", "paste.test"]
[tool]
deny = ["*:delete_*"]
`)
	project := doc(t, "project", `
[egress]
allow = ["a.acme.test", "db.prod.test", "paste.test", "stranger.test"]
[tool]
allow = ["github:**"]
`)
	s := mustCompile(t, Grant{Organization: &org, Project: &project})
	for _, c := range []struct {
		q    Query
		want cofferdam.Verdict
	}{
		{get(t, "https://a.acme.test/"), cofferdam.Allowed},
		{get(t, "https://b.acme.test/"), cofferdam.Refused}, // the limit gives nothing
		{get(t, "https://db.prod.test/"), cofferdam.Asked},
		{get(t, "https://paste.test/"), cofferdam.Refused},
		{get(t, "https://stranger.test/"), cofferdam.Refused}, // beyond the limit
		{act(t, Invoke, "github:list_issues"), cofferdam.Allowed},
		{act(t, Invoke, "github:delete_repo"), cofferdam.Refused},
	} {
		if d := s.Decide(c.q); d.Verdict != c.want || d.Rule == "" || d.Reason == "" {
			t.Errorf("%+v: %+v, not %s", c.q, d, c.want)
		}
	}
	allow, err := ParseAllow([]string{"b.acme.test"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if d := mustCompile(t, Grant{Organization: &org, Allow: allow}).Decide(get(t, "https://b.acme.test/")); d.Verdict != cofferdam.Allowed {
		t.Errorf("what is within the limit is not given: %+v", d)
	}
	beyond, err := ParseAllow([]string{"stranger.test"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := New(Grant{Organization: &org, Allow: beyond}); err == nil || !strings.Contains(err.Error(), "organisation") {
		t.Errorf("a task's host beyond the limit: %v", err)
	}
}

func TestGivenByAPerson(t *testing.T) {
	now := time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)
	org := doc(t, "organisation", "[egress]\ndeny = [\"paste.test\"]\nlimit = [\"*.acme.test\", \"paste.test\", \"asked.test\"]\n")
	project := doc(t, "project", "[egress]\nask = [\"asked.test\"]\ndeny = [\"never.acme.test\"]\n")
	given := func(until time.Time, hosts ...string) (all []Opening) {
		for i, h := range hosts {
			r, err := parseRule(h)
			if err != nil {
				t.Fatal(err)
			}
			r.ID = fmt.Sprintf("given-%d", i+1)
			all = append(all, Opening{Rule: r, Until: until})
		}
		return all
	}
	hosts := []string{"once.acme.test", "asked.test", "never.acme.test", "paste.test", "stranger.test"}
	g := Grant{Organization: &org, Project: &project, Openings: given(now.Add(time.Hour), hosts...), At: now}
	s := mustCompile(t, g)
	for i, want := range []cofferdam.Verdict{cofferdam.Allowed, cofferdam.Allowed, cofferdam.Refused, cofferdam.Refused, cofferdam.Refused} {
		d := s.Decide(get(t, "https://"+hosts[i]+"/"))
		if d.Verdict != want || want == cofferdam.Allowed && d.Rule != fmt.Sprintf("given-%d", i+1) {
			t.Errorf("%s: %+v, not %s", hosts[i], d, want)
		}
	}
	if !s.Expires().Equal(now.Add(time.Hour)) {
		t.Errorf("it expires %v", s.Expires())
	}
	g.At = now.Add(time.Hour)
	if d := mustCompile(t, g).Decide(get(t, "https://once.acme.test/")); d.Verdict != cofferdam.Refused {
		t.Errorf("after its time: %+v", d)
	}
	g.At = time.Time{}
	g.Openings[0].Until = time.Time{}
	if d := mustCompile(t, g).Decide(get(t, "https://once.acme.test/")); d.Verdict != cofferdam.Refused {
		t.Errorf("without a time: %+v", d)
	}
}

func TestLogOnly(t *testing.T) {
	now := time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)
	project := doc(t, "project", `
[egress]
allow = ["a.test"]
[[egress.rule]]
id = "soon"
effect = "deny"
hosts = ["a.test"]
methods = ["POST"]
mode = "log-only"
`)
	s := mustCompile(t, Grant{Project: &project, At: now})
	if d := s.Decide(get(t, "POST https://a.test/")); d.Verdict != cofferdam.Allowed || d.Would != "project.soon" {
		t.Errorf("%+v", d)
	}
	if d := s.Decide(get(t, "https://a.test/")); d.Verdict != cofferdam.Allowed || d.Would != "" {
		t.Errorf("%+v", d)
	}
	org := doc(t, "organisation", "[egress]\ndeny = [\"never.test\"]\n")
	watch := doc(t, "project", "mode = \"log-only\"\nuntil = 2026-12-02T00:00:00Z\n[egress]\nallow = [\"a.test\"]\ndeny = [\"b.test\"]\n")
	g := Grant{Organization: &org, Project: &watch, At: now}
	for url, want := range map[string]cofferdam.Verdict{"https://new.test/": cofferdam.Allowed, "https://b.test/": cofferdam.Refused, "https://never.test/": cofferdam.Refused} {
		d := mustCompile(t, g).Decide(get(t, url))
		if d.Verdict != want || want == cofferdam.Allowed && d.Would != DefaultDeny {
			t.Errorf("%s: %+v, not %s", url, d, want)
		}
	}
	g.At = now.Add(24 * time.Hour)
	if d := mustCompile(t, g).Decide(get(t, "https://new.test/")); d.Verdict != cofferdam.Refused {
		t.Errorf("after its end: %+v", d)
	}
}

// randomDocument writes lists over few names, so that they meet.
func randomDocument(r *rand.Rand, name string, effects ...Effect) Document {
	hosts := []string{"a.test", "b.test", "*.test2.test", "x.test2.test", "c.test:8443"}
	tools := []string{"s:one", "s:two", "s:*", "t:**"}
	d := Document{Name: name, Mode: Enforce}
	for _, s := range []struct {
		section Section
		from    []string
	}{{Egress, hosts}, {Tools, tools}} {
		for _, e := range effects {
			if e == Allow || e == Limit {
				if name != "project" && r.IntN(3) > 0 {
					continue
				}
				d.note(&d.Allows, s.section, e == Allow)
				d.note(&d.Limits, s.section, e == Limit)
			}
			for _, entry := range s.from {
				if (e == Deny || e == Ask) && r.IntN(6) > 0 || r.IntN(2) > 0 {
					continue
				}
				rules, err := parseEntry(s.section, entry, nil)
				if err != nil {
					panic(err)
				}
				rules[0].Section, rules[0].Effect = s.section, e
				if s.section == Egress && r.IntN(3) == 0 {
					rules[0].Methods = []string{"GET"}
				}
				d.add(rules[0])
			}
		}
	}
	return d
}

func randomQuery(r *rand.Rand) Query {
	if r.IntN(3) == 0 {
		return Query{Action: Invoke, Name: []string{"s:one", "s:two", "s:three", "t:one", "u:one"}[r.IntN(5)]}
	}
	host := []cofferdam.Host{"a.test", "b.test", "x.test2.test", "y.test2.test", "c.test", "d.test"}[r.IntN(6)]
	q := Query{Action: []string{Resolve, Connect, HTTP}[r.IntN(3)], Host: host}
	if q.Action != Resolve {
		q.Port = []uint16{80, 443, 8443}[r.IntN(3)]
	}
	if q.Action == Connect {
		q.Splice = r.IntN(2) == 0
	}
	if q.Action == HTTP {
		q.Method, q.Path = []string{"GET", "POST"}[r.IntN(2)], "/"
	}
	return q
}

// However documents are written: a narrowing and an organisation's locks open
// nothing, a deny refuses whatever else is said, and the same question has the
// same answer.
func TestRestrictionsNeverWiden(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	allowed, refused := 0, 0
	for range 150 {
		project := randomDocument(r, "project", Allow, Ask, Deny)
		locks := randomDocument(r, "organisation", Ask, Deny, Limit)
		narrow := randomDocument(r, "task", Allow, Deny)
		plain := mustCompile(t, Grant{Project: &project})
		locked := mustCompile(t, Grant{Project: &project, Organization: &locks})
		narrowed := mustCompile(t, Grant{Project: &project, Organization: &locks, Narrowing: []Document{narrow}})
		again := mustCompile(t, Grant{Project: &project, Organization: &locks, Narrowing: []Document{narrow}})
		denied := project
		denied.Rules = append([]Rule{}, project.Rules...)
		all := doc(t, "all", "[egress]\ndeny = [\"a.test\", \"b.test\", \"*.test2.test\", \"c.test\", \"d.test\"]\n[tool]\ndeny = [\"s:*\", \"t:**\", \"u:one\"]\n")
		denied.Rules = append(denied.Rules, all.Rules...)
		nothing := mustCompile(t, Grant{Project: &denied})
		for range 40 {
			q := randomQuery(r)
			p, l, n := plain.Decide(q), locked.Decide(q), narrowed.Decide(q)
			if order(l) < order(p) || order(n) < order(l) {
				t.Fatalf("%+v: %s, with locks %s, narrowed %s", q, p.Verdict, l.Verdict, n.Verdict)
			}
			if d := nothing.Decide(q); d.Verdict != cofferdam.Refused {
				t.Fatalf("%+v: denied, and %s by %s", q, d.Verdict, d.Rule)
			}
			if other := again.Decide(q); other != n {
				t.Fatalf("%+v: %+v, and then %+v", q, n, other)
			}
			if n.Verdict == cofferdam.Refused {
				refused++
			} else {
				allowed++
			}
		}
	}
	if allowed < 500 || refused < 500 {
		t.Errorf("%d were let through and %d refused: the questions show nothing", allowed, refused)
	}
}

// order of verdicts: the more restrictive is higher.
func order(d cofferdam.Decision) int {
	return slices.Index([]cofferdam.Verdict{cofferdam.Allowed, cofferdam.Asked, cofferdam.Refused}, d.Verdict)
}

// A rule may want two people. Of several that ask, in one layer or in two,
// whoever wants more counts, also where a path can be read in two ways.
func TestTwoPeopleAreAsked(t *testing.T) {
	two := "[[egress.rule]]\nid = \"pay\"\neffect = \"ask\"\nhosts = [\"bank.test\"]\npaths = [\"/pay*\"]\npeople = 2\n"
	project := doc(t, ProjectName, "[egress]\nask = [\"bank.test\", \"one.test\"]\n"+two)
	org := doc(t, OrganizationName, "[[egress.rule]]\nid = \"one\"\neffect = \"ask\"\nhosts = [\"one.test\"]\npeople = 2\n[cedar]\ntext = '''@id(\"c\") @effect(\"ask\") @people(\"2\") permit (principal, action == Action::\"request\", resource == Host::\"c.test\");'''\n")
	s := mustCompile(t, Grant{Project: &project, Organization: &org, Allow: allow(t, "c.test")})
	for url, want := range map[string]int{
		"https://bank.test/": 1, "https://bank.test/pay": 2, "https://bank.test/x/..%2Fpay": 2, "https://one.test/": 2, "https://c.test/": 2,
	} {
		if d := s.Decide(get(t, url)); d.Verdict != cofferdam.Asked || d.People != want {
			t.Errorf("%s: %+v, not by %d", url, d, want)
		}
	}
	if d := s.Decide(get(t, "https://else.test/")); d.People != 0 {
		t.Errorf("%+v", d)
	}
	for _, bad := range []string{
		strings.Replace(two, "people = 2", "people = 3", 1), strings.Replace(two, "people = 2", "people = -1", 1), strings.Replace(two, `"ask"`, `"deny"`, 1),
	} {
		if _, err := ParseDocument(ProjectName, []byte(bad), nil); cofferdam.KindOf(err) != cofferdam.Invalid {
			t.Errorf("%v\n%s", err, bad)
		}
	}
	for _, text := range []string{`@people("2") permit (principal, action, resource);`, `@effect("ask") @people("3") permit (principal, action, resource);`, `@people("2") forbid (principal, action, resource);`} {
		bad := doc(t, ProjectName, "[cedar]\ntext = '''"+text+"'''\n")
		if _, err := New(Grant{Project: &bad}); err == nil {
			t.Errorf("taken: %s", text)
		}
	}
}

// TestIdsOfCedarText: what a document calls its Cedar policies collides with
// nothing of another's, nor with what sessions are given.
func TestIdsOfCedarText(t *testing.T) {
	const text = "[cedar]\ntext = '''@id(\"allow-1\") forbid (principal, action == Action::\"request\", resource) when { context.method == \"PUT\" };'''\n"
	org, project := doc(t, OrganizationName, text), doc(t, ProjectName, text)
	s := compile(t, Grant{Organization: &org, Project: &project, Allow: allow(t, "a.test")})
	q := get(t, "https://a.test/")
	if d := s.Decide(q); d.Verdict != cofferdam.Allowed || d.Rule != "allow-1" {
		t.Errorf("%+v", d)
	}
	q.Method = "PUT"
	if d := s.Decide(q); d.Verdict != cofferdam.Refused || d.Rule != "organization.allow-1" {
		t.Errorf("%+v", d)
	}
}
