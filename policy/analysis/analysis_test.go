package analysis

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"cofferdam"
	"cofferdam/policy"
)

func doc(t testing.TB, name, text string) policy.Document {
	t.Helper()
	d, err := policy.ParseDocument(name, []byte(text), nil)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return d
}

func TestCheck(t *testing.T) {
	org := doc(t, "organisation", "[egress]\ndeny = [\"paste.test\"]\nlimit = [\"*.acme.test\", \"paste.test\"]\n")
	for _, c := range []struct {
		name, text string
		level      Level
		says       string // "": nothing is found
	}{
		{"good", "[egress]\nallow = [\"a.acme.test\"]\n[[test]]\nexpect = \"allow\"\nurl = \"https://a.acme.test/x\"\n[[test]]\nexpect = \"deny\"\nurl = \"https://b.acme.test/\"\n", "", ""},
		{"wrong type", "[cedar]\ntext = '''forbid (principal, action, resource) when { context.port == \"22\" };'''\n", Error, "Long and String"},
		{"unknown attribute", "[cedar]\ntext = '''@id(\"mine\") forbid (principal, action == Action::\"request\", resource) when { context.verb == \"GET\" };'''\n", Error, "verb"},
		{"unknown action", "[cedar]\ntext = '''forbid (principal, action == Action::\"reqest\", resource);'''\n", Error, "reqest"},
		{"broken Cedar", "[cedar]\ntext = '''forbid (principal'''\n", Error, "cannot be read"},
		{"twice", "[egress]\nallow = [\"a.acme.test\", \"*.acme.test\"]\n", Warning, "is part of"},
		{"denied and allowed", "[egress]\nallow = [\"a.acme.test\"]\ndeny = [\"*.acme.test\"]\n", Warning, "never counts"},
		{"asked and allowed", "[egress]\nallow = [\"a.acme.test\"]\nask = [\"a.acme.test\"]\n", Warning, "asked about each time"},
		{"beyond the limit", "[egress]\nallow = [\"stranger.test\"]\n", Error, "beyond the limit"},
		{"denied above", "[egress]\nallow = [\"paste.test\"]\n", Error, "denied by the organisation"},
		{"denied on every port", "[egress]\nallow = [\"a.acme.test:8443\"]\ndeny = [\"a.acme.test\"]\n", Warning, "never counts"},
		{"unseen, and denied", "[egress]\nallow = [\"splice:a.acme.test\"]\ndeny = [\"a.acme.test\"]\n", Warning, "never counts"},
		{"unseen, and denied above", "[egress]\nallow = [\"splice:paste.test\"]\n", Error, "organisation"},
		{"a name below a pattern", "[tool]\nallow = [\"github:list_x\", \"github:*\"]\n", Warning, "is part of"},
		{"beyond its class", "class = \"read-only\"\n[git]\nallow = [\"push:refs/heads/x\"]\n", Error, "denied by the class read-only"},
		{"a test that its class fails", "class = \"read-only\"\n[egress]\nallow = [\"a.acme.test\"]\n[[test]]\nexpect = \"allow\"\nmethod = \"POST\"\nurl = \"https://a.acme.test/\"\n", Error, "expected allow, and it is refused"},
		{"good under a class", "class = \"read-only\"\n[egress]\nallow = [\"a.acme.test\"]\n[[test]]\nexpect = \"deny\"\nmethod = \"POST\"\nurl = \"https://a.acme.test/\"\n", "", ""},
		{"test that fails", "[egress]\nallow = [\"a.acme.test\"]\n[[test]]\nname = \"b is open\"\nexpect = \"allow\"\nurl = \"https://b.acme.test/\"\n", Error, "b is open: expected allow, and it is refused"},
	} {
		found := Check(doc(t, "project", c.text), &org)
		if c.says == "" {
			if len(found) > 0 {
				t.Errorf("%s: %+v", c.name, found)
			}
			continue
		}
		if !slices.ContainsFunc(found, func(f Finding) bool { return f.Level == c.level && strings.Contains(f.Text, c.says) }) {
			t.Errorf("%s: %+v, nothing says %q", c.name, found, c.says)
		}
	}
}

// The organisation's own document is judged as that: its limit gives nothing.
func TestCheckOfTheOrganisation(t *testing.T) {
	const text = "second_person = true\n[egress]\nlimit = [\"a.test\"]\nallow = [\"b.test\"]\n[[test]]\nexpect = \"%s\"\nurl = \"https://a.test/\"\n[[test]]\nexpect = \"allow\"\nurl = \"https://b.test/\"\n"
	if found := Check(doc(t, policy.OrganizationName, fmt.Sprintf(text, "deny")), nil); len(found) > 0 {
		t.Errorf("%+v", found)
	}
	if found := Check(doc(t, policy.OrganizationName, fmt.Sprintf(text, "allow")), nil); len(found) != 1 || !strings.Contains(found[0].Text, "expected allow") {
		t.Errorf("%+v", found)
	}
}

