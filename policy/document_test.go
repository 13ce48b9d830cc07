package policy

import (
	"strings"
	"testing"

	"cofferdam"
)

func TestDocumentsThatAreRefused(t *testing.T) {
	for _, c := range []struct{ name, text, says string }{
		{"unknown key", "[egress]\nallow = []\nalow = []\n", "line 3: the key \"egress.alow\" is unknown"},
		{"unknown section", "[network]\nallow = []\n", "unknown"},
		{"wrong type", "[egress]\nallow = \"a.test\"\n", "wrong type"},
		{"empty entry", "[egress]\nallow = [\"\"]\n", "egress.allow, entry 1"},
		{"entry of all", "[egress]\nallow = [\"*\"]\n", "egress.allow, entry 1"},
		{"address", "[egress]\ndeny = [\"10.0.0.1\"]\n", "address"},
		{"no such preset", "[egress]\nallow = [\"preset:none\"]\n", "no such preset"},
		{"splice in a deny", "[egress]\ndeny = [\"splice:a.test\"]\n", "splice:"},
		{"rule without id", "[[egress.rule]]\neffect = \"deny\"\nhosts = [\"a.test\"]\n", "needs an id"},
		{"rule without hosts", "[[egress.rule]]\nid = \"x\"\neffect = \"deny\"\n", "hosts is missing"},
		{"rule without effect", "[[egress.rule]]\nid = \"x\"\nhosts = [\"a.test\"]\n", "effect is deny, ask, allow or limit"},
		{"two rules of one id", "[[egress.rule]]\nid = \"x\"\neffect = \"deny\"\nhosts = [\"a.test\"]\n[[egress.rule]]\nid = \"x\"\neffect = \"deny\"\nhosts = [\"b.test\"]\n", "another rule has this id"},
		{"method in small letters", "[[egress.rule]]\nid = \"x\"\neffect = \"allow\"\nhosts = [\"a.test\"]\nmethods = [\"get\"]\n", "no method in upper case"},
		{"path with dots", "[[egress.rule]]\nid = \"x\"\neffect = \"allow\"\nhosts = [\"a.test\"]\npaths = [\"/a/../b\"]\n", "more than one way"},
		{"path with an escape", "[[egress.rule]]\nid = \"x\"\neffect = \"allow\"\nhosts = [\"a.test\"]\npaths = [\"/a%2fb\"]\n", "more than one way"},
		{"paths of what is unseen", "[[egress.rule]]\nid = \"x\"\neffect = \"allow\"\nhosts = [\"splice:a.test\"]\npaths = [\"/a\"]\n", "cannot be judged"},
		{"log-only allow", "[[egress.rule]]\nid = \"x\"\neffect = \"allow\"\nhosts = [\"a.test\"]\nmode = \"log-only\"\n", "only a deny or an ask"},
		{"log-only for ever", "mode = \"log-only\"\n", "needs until"},
		{"until without log-only", "until = 2026-12-01T00:00:00Z\n", "mode is enforce"},
		{"push of no ref", "[git]\nallow = [\"refs/heads/x\"]\n", "fetch: or push:"},
		{"file that is relative", "[file]\nallow = [\"read:work\"]\n", "absolute"},
		{"file with dots", "[file]\nallow = [\"read:/work/../etc/**\"]\n", "dots"},
		{"** in the middle", "[tool]\nallow = [\"a:**b\"]\n", "at the end"},
		{"? in a pattern", "[tool]\nallow = [\"a:?\"]\n", "have no meaning"},
		{"test of nothing", "[[test]]\nexpect = \"allow\"\n", "test 1"},
		{"test without expect", "[[test]]\nurl = \"https://a.test/\"\n", "expect is allow, ask or deny"},
		{"test of a password", "[[test]]\nexpect = \"deny\"\nurl = \"https://u:p@a.test/\"\n", "test 1"},
		{"test of an action with a host", "[[test]]\nexpect = \"deny\"\naction = \"request\"\non = \"a.test\"\n", "give a url"},
	} {
		_, err := ParseDocument("project", []byte(c.text), nil)
		if err == nil || !strings.Contains(err.Error(), c.says) || cofferdam.KindOf(err) != cofferdam.Invalid {
			t.Errorf("%s: %v, not %q", c.name, err, c.says)
		}
	}
	if _, err := ParseDocument("project", []byte("# "+strings.Repeat("x", maxDocument)), nil); err == nil {
		t.Error("a document without bounds was taken")
	}
	var many strings.Builder
	many.WriteString("[tool]\nallow = [\n")
	for range maxRules + 1 {
		many.WriteString("\"s:" + cofferdam.NewID("x") + "\",\n")
	}
	if _, err := ParseDocument("project", []byte(many.String()+"]\n"), nil); err == nil || !strings.Contains(err.Error(), "more than") {
		t.Errorf("too many rules: %v", err)
	}
}

