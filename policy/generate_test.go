package policy_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"cofferdam"
	"cofferdam/policy"
)

// The documents and questions that the property tests draw: every section, over few
// names, so that rules meet; hosts with wildcards, ports and splices, paths with
// dots and escapes, methods, limits, rules that only log, and Cedar text.
type generator struct{ *rand.Rand }

var (
	hostNames   = []string{"a.test", "b.test", "x.w.test", "y.w.test", "d.x.w.test", "w.test"}
	hostEntries = []string{"a.test", "b.test", "x.w.test", "*.w.test", "*.x.w.test", "a.test:443", "a.test:8443", "*.w.test:8443", "b.test:80", "d.x.w.test"}
	pathEntries = []string{"/pub/*", "/pub/x", "/adm*", "/a/*/c", "/*", "/pub/*/q", "/pub/q"}
	paths       = []string{"/", "/pub/x", "/pub/x/y", "/pub/q", "/pub/x/q", "/pub//q", "/adm", "/adm/x", "//adm", "/%61dm/x", "/%2561dm", "/pub/../adm", "/pub/%2e%2e/adm", "/pub/..%2fadm", "/pub/x;v=1", "/adm;v=1/x", "/a/b/c", "/a//c", "/a/b/../c", `/pub\x`, "/pub/%zz", "*"}
	methods     = []string{"GET", "POST", "DELETE"}
	nameEntries = map[string][]string{
		"git":    {"fetch:r-1", "fetch:r-2", "push:refs/heads/*", "push:refs/heads/work/**", "push:refs/heads/main"},
		"model":  {"m1", "m2", "m*", "**"},
		"tool":   {"s:one", "s:two", "s:*", "*:two", "s:**", "t:on*"},
		"secret": {"npm", "key-1", "key-*"},
		"exec":   {"agent", "person", "*"},
		"file":   {"read:/w/**", "write:/w/*/x", "read:/w/a", "write:/w/a/x", "write:/**"},
		"port":   {"8080", "80*"},
		"box":    {"fork:snap-1", "fork:snap-*", "fork:**", "restore:**"},
		"merge":  {"land:refs/heads/main", "refs/heads/*"},
	}
	sectionNames = []string{"git", "model", "tool", "secret", "exec", "file", "port", "box", "merge"}
	names        = map[string][]string{
		policy.Fetch: {"r-1", "r-2"}, policy.Push: {"refs/heads/work/1", "refs/heads/main"}, policy.Call: {"m1", "m2"},
		policy.Invoke: {"s:one", "s:two", "t:one", "s:a:b", "own:shell"}, policy.Use: {"npm", "key-1"}, policy.Run: {"agent", "person"},
		policy.Read: {"/w/a", "/w/a/x"}, policy.Write: {"/w/a", "/w/a/x", "/etc/x"}, policy.Expose: {"8080", "22"},
		policy.Fork: {"snap-1", "other"}, policy.Restore: {"snap-1"}, policy.Land: {"refs/heads/main", "refs/tags/1"},
	}
	namedActions = []string{policy.Fetch, policy.Push, policy.Call, policy.Invoke, policy.Use, policy.Run, policy.Read, policy.Write, policy.Expose, policy.Fork, policy.Restore, policy.Land}
	cedarTexts   = []string{
		`@id("%s-puts") forbid (principal, action == Action::"request", resource) when { context.method == "DELETE" };`,
		`@id("%s-adm") forbid (principal, action == Action::"request", resource) when { context.path like "/adm*" };`,
		`@id("%s-tag") forbid (principal, action == Action::"invoke", resource) when { resource.hasTag("owner") && resource.getTag("owner") != "acme" };`,
		`@id("%s-one") forbid (principal, action, resource == Tool::"s:one");`,
		`@id("%s-some") permit (principal, action in [Action::"use", Action::"run"], resource);`,
		`@id("%s-asked") @effect("ask") @people("2") permit (principal, action == Action::"request", resource) when { context.method == "POST" };`,
		`@id("%s-fails") forbid (principal, action == Action::"expose", resource) when { resource.nothing == 1 };`,
	}
	now = time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)
)

func pick[T any](g generator, list []T) T { return list[g.IntN(len(list))] }

func (g generator) some(list []string, odds int) []string {
	out := []string{}
	for _, s := range list {
		if g.IntN(odds) == 0 {
			out = append(out, s)
		}
	}
	return out
}

func lists(s []string) string {
	b, err := json.Marshal(s)
	if err != nil {
		panic("texts always marshal")
	}
	return string(b) // a list of texts is written alike in JSON and in TOML
}

