package policy

import (
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/cedar-policy/cedar-go"

	"cofferdam"
)

// Cedar text of a document is refused, or is one policy or several whose ids stand
// in decisions; and what is asked of it has an answer.
func FuzzCedarText(f *testing.F) {
	for _, text := range []string{
		`forbid (principal, action == Action::"request", resource) when { context.method == "PUT" };`,
		`@id("a") @effect("ask") @people("2") permit (principal, action in [Action::"use"], resource == Secret::"npm");`,
		`permit (principal, action, resource) unless { resource.name like "a*\*" };`,
		`forbid (principal, action, resource) when { resource.nothing == 1 || context.port / 0 == 1 };`,
		`forbid (principal, action, resource) when { decimal(context.path).lessThan(decimal("1.0")) };`,
		`permit (principal is Session, action in Action::"all", resource in Rule::"x");`,
		`forbid (principal, action, resource) when { ip(resource.name).isLoopback() || datetime("2024-13-01") < datetime("x") };`,
		`@id("default-deny") permit (principal, action, resource);`,
		`@id("a") permit (principal, action, resource); @id("a") forbid (principal, action, resource);`,
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if checkCedar(text) != nil {
			return
		}
		l, err := newLayer("fuzz", nil, text, map[cedar.PolicyID]bool{DefaultDeny: true})
		if err != nil {
			return
		}
		all := *l
		all.heads = heads{}
		for i := range l.fixed { // as if there were no index
			all.heads.any = append(all.heads.any, i)
		}
		self := Grant{Repo: "r-1", Model: "m"}.entity()
		for _, q := range everyQuery() {
			if a, b := l.judge(q, self), all.judge(q, self); a != b {
				t.Errorf("%+v: %+v, and with everything evaluated %+v", q, a, b)
			}
		}
	})
}

// A host that a URL names is judged as the name that would be dialled: what two
// readers could take for two hosts is refused.
func FuzzParseURL(f *testing.F) {
	for _, text := range []string{
		"https://a.test/x", "http://a.test:8080", "https://A.TEST./", "https://a.test..", "https://u:p@a.test/", "https://a.test@b.test/", "https://[::1]/", "https://[::ffff:10.0.0.1]:443/",
		"https://10.0.0.1/", "https://0x7f.1/", "https://2130706433/", "https://010.0.0.1", "https://a.test:0", "https://a.test:65536", "https://a.test:443:80/", "https://ä.test/", "https://xn--4ca.test/",
		"https://\u200ba.test/", "https://a。test/", "https://a%2etest/", "https://a.test%00.b.test/", "https://a.test\\@b.test/", "https://a.test#@b.test/", "https://a.test?@b.test/", "//a.test/", "https:a.test", "HTTPS://a.test/%2e%2e/x",
		"https://a_b.test/", "https://-a.test/", "https://a-.test/", "https://" + strings.Repeat("a", 64) + ".test/", "https://a.test/%zz", "https://a.test/..;/x",
	} {
		f.Add(text, "GET")
	}
	f.Fuzz(func(t *testing.T, text, method string) {
		q, err := ParseURL(text, method)
		if err != nil {
			return
		}
		host := string(q.Host)
		if CheckHost(q.Host) != nil || q.Port == 0 || q.Path == "" || q.Method == "" {
			t.Errorf("%q was taken as %+v", text, q)
		}
		if host != strings.ToLower(host) || strings.HasSuffix(host, ".") || strings.ContainsAny(host, "@:/\\%[]?# ") || strings.ContainsFunc(host, func(r rune) bool { return r > '~' }) {
			t.Errorf("%q has the host %q", text, host)
		}
		if _, err := netip.ParseAddr(host); err == nil {
			t.Errorf("%q has the address %q", text, host)
		}
		if u, err := url.Parse(text); err != nil || !strings.EqualFold(strings.TrimSuffix(u.Hostname(), "."), host) || u.User != nil {
			t.Errorf("%q has the host %q, and another one here: %v, %v", text, host, u, err)
		}
	})
}