func TestDiff(t *testing.T) {
	for _, c := range []struct {
		name, before, after      string
		opens, closes, unbounded []string
	}{
		{"nothing", "[egress]\nallow = [\"a.test\"]\n", "# the same\n[egress]\nallow = [ \"a.test\" ]\n", nil, nil, nil},
		{"a host", "", "[egress]\nallow = [\"a.test\"]\n", []string{"egress allow: a.test"}, nil, nil},
		{"narrower", "[egress]\nallow = [\"*.a.test\"]\n", "[egress]\nallow = [\"x.a.test\"]\n", nil, []string{"*.a.test"}, nil},
		{"wider", "[egress]\nallow = [\"x.a.test\"]\n", "[egress]\nallow = [\"*.a.test\"]\n", []string{"*.a.test"}, nil, nil},
		{"a deny less", "[egress]\ndeny = [\"a.test\"]\n", "", []string{"denied: a.test"}, nil, nil},
		{"asked no more", "[egress]\nask = [\"a.test\"]\n", "[egress]\nallow = [\"a.test\"]\n", []string{"egress allow: a.test", "without asking"}, nil, nil},
		{"no limit", "[egress]\nlimit = [\"a.test\"]\n", "", []string{"no limit any more"}, []string{"limit: a.test"}, nil},
		{"Cedar", "", "[cedar]\ntext = '''permit (principal, action, resource);'''\n", nil, nil, []string{"permit (principal, action, resource);"}},
		{"log-only", "", "mode = \"log-only\"\nuntil = 2026-12-02T00:00:00Z\n", []string{"everything that nothing denies"}, nil, nil},
		{"a deny that is only logged", "[egress]\ndeny = [\"a.test\"]\n", "[[egress.rule]]\nid = \"x\"\neffect = \"deny\"\nhosts = [\"a.test\"]\nmode = \"log-only\"\n", []string{"denied: a.test"}, nil, nil},
		{"a limit of money", "", "[budget]\nmax_cost = 5\n", nil, []string{"at most $5"}, nil},
		{"more money", "[budget]\nmax_cost = 5\n", "[budget]\nmax_cost = 10\n", []string{"up to $10.00, until now $5.00"}, nil, nil},
		{"less time", "[budget]\nmax_time = 60\n", "[budget]\nmax_time = 30\n", nil, []string{"at most 30s of the agent, until now 1m0s of the agent"}, nil},
		{"no limit of calls", "[budget]\nmax_calls = 5\n", "", []string{"more than 5 model calls: there is no limit any more"}, nil, nil},
		{"fewer methods", "[[egress.rule]]\nid = \"x\"\neffect = \"allow\"\nhosts = [\"a.test\"]\nmethods = [\"GET\"]\n", "[[egress.rule]]\nid = \"x\"\neffect = \"allow\"\nhosts = [\"a.test\"]\nmethods = [\"GET\", \"POST\"]\n", []string{"[GET POST]"}, nil, nil},
	} {
		got := Diff(doc(t, "project", c.before), doc(t, "project", c.after))
		for what, pair := range map[string][2][]string{"opens": {got.Opens, c.opens}, "closes": {got.Closes, c.closes}, "unbounded": {got.Unbounded, c.unbounded}} {
			if len(pair[0]) != len(pair[1]) {
				t.Errorf("%s: %s %q, not %q", c.name, what, pair[0], pair[1])
				continue
			}
			for i, want := range pair[1] {
				if !strings.Contains(pair[0][i], want) {
					t.Errorf("%s: %s %q, not %q", c.name, what, pair[0][i], want)
				}
			}
		}
		if got.Widens() != (len(c.opens)+len(c.unbounded) > 0) {
			t.Errorf("%s: widens %v", c.name, got.Widens())
		}
	}
}

func ask(t testing.TB, s *policy.Set, seq uint64, q policy.Query) cofferdam.Event {
	t.Helper()
	text, err := json.Marshal(q)
	if err != nil {
		t.Fatal(err)
	}
	d := s.Decide(q)
	return cofferdam.Event{Seq: seq, Session: "s-1", Resource: string(q.Host) + q.Name, Verdict: d.Verdict, Rule: d.Rule, Fields: map[string]string{cofferdam.FieldQuery: string(text)}}
}

