package policy

import (
	"strings"
	"testing"

	"cofferdam"
)

func TestSplices(t *testing.T) {
	for _, c := range []struct {
		allow string
		host  cofferdam.Host
		port  uint16
		want  bool
	}{
		{"good.test", "good.test", 443, false},
		{"splice:good.test", "good.test", 443, true},
		{"splice:good.test", "evil.test", 443, false},
		{"splice:good.test", "below.good.test", 443, false},
		{"splice:good.test:8443", "good.test", 8443, true},
		{"splice:good.test:8443", "good.test", 443, false},
		{"splice:good.test:8443,good.test", "good.test", 443, false},
		{"splice:*.good.test", "a.good.test", 443, true},
		{"splice:*.good.test", "good.test", 443, false},
		{"splice:*.good.test", "evilgood.test", 443, false},
		// The most specific name decides, in whatever order they stand.
		{"*.good.test,splice:a.good.test", "a.good.test", 443, true},
		{"splice:a.good.test,*.good.test", "b.good.test", 443, false},
		{"splice:*.good.test,a.good.test", "a.good.test", 443, false},
		{"splice:*.good.test,a.good.test", "b.good.test", 443, true},
		{"splice:*.good.test,*.sub.good.test", "x.sub.good.test", 443, false},
		{"*.good.test,splice:*.sub.good.test", "x.sub.good.test", 443, true},
		// Of two alike the host is read.
		{"splice:good.test,good.test", "good.test", 443, false},
		{"good.test,splice:good.test", "good.test", 443, false},
		{"good.test,splice:good.test:443", "good.test", 443, false},
		{"", "good.test", 443, false},
	} {
		if got := compile(t, Grant{Allow: allow(t, split(c.allow)...)}).Splices(c.host, c.port); got != c.want {
			t.Errorf("%s: %s:%d spliced: %v", c.allow, c.host, c.port, got)
		}
	}
}

// A spliced host is allowed like any other; an operator can forbid that bytes
// pass unseen, whatever a task asks for.
func TestOperatorForbidsSplices(t *testing.T) {
	g := Grant{Allow: allow(t, "splice:good.test", "read.test"), Operator: `@id("see-all") forbid (principal, action == Action::"connect", resource) when { context.splice };`}
	unseen := Query{Action: Connect, Host: "good.test", Port: 443, Splice: true}
	if d := compile(t, Grant{Allow: g.Allow}).Decide(unseen); d.Verdict != cofferdam.Allowed || d.Rule != "allow-1" {
		t.Errorf("twin: %+v", d)
	}
	s := compile(t, g)
	if d := s.Decide(unseen); d.Verdict != cofferdam.Refused || d.Rule != "see-all" || !strings.Contains(d.Hint, "splice:good.test") {
		t.Errorf("%+v", d)
	}
	for _, q := range []Query{
		{Action: Connect, Host: "read.test", Port: 443},
		{Action: HTTP, Host: "read.test", Port: 443, Method: "GET", Path: "/"},
		{Action: HTTP, Host: "good.test", Port: 80, Method: "GET", Path: "/"},
	} {
		if d := s.Decide(q); d.Verdict != cofferdam.Allowed {
			t.Errorf("%+v: %+v", q, d)
		}
	}
}