// An entry of a list of hosts that is taken is written again as the same entry, and
// matches no address and nothing below our own names.
func FuzzHostEntry(f *testing.F) {
	for _, text := range []string{
		"a.test", "*.a.test", "a.test:443", "splice:a.test", "splice:*.a.test:8443", "*", "*.test", "**.a.test", "a.*.test", "*a.test", "A.Test.", "a.test:", "a.test:0443", "a.test:+1",
		"10.0.0.1", "[::1]:443", "0x7f.1", "1.2.3", "a.test/x", "u@a.test", "https://a.test", "ä.test", "a。test", "a%2etest", "git.cofferdam.internal", "*.cofferdam.internal", "splice:splice:a.test", "credentials:a.test", "credentials:splice:a.test", "splice:credentials:a.test", "preset:npm", "", " a.test", "a.test ", "a..test", ".a.test",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		r, err := parseRule(text)
		if err != nil {
			return
		}
		again, err := parseRule(r.String())
		if err != nil || !again.same(r) {
			t.Errorf("%q is %q, and read again %+v: %v", text, r, again, err)
		}
		x := newIndex([]Rule{r})
		for _, host := range []cofferdam.Host{"10.0.0.1", "git.cofferdam.internal", "cofferdam.internal", "", ".", "test"} {
			if len(x.hosts(string(host))) > 0 {
				t.Errorf("%q matches %q", text, host)
			}
		}
		name := strings.TrimPrefix(r.Pattern, "*.")
		if CheckHost(cofferdam.Host(name)) != nil || !slices.Equal(x.hosts("x."+name), x.hosts("y."+name)) {
			t.Errorf("%q: %+v", text, r)
		}
	})
}

// An entry of another section that is taken is written again as the same, and is
// found by the index exactly where it matches.
func FuzzNameEntry(f *testing.F) {
	for _, text := range []string{
		"fetch:r-1", "push:refs/heads/*", "m*", "github:list_*", "own:**", "npm", "agent", "*", "**", "read:/work/**", "write:/w/../x", "read://w", "read:/w/.", "8080", "80*", "fork:snap-*", "restore:**", "land:refs/heads/main", "refs/heads/**",
		"a**b", "***", "a\x00b", "a\u202eb", "\xff", "a?b", "a[b]", `a\b`, "", ":", "push:", "read:", strings.Repeat("a*", 512),
	} {
		f.Add(text, "refs/heads/main")
	}
	f.Fuzz(func(t *testing.T, text, name string) {
		for s := range sections {
			if s == Egress {
				continue
			}
			r, err := parseName(s, text)
			if err != nil {
				continue
			}
			if again, err := parseName(s, r.String()); err != nil || !again.same(r) {
				t.Errorf("%s: %q is %q, and read again %+v: %v", s, text, r, again, err)
			}
			for _, n := range []string{name, r.Pattern, strings.ReplaceAll(r.Pattern, "*", "x")} {
				q := Query{Action: sections[s].actions[0], Name: n, Repo: cofferdam.RepoID(n), Ref: cofferdam.Ref(n), Model: n}
				if found := len(newIndex([]Rule{r}).candidates(q)) > 0; found != matchName(s, r.Pattern, n) {
					t.Errorf("%s: %q is found for %q: %v", s, text, n, found)
				}
			}
		}
	})
}

// However a path is spelt, what a rule forbids of it in one spelling that a server
// takes for the same is forbidden; and judging it ends.
func FuzzPaths(f *testing.F) {
	for _, p := range []string{"/adm/x", "/a/../adm/x", "/%61dm/x", "/a/%2e%2e/adm/x", "//adm/x", "/adm;v=1/x", `/a\..\adm\x`, "/%2561dm/x", "/a/..;/adm/x", "/%zz/../adm/x", "*", "", "/adm%2fx", "/ADM/x", "/a/%252e%252e%252fadm/x"} {
		f.Add(p)
	}
	s, err := New(Grant{Allow: []Rule{{Pattern: "a.test"}}, Operator: `@id("adm") forbid (principal, action == Action::"request", resource) when { context.path like "/adm/*" };`})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, p string) {
		d := s.Decide(Query{Action: HTTP, Host: "a.test", Port: 443, Method: "GET", Path: p})
		for text, n := p, 0; n < maxDecoded; n++ {
			names, _ := segments(dotless(text))
			if plain := strings.Join(names, "/"); strings.HasPrefix(plain, "/adm/") && d.Verdict == cofferdam.Allowed {
				t.Errorf("%q is let through, and %q once %d escapes are taken off", p, plain, n)
			}
			next, err := url.PathUnescape(text)
			if err != nil {
				break
			}
			text = next
		}
	})
}

// Arguments of a tool are refused, or seen whole: as many as there are, and each
// time the same.
func FuzzArguments(f *testing.F) {
	for _, text := range []string{`{}`, `{"a":1}`, `{"a":{"b":[1,"x",null,true]}}`, `{"a":1,"a":2}`, `{"a.b":1,"a":{"b":2}}`, `{"":1}`, `{"a":{"":1}}`, `{"a":1}}`, `{"a":1} {"b":2}`, `[1]`, `{"a":1e999}`, "{\"\xff\":1}", `{"\u0061":1,"a":2}`, `{"a":"\ud800"}`} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		one, first := flatten(text)
		two, second := flatten(text)
		if (first == nil) != (second == nil) || first != nil && first.Error() != second.Error() || len(one) != len(two) {
			t.Errorf("%v, %v", first, second)
		}
		for k, v := range one {
			if two[k] != v {
				t.Errorf("%q is %v and %v", k, v, two[k])
			}
		}
	})
}