func TestNames(t *testing.T) {
	for _, c := range []struct {
		section       Section
		pattern, name string
		want          bool
	}{
		{Tools, "github:list_*", "github:list_issues", true},
		{Tools, "github:list_*", "github:list_", true},
		{Tools, "github:list_*", "github:list_a:b", false},
		{Tools, "*:delete_*", "any:delete_x", true},
		{Tools, "*:delete_*", "any:list_delete_x", false},
		{Tools, "github:**", "github:a:b", true},
		{Tools, "github:**", "gitlab:a", false},
		{Files, "/work/**", "/work/a/b", true},
		{Files, "/work/**", "/workshop", false},
		{Files, "/work/*/x", "/work/a/x", true},
		{Files, "/work/*/x", "/work/a/b/x", false},
		{Files, "/a/*/**", "/a/b/c/d", true},
		{Git, "refs/heads/release/*", "refs/heads/release/1", true},
		{Models, "a*b*c", "aXbYc", true},
		{Models, "a*b*c", "aXcYb", false},
		{Models, "x", "x", true},
		{Models, "**", "anything/at/all", true},
	} {
		if got := matchName(c.section, c.pattern, c.name); got != c.want {
			t.Errorf("%s %q of %q: %v", c.section, c.pattern, c.name, got)
		}
	}
}

// What covers another pattern matches all that it matches.
func FuzzCoversName(f *testing.F) {
	f.Add("github:**", "github:list_*", "github:list_x")
	f.Add("a*", "a**", "a/b")
	f.Add("/work/*", "/work/a*b", "/work/a/b")
	f.Fuzz(func(t *testing.T, wide, narrow, name string) {
		for _, s := range []Section{Tools, Files, Models} {
			if _, err := parseName(s, wide); err != nil {
				continue
			}
			if _, err := parseName(s, narrow); err != nil {
				continue
			}
			if coversName(s, wide, narrow) && matchName(s, narrow, name) && !matchName(s, wide, name) {
				t.Errorf("%s: %q is said to cover %q, which alone matches %q", s, wide, narrow, name)
			}
		}
	})
}

// A document is refused, or can be compiled and asked; nothing else.
func FuzzParseDocument(f *testing.F) {
	f.Add("[egress]\nallow = [\"a.test\"]\n[[test]]\nexpect = \"allow\"\nurl = \"https://a.test\"\n")
	f.Add("[cedar]\ntext = '''forbid (principal, action, resource) when { context.port == 22 };'''\n")
	f.Add("[tool]\nask = [\"a:*\"]\nlimit = []\n")
	f.Fuzz(func(t *testing.T, text string) {
		d, err := ParseDocument("project", []byte(text), map[string][]string{"p": {"p.test"}})
		if err != nil {
			return
		}
		s, err := New(Grant{Project: &d})
		if err != nil {
			return
		}
		for _, q := range everyQuery() {
			if v := s.Decide(q); v.Verdict == "" || v.Rule == "" || v.Reason == "" {
				t.Errorf("%+v: %+v", q, v)
			}
		}
	})
}