// Whatever a project file lists, no host passes unseen that was read before.
func TestNarrowingNeverSplices(t *testing.T) {
	entries := []string{
		"a.h.test", "splice:a.h.test", "a.h.test:443", "splice:a.h.test:443", "*.h.test", "splice:*.h.test",
		"*.h.test:443", "splice:*.h.test:443", "x.s.h.test", "splice:*.s.h.test", "*.s.h.test:443", "splice:x.s.h.test:8443",
	}
	wants := []string{"a.h.test", "a.h.test:443", "*.h.test", "splice:*.h.test", "*.s.h.test", "x.s.h.test:443", "*.s.h.test:8443"}
	hosts := []cofferdam.Host{"a.h.test", "b.h.test", "x.s.h.test", "y.s.h.test"}
	check := func(given, want []string) {
		wide := Grant{Allow: allow(t, given...)}
		narrow, err := wide.Narrow(Project{Narrows: true, Allow: allow(t, want...)})
		if err != nil {
			t.Fatal(err)
		}
		before, after := compile(t, wide), compile(t, narrow)
		for _, h := range hosts {
			for _, port := range []uint16{80, 443, 8443} {
				if after.Splices(h, port) && !before.Splices(h, port) {
					t.Errorf("%q narrowed by %q: %s:%d passes unseen, and was read", given, want, h, port)
				}
			}
		}
	}
	for i, a := range entries {
		for j, b := range entries[:i] {
			for k, c := range entries[:j] {
				for n, w := range wants {
					check([]string{a, b, c}, []string{w, wants[(n+i+k)%len(wants)]})
				}
			}
		}
	}
}

// The provider's own name is known in a box with a model, and leads nowhere
// outside, whatever the allow list says.
func TestProviderName(t *testing.T) {
	with := Grant{Model: "main", Provider: "api.provider.test"}
	for _, c := range []struct {
		name    string
		grant   Grant
		action  string
		allowed bool
		rule    string
	}{
		{"known with a model", with, Resolve, true, "own-names"},
		{"unknown without", Grant{Provider: "api.provider.test"}, Resolve, false, DefaultDeny},
		{"unknown to others", Grant{Model: "main"}, Resolve, false, DefaultDeny},
		{"no connection", with, Connect, false, "provider-is-the-model"},
		{"no request", with, HTTP, false, "provider-is-the-model"},
		{"no request though listed", Grant{Model: "main", Provider: "api.provider.test", Allow: allow(t, "api.provider.test")}, HTTP, false, "provider-is-the-model"},
		{"no splice though listed", Grant{Model: "main", Provider: "api.provider.test", Allow: allow(t, "splice:*.provider.test")}, Connect, false, "provider-is-the-model"},
		{"ordinary without a model", Grant{Allow: allow(t, "api.provider.test")}, HTTP, true, "allow-1"},
	} {
		q := Query{Action: c.action, Host: "api.provider.test", Port: 443, Method: "POST", Path: "/"}
		d := compile(t, c.grant).Decide(q)
		if (d.Verdict == cofferdam.Allowed) != c.allowed || d.Rule != c.rule {
			t.Errorf("%s: %+v", c.name, d)
		}
	}
}

// A preset by its name narrows like a host does: what was read stays read.
func TestNarrowingToAPresetNeverSplices(t *testing.T) {
	presets := map[string][]string{"one": {"splice:good.test", "splice:*.h.test"}, "two": {"good.test"}}
	for _, given := range [][]string{
		{"preset:one", "good.test"},
		{"preset:one", "a.h.test"},
		{"a.h.test", "preset:one"},
		{"preset:one", "preset:two"},
		{"preset:one", "*.s.h.test"},
		{"preset:one"},
		{"preset:one", "good.test:443"},
	} {
		rules, err := ParseAllow(given, presets)
		if err != nil {
			t.Fatal(err)
		}
		wide := Grant{Allow: rules}
		narrow, err := wide.Narrow(Project{Narrows: true, Presets: []string{"one"}})
		if err != nil {
			t.Fatal(err)
		}
		before, after := compile(t, wide), compile(t, narrow)
		for _, h := range []cofferdam.Host{"good.test", "a.h.test", "b.h.test", "x.s.h.test"} {
			q := Query{Action: Connect, Host: h, Port: 443}
			if after.Decide(q).Verdict == cofferdam.Allowed && before.Decide(q).Verdict != cofferdam.Allowed {
				t.Errorf("%q: %s is allowed, and was not", given, h)
			}
			if after.Splices(h, 443) && !before.Splices(h, 443) {
				t.Errorf("%q narrowed to preset:one: %s passes unseen, and was read", given, h)
			}
		}
	}
}