// document writes one with these effects; whether there is any Cedar text, and
// which, cedar says.
func (g generator) document(name, cedar string, effects ...string) string {
	var b strings.Builder
	if name == policy.ProjectName && g.IntN(8) == 0 {
		fmt.Fprintf(&b, "mode = \"log-only\"\nuntil = 2026-12-0%dT00:00:00Z\n", 1+g.IntN(3))
	}
	if name == policy.OrganizationName && g.IntN(4) == 0 {
		b.WriteString("second_person = true\n")
	}
	b.WriteString("[egress]\n")
	for _, effect := range effects {
		if g.IntN(3) == 0 {
			continue
		}
		entries := g.some(hostEntries, map[string]int{"deny": 8, "ask": 6, "allow": 3, "limit": 2}[effect])
		for i := range entries {
			if (effect == "allow" || effect == "limit") && g.IntN(2) == 0 {
				entries[i] = pick(g, []string{"splice:", "credentials:"}) + entries[i]
			}
		}
		fmt.Fprintf(&b, "%s = %s\n", effect, lists(entries))
	}
	for i := range g.IntN(5) {
		effect := pick(g, effects)
		fmt.Fprintf(&b, "[[egress.rule]]\nid = \"r%d\"\neffect = %q\nhosts = %s\n", i, effect, lists([]string{pick(g, hostEntries)}))
		if g.IntN(3) > 0 {
			fmt.Fprintf(&b, "methods = %s\n", lists(g.some(methods, 2)))
		}
		if g.IntN(3) > 0 {
			fmt.Fprintf(&b, "paths = %s\n", lists(g.some(pathEntries, 3)))
		}
		if effect == "ask" && g.IntN(3) == 0 {
			b.WriteString("people = 2\n")
		}
		if (effect == "ask" || effect == "deny") && g.IntN(5) == 0 {
			b.WriteString("mode = \"log-only\"\n")
		}
	}
	for _, section := range sectionNames {
		if g.IntN(3) == 0 {
			continue
		}
		fmt.Fprintf(&b, "[%s]\n", section)
		for _, effect := range effects {
			if g.IntN(3) > 0 {
				fmt.Fprintf(&b, "%s = %s\n", effect, lists(g.some(nameEntries[section], map[string]int{"deny": 6, "ask": 4, "allow": 2, "limit": 2}[effect])))
			}
		}
	}
	if cedar != "" {
		fmt.Fprintf(&b, "[cedar]\ntext = '''%s'''\n", cedar)
	}
	return b.String()
}

// cedar is text for a document of that name; the ids of one set must differ.
func (g generator) cedar(name string) string {
	var out []string
	for _, text := range cedarTexts {
		if g.IntN(6) == 0 {
			out = append(out, fmt.Sprintf(text, name))
		}
	}
	return strings.Join(out, "\n")
}

func (g generator) query() policy.Query {
	if g.IntN(3) == 0 {
		return g.act()
	}
	q := policy.Query{Action: pick(g, []string{policy.Resolve, policy.Connect, policy.HTTP, policy.HTTP, policy.HTTP}), Host: cofferdam.Host(pick(g, hostNames))}
	if q.Action != policy.Resolve {
		q.Port = pick(g, []uint16{443, 443, 80, 8443, 22})
	}
	if q.Action == policy.Connect {
		q.Splice = g.IntN(2) == 0
	}
	if q.Action == policy.HTTP {
		q.Method, q.Path, q.Credential = pick(g, methods), pick(g, paths), g.IntN(3) == 0
	}
	return q
}

func (g generator) act() policy.Query {
	action := pick(g, namedActions)
	q, err := policy.ParseAct(action, pick(g, names[action]))
	if err != nil {
		panic(err)
	}
	switch action {
	case policy.Push:
		q.Repo, q.Create, q.Force = "r-1", g.IntN(3) == 0, g.IntN(6) == 0
	case policy.Invoke:
		q.Args = []byte(pick(g, []string{`{}`, `{"owner":"acme"}`, `{"owner":"evil"}`, `{"a":{"b":1},"a.b":2,"c":{"d":1},"c.d":2}`}))
	}
	return q
}

func parsed(t testing.TB, name, text string) *policy.Document {
	t.Helper()
	d, err := policy.ParseDocument(name, []byte(text), nil)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return &d
}

// grant is what a session may have been given, under documents.
func (g generator) grant(t testing.TB, d policy.Documents) policy.Grant {
	t.Helper()
	allow, err := policy.ParseAllow(g.some(hostEntries, 4), nil)
	if err != nil {
		t.Fatal(err)
	}
	out := policy.Grant{Allow: allow, Repo: "r-1", Branch: "refs/heads/work/1", Model: "m1", At: now}
	if g.IntN(3) == 0 {
		rule, err := policy.ParseOpening(policy.HTTP, pick(g, hostEntries))
		if err != nil {
			t.Fatal(err)
		}
		rule.ID = "given-1"
		out.Openings = []policy.Opening{{Rule: rule, Until: now.Add(time.Hour)}}
	}
	return out.Under(d)
}

func set(t testing.TB, g policy.Grant) *policy.Set {
	t.Helper()
	s, err := policy.New(g)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// order of verdicts: the more restrictive is higher.
func order(d cofferdam.Decision) int {
	switch d.Verdict {
	case cofferdam.Refused:
		return 3
	case cofferdam.Asked:
		return d.People // one or two
	}
	return 0
}