func TestSuggestAndReplay(t *testing.T) {
	nothing, err := policy.New(policy.Grant{})
	if err != nil {
		t.Fatal(err)
	}
	queries := []policy.Query{
		{Action: policy.HTTP, Host: "api.test", Port: 443, Method: "GET", Path: "/repos/acme/web/issues/1"},
		{Action: policy.HTTP, Host: "api.test", Port: 443, Method: "POST", Path: "/repos/acme"},
		{Action: policy.HTTP, Host: "odd.test", Port: 8443, Method: "GET", Path: "/a%2F..%2Fb"},
		{Action: policy.Connect, Host: "pinned.test", Port: 443, Splice: true},
		{Action: policy.Invoke, Name: "github:list_issues"},
		{Action: policy.Use, Name: "npm-token"},
	}
	for i := range 40 {
		queries = append(queries, policy.Query{Action: policy.HTTP, Host: "many.test", Port: 80, Method: "GET", Path: fmt.Sprintf("/p%d/x", i)})
	}
	var events []cofferdam.Event
	for i, q := range queries {
		events = append(events, ask(t, nothing, uint64(i), q))
	}
	events = append(events,
		cofferdam.Event{Seq: 100, Verdict: cofferdam.Refused, Rule: "act-ceiling"},
		cofferdam.Event{Seq: 101, Verdict: cofferdam.Refused, Fields: map[string]string{cofferdam.FieldQuery: `{"action":"request","host":"a.test","path":"/[redacted:key]"}`}},
		cofferdam.Event{Seq: 102, Outcome: "ok"},
	)
	var seen Suggestion
	seen.Add(events)
	text := seen.Text()
	d := doc(t, "project", text)
	open, err := policy.New(policy.Grant{Project: &d, At: time.Now()})
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	var r, again Replay
	r.Add(events, open)
	if len(r.Changes) != len(queries) || r.Unknown != 2 || r.Same != 0 {
		t.Errorf("%d changes of %d, %d unknown, %d the same\n%s", len(r.Changes), len(queries), r.Unknown, r.Same, text)
	}
	again.Add(events, open)
	if fmt.Sprint(r) != fmt.Sprint(again) {
		t.Error("the same replay has another result")
	}
	for _, q := range []policy.Query{
		{Action: policy.HTTP, Host: "api.test", Port: 443, Method: "DELETE", Path: "/repos/acme"},
		{Action: policy.HTTP, Host: "api.test", Port: 443, Method: "GET", Path: "/user"},
		{Action: policy.HTTP, Host: "other.test", Port: 443, Method: "GET", Path: "/"},
		{Action: policy.Invoke, Name: "github:delete_repo"},
	} {
		if v := open.Decide(q); v.Verdict == cofferdam.Allowed {
			t.Errorf("%+v is open too:\n%s", q, text)
		}
	}
}

// What an explanation calls the smallest rule allows the question, and no
// neighbour of it.
func TestExplainNamesTheSmallestRule(t *testing.T) {
	project := doc(t, "project", "[egress]\nallow = [\"a.test\"]\ndeny = [\"never.test\"]\nask = [\"asked.test\"]\n[[egress.rule]]\nid = \"x\"\neffect = \"allow\"\nhosts = [\"b.test\"]\nwhy = \"for the tests\"\n")
	s, err := policy.New(policy.Grant{Project: &project})
	if err != nil {
		t.Fatal(err)
	}
	q := policy.Query{Action: policy.HTTP, Host: "new.test", Port: 8443, Method: "POST", Path: "/v1/x"}
	e := Explain(s, q)
	if e.Decision.Rule != policy.DefaultDeny || !strings.Contains(e.Next, "--allow new.test:8443") {
		t.Errorf("%+v", e)
	}
	for _, text := range []string{e.Smallest, e.Rule} {
		d := doc(t, "project", text)
		open, err := policy.New(policy.Grant{Project: &d})
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		if v := open.Decide(q); v.Verdict != cofferdam.Allowed {
			t.Errorf("%+v by\n%s", v, text)
		}
		other := q
		other.Host = "other.test"
		if v := open.Decide(other); v.Verdict == cofferdam.Allowed {
			t.Errorf("another host is open by\n%s", text)
		}
	}
	for host, want := range map[cofferdam.Host][2]string{
		"a.test": {"project", "nothing"}, "never.test": {"project", "while project.egress.deny-1 denies it"},
		"asked.test": {"project", "approval list"}, "b.test": {"project", "nothing"},
	} {
		e := Explain(s, policy.Query{Action: policy.HTTP, Host: host, Port: 443, Method: "GET", Path: "/"})
		if e.Layer != want[0] || !strings.Contains(e.Next, want[1]) || e.Entry == "" {
			t.Errorf("%s: %+v", host, e)
		}
		if host == "b.test" && e.Why != "for the tests" {
			t.Errorf("%+v", e)
		}
	}
	if e := Explain(s, policy.Query{Action: policy.Push, Repo: "r-1", Ref: "refs/heads/main"}); e.Smallest != "" || e.Decision.Verdict != cofferdam.Refused {
		t.Errorf("%+v", e)
	}
}

