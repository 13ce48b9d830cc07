package policy

import (
	"fmt"
	"strings"
	"testing"

	"cofferdam"
)

func allow(t testing.TB, list ...string) []Rule {
	t.Helper()
	rules, err := ParseAllow(list, nil)
	if err != nil {
		t.Fatal(err)
	}
	return rules
}

func compile(t testing.TB, g Grant) *Set {
	t.Helper()
	s, err := New(g)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestDecideHosts(t *testing.T) {
	s := compile(t, Grant{Allow: allow(t, "good.test", "*.wild.test", "port.test:9000", "good.test:8080"), Repo: "r-1", Model: "claude"})
	for _, c := range []struct {
		action string
		host   cofferdam.Host
		port   uint16
		rule   string // "" is refused
	}{
		{Resolve, "good.test", 0, "allow-1"},
		{Connect, "good.test", 443, "allow-1"},
		{HTTP, "good.test", 80, "allow-1"},
		{HTTP, "good.test", 8080, "allow-4"},
		{Connect, "good.test", 22, ""},
		{Connect, "good.test", 0, ""},
		{Resolve, "a.wild.test", 0, "allow-2"},
		{Resolve, "a.b.wild.test", 0, "allow-2"},
		{Resolve, "wild.test", 0, ""},
		{Resolve, "evilwild.test", 0, ""},
		{Resolve, "wild.test.evil.test", 0, ""},
		{Resolve, "sub.good.test", 0, ""},
		{Resolve, "evilgood.test", 0, ""},
		{Resolve, "port.test", 0, "allow-3"},
		{HTTP, "port.test", 9000, "allow-3"},
		{HTTP, "port.test", 80, ""},
		{Resolve, "evil.test", 0, ""},
		{Resolve, "", 0, ""},
		{Resolve, "GOOD.test", 0, ""}, // callers normalise; what is not normal is not judged
		{Resolve, "good.test\x00", 0, ""},
		{Resolve, "127.0.0.1", 0, ""},
		{Resolve, "git.cofferdam.internal", 0, "own-names"},
		{Resolve, "model.cofferdam.internal", 0, "own-names"},
		{Resolve, "tools.cofferdam.internal", 0, ""},
		{HTTP, "git.cofferdam.internal", 80, ""},
		{"walk", "good.test", 80, ""},
		{"", "good.test", 80, ""},
	} {
		d := s.Decide(Query{Action: c.action, Host: c.host, Port: c.port, Method: "GET", Path: "/"})
		if (d.Verdict == cofferdam.Allowed) != (c.rule != "") || c.rule != "" && d.Rule != c.rule {
			t.Errorf("%s %s:%d: %+v", c.action, c.host, c.port, d)
		}
		if d.Reason == "" || d.Policy != s.Digest() || d.Rule == "" || d.Verdict == cofferdam.Refused && d.Hint == "" {
			t.Errorf("%s %s:%d: an answer with gaps: %+v", c.action, c.host, c.port, d)
		}
	}
}

func TestDecideRepositoryAndModel(t *testing.T) {
	full := Grant{Repo: "r-1", Branch: "refs/heads/cofferdam/t-42-1", Model: "claude"}
	for _, c := range []struct {
		name string
		g    Grant
		q    Query
		rule string
		ok   bool
	}{
		{"fetch", full, Query{Action: Fetch, Repo: "r-1"}, "read-own-repo", true},
		{"fetch other", full, Query{Action: Fetch, Repo: "r-2"}, "one-repo", false},
		{"fetch none", Grant{}, Query{Action: Fetch, Repo: ""}, "one-repo", false},
		{"push", full, Query{Action: Push, Repo: "r-1", Ref: full.Branch}, "write-own-branch", true},
		{"push new", full, Query{Action: Push, Repo: "r-1", Ref: full.Branch, Create: true}, "write-own-branch", true},
		{"push main", full, Query{Action: Push, Repo: "r-1", Ref: "refs/heads/main"}, "one-branch", false},
		{"push lock", full, Query{Action: Push, Repo: "r-1", Ref: full.Branch + ".lock"}, "one-branch", false},
		{"push case", full, Query{Action: Push, Repo: "r-1", Ref: "refs/heads/cofferdam/T-42-1"}, "one-branch", false},
		{"push tag", full, Query{Action: Push, Repo: "r-1", Ref: "refs/tags/cofferdam/t-42-1"}, "one-branch", false},
		{"push elsewhere", full, Query{Action: Push, Repo: "r-2", Ref: full.Branch}, "one-branch", false},
		{"delete", full, Query{Action: Push, Repo: "r-1", Ref: full.Branch, Delete: true}, "no-delete", false},
		{"force", full, Query{Action: Push, Repo: "r-1", Ref: full.Branch, Force: true}, "no-force", false},
		{"push without a branch", Grant{Repo: "r-1"}, Query{Action: Push, Repo: "r-1", Ref: ""}, "one-branch", false},
		{"call", full, Query{Action: Call, Model: "claude"}, "call-own-model", true},
		{"call other", full, Query{Action: Call, Model: "gpt"}, "one-model", false},
		{"call none", Grant{}, Query{Action: Call, Model: ""}, "one-model", false},
	} {
		d := compile(t, c.g).Decide(c.q)
		if (d.Verdict == cofferdam.Allowed) != c.ok || d.Rule != c.rule {
			t.Errorf("%s: %+v", c.name, d)
		}
		if !c.ok && (d.Reason == "" || d.Hint == "") {
			t.Errorf("%s: refused without a word: %+v", c.name, d)
		}
	}
}

func TestOperatorText(t *testing.T) {
	q := Query{Action: HTTP, Host: "good.test", Port: 80, Method: "POST", Path: "/v1/admin"}
	for _, c := range []struct {
		name, text, rule string
		ok               bool
	}{
		{"nothing", "", "allow-1", true},
		{"forbid beats permit", `@id("no-post") forbid (principal, action == Action::"request", resource) when { context.method == "POST" };`, "no-post", false},
		{"forbid without id", `forbid (principal, action, resource);`, "operator-1", false},
		{"forbid something else", `@id("x") forbid (principal, action, resource == Host::"evil.test");`, "allow-1", true},
		{"a rule that cannot be evaluated", `@id("broken") forbid (principal, action, resource) when { resource.colour == "red" };`, BadRule, false},
		{"a broken permit", `@id("broken") permit (principal, action, resource) when { 1 + 9223372036854775807 > 0 };`, BadRule, false},
	} {
		d := compile(t, Grant{Allow: allow(t, "good.test"), Operator: c.text}).Decide(q)
		if d.Rule != c.rule || (d.Verdict == cofferdam.Allowed) != c.ok {
			t.Errorf("%s: %+v", c.name, d)
		}
	}
	more := compile(t, Grant{Operator: `@id("docs") permit (principal, action, resource) when { resource has name && resource.name like "*.docs.test" };`})
	if d := more.Decide(Query{Action: Resolve, Host: "a.docs.test"}); d.Rule != "docs" || d.Verdict != cofferdam.Allowed {
		t.Errorf("an operator's permit: %+v", d)
	}
	// An operator's permit does not reach our own floor.
	if d := more.Decide(Query{Action: Push, Repo: "r-1", Ref: "refs/heads/main"}); d.Verdict != cofferdam.Refused {
		t.Errorf("main: %+v", d)
	}
	for name, text := range map[string]string{
		"no cedar":    "allow everything",
		"cut":         "permit (principal, action, resource)",
		"taken":       `@id("one-repo") permit (principal, action, resource);`,
		"reserved":    `@id("default-deny") permit (principal, action, resource);`,
		"allow rule":  `@id("allow-1") permit (principal, action, resource);`,
		"used twice":  `@id("a") permit (principal, action, resource); @id("a") forbid (principal, action, resource);`,
		"too large":   strings.Repeat("// x\n", maxOperator),
		"binary":      "\x00\xff",
		"unknown key": `permit (principal, action, resource, context);`,
	} {
		if _, err := New(Grant{Allow: allow(t, "good.test"), Operator: text}); cofferdam.KindOf(err) != cofferdam.Invalid || err == nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestRulesNotFromParseAllowAreRefused(t *testing.T) {
	for _, r := range []Rule{
		{ID: "allow-1", Pattern: "*"},
		{ID: "allow-1", Pattern: ""},
		{ID: "allow-1", Pattern: "127.0.0.1"},
		{ID: `x") permit (principal, action, resource); @id("y`, Pattern: "good.test"},
		{ID: "", Pattern: "good.test"},
		{ID: "allow-1", Pattern: "GOOD.test"},
	} {
		if s, err := New(Grant{Allow: []Rule{r}}); err == nil {
			for _, h := range []cofferdam.Host{"evil.test", "127.0.0.1"} {
				if d := s.Decide(Query{Action: Resolve, Host: h}); d.Verdict == cofferdam.Allowed {
					t.Errorf("%+v allows %s", r, h)
				}
			}
		}
	}
}

func TestDigest(t *testing.T) {
	base := Grant{Allow: allow(t, "good.test"), Repo: "r-1", Branch: "refs/heads/x", Model: "m"}
	seen := map[cofferdam.Digest]string{}
	for name, change := range map[string]func(*Grant){
		"base": func(*Grant) {}, "allow": func(g *Grant) { g.Allow = allow(t, "good.test:80") }, "repo": func(g *Grant) { g.Repo = "r-2" },
		"branch": func(g *Grant) { g.Branch = "refs/heads/y" }, "model": func(g *Grant) { g.Model = "" }, "operator": func(g *Grant) { g.Operator = "// x" },
	} {
		g := base
		change(&g)
		d := compile(t, g).Digest()
		if other, ok := seen[d]; ok {
			t.Errorf("%s and %s have the same digest", name, other)
		}
		seen[d] = name
		if again := compile(t, g).Digest(); again != d {
			t.Errorf("%s: %s, then %s", name, d, again)
		}
	}
}

func TestHintsStayShort(t *testing.T) {
	var list []string
	for i := range 1000 {
		list = append(list, fmt.Sprintf("h%d.test", i))
	}
	d := compile(t, Grant{Allow: allow(t, list...)}).Decide(Query{Action: HTTP, Host: "evil.test", Port: 8443})
	if len(d.Hint) > 300 || !strings.Contains(d.Hint, "and 994 more") || !strings.Contains(d.Hint, "--allow evil.test:8443") {
		t.Errorf("hint: %s", d.Hint)
	}
}

func BenchmarkDecide(b *testing.B) {
	for _, rules := range []int{1, 4000} {
		var list []string
		for i := range rules {
			list = append(list, fmt.Sprintf("h%d.test", i))
		}
		s := compile(b, Grant{Allow: allow(b, list...), Repo: "r-1", Model: "m"})
		b.Run(fmt.Sprintf("rules=%d", rules), func(b *testing.B) {
			for b.Loop() {
				s.Decide(Query{Action: HTTP, Host: "h0.test", Port: 443, Method: "GET", Path: "/"})
			}
		})
	}
}

// TestHintOfADenial: who is denied by a rule is not sent to a list that does not help.
func TestHintOfADenial(t *testing.T) {
	project := doc(t, ProjectName, "[egress]\ndeny = [\"a.test\"]\n")
	s := compile(t, Grant{Project: &project})
	for url, want := range map[string]string{"https://a.test/": "cofferdam policy propose", "https://b.test/": "--allow b.test"} {
		if d := s.Decide(get(t, url)); d.Verdict != cofferdam.Refused || !strings.Contains(d.Hint, want) || strings.Contains(d.Hint, "--allow a.test") {
			t.Errorf("%s: %+v", url, d)
		}
	}
}