// A session that asks for thousands of names makes a suggestion that a person can
// still read, and that is a policy.
func TestSuggestionsAreBounded(t *testing.T) {
	var s Suggestion
	add := func(q policy.Query) {
		text, err := json.Marshal(q)
		if err != nil {
			t.Fatal(err)
		}
		s.Add([]cofferdam.Event{{Verdict: cofferdam.Refused, Fields: map[string]string{cofferdam.FieldQuery: string(text)}}})
	}
	for i := range 1000 {
		add(policy.Query{Action: policy.HTTP, Host: cofferdam.Host(fmt.Sprintf("h%d.test", i)), Port: 443, Method: "GET", Path: "/"})
		add(policy.Query{Action: policy.HTTP, Host: "h1.test", Port: 443, Method: fmt.Sprintf("M%c", 'A'+i%26), Path: fmt.Sprintf("/p%d", i)})
		add(policy.Query{Action: policy.Invoke, Name: fmt.Sprintf("s:t%d", i)})
		add(policy.Query{Action: policy.Invoke, Name: "s:\x1b[2J\"]\n"})
	}
	text := s.Text()
	d := doc(t, "project", text)
	if len(d.Rules) != 2*maxSuggested || !strings.Contains(text, "1488 acts at other hosts and names are left out") || strings.Contains(text, "\x1b") {
		t.Errorf("%d rules\n%.300s", len(d.Rules), text)
	}
	for _, r := range d.Rules {
		if r.Pattern == "h1.test" && (len(r.Paths) != 1 || r.Paths[0] != "/*" || len(r.Methods) != 0) {
			t.Errorf("%+v", r)
		}
	}
}

// From two people to one is something that becomes possible; the other way round
// it is not.
func TestDiffOfPeople(t *testing.T) {
	rule := "[[egress.rule]]\nid = \"pay\"\neffect = \"ask\"\nhosts = [\"bank.test\"]\n"
	one, two := doc(t, "project", rule), doc(t, "project", rule+"people = 2\n")
	if c := Diff(two, one); !c.Widens() || c.Opens[0] != "by one person alone: bank.test" {
		t.Errorf("%+v", c)
	}
	for name, c := range map[string]Change{"more people": Diff(one, two), "denied": Diff(two, doc(t, "project", rule+"people = 1\n[egress]\ndeny = [\"bank.test\"]\n"))} {
		if c.Widens() {
			t.Errorf("%s: %+v", name, c)
		}
	}
}

// TestIdleLimits: a project's limit above the organisation's never counts, and its
// author is told.
func TestIdleLimits(t *testing.T) {
	above := doc(t, "organisation", "[budget]\nmax_cost = 5\n")
	for text, want := range map[string]bool{"max_cost = 6": true, "max_cost = 5": false, "max_cost = 4": false, "max_calls = 500": false} {
		found := false
		for _, f := range Check(doc(t, "project", "[budget]\n"+text+"\n"), &above) {
			found = found || f.Level == Warning && strings.Contains(f.Text, "budget.max_cost is $6.00") && strings.Contains(f.Text, "$5.00")
		}
		if found != want {
			t.Errorf("%s: warned %v", text, found)
		}
	}
}

// TestADocumentThatSaysNothing: its author is told, and nobody else is.
func TestADocumentThatSaysNothing(t *testing.T) {
	for text, want := range map[string]bool{
		"": true, "# to be written\n": true, "[egress]\n": true, "[egress]\nallow = []\n": false, "[egress]\nlimit = []\n": false, "second_person = true\n": false,
		"[budget]\nmax_cost = 5\n": false, "class = \"read-only\"\n": false, "[tool]\ndeny = [\"x:y\"]\n": false, "[cedar]\ntext = '''forbid (principal, action, resource);'''\n": false,
	} {
		found := false
		for _, f := range Check(doc(t, policy.OrganizationName, text), nil) {
			found = found || f.Level == Warning && strings.Contains(f.Text, "says nothing")
		}
		if found != want {
			t.Errorf("%q: warned %v", text, found)
		}
	}
}
