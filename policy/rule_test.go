package policy

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"cofferdam"
)

func TestParseAllow(t *testing.T) {
	presets := map[string][]string{"npm": {"registry.npm.test", "files.npm.test:8443"}, "bad": {"http://x.test"}, "empty": {}}
	for _, c := range []struct {
		list []string
		want []Rule
	}{
		{nil, nil},
		{[]string{}, nil},
		{[]string{"good.test"}, []Rule{{ID: "allow-1", Pattern: "good.test", Port: 0, Origin: "good.test", Splice: false}}},
		{[]string{"GOOD.test."}, []Rule{{ID: "allow-1", Pattern: "good.test", Port: 0, Origin: "GOOD.test.", Splice: false}}},
		{[]string{"good.test:443"}, []Rule{{ID: "allow-1", Pattern: "good.test", Port: 443, Origin: "good.test:443", Splice: false}}},
		{[]string{"*.good.test", "good.test"}, []Rule{{ID: "allow-1", Pattern: "*.good.test", Port: 0, Origin: "*.good.test", Splice: false}, {ID: "allow-2", Pattern: "good.test", Port: 0, Origin: "good.test", Splice: false}}},
		{[]string{"*.good.test:8443"}, []Rule{{ID: "allow-1", Pattern: "*.good.test", Port: 8443, Origin: "*.good.test:8443", Splice: false}}},
		{[]string{"preset:npm", "registry.npm.test"}, []Rule{{ID: "allow-1", Pattern: "registry.npm.test", Port: 0, Origin: "preset:npm", Splice: false}, {ID: "allow-2", Pattern: "files.npm.test", Port: 8443, Origin: "preset:npm", Splice: false}}},
		{[]string{"preset:empty"}, nil},
		{[]string{"splice:good.test"}, []Rule{{ID: "allow-1", Pattern: "good.test", Port: 0, Origin: "splice:good.test", Splice: true}}},
		{[]string{"splice:*.Good.test:8443"}, []Rule{{ID: "allow-1", Pattern: "*.good.test", Port: 8443, Origin: "splice:*.Good.test:8443", Splice: true}}},
		{[]string{"good.test", "splice:good.test", "splice:good.test"}, []Rule{{ID: "allow-1", Pattern: "good.test", Port: 0, Origin: "good.test", Splice: false}, {ID: "allow-2", Pattern: "good.test", Port: 0, Origin: "splice:good.test", Splice: true}}},
		{[]string{"xn--bcher-kva.test"}, []Rule{{ID: "allow-1", Pattern: "xn--bcher-kva.test", Port: 0, Origin: "xn--bcher-kva.test", Splice: false}}},
	} {
		got, err := ParseAllow(c.list, presets)
		if err != nil {
			t.Errorf("%q: %v", c.list, err)
		}
		if d := cmp.Diff(c.want, got); d != "" {
			t.Errorf("%q: %s", c.list, d)
		}
	}
	for _, entry := range []string{
		"", " ", "null", "nil", "~", "*", "*.", "*.test", "**.good.test", "a.*.test", "good.*", "*good.test", "g*d.test",
		"http://good.test", "https://good.test/", "good.test/path", "good.test?x", "user@good.test", "good.test#x", "#comment",
		"127.0.0.1", "127.1", "0x7f000001", "0177.0.0.1", "2130706433", "1.2.3.4:80", "[::1]", "[::1]:80", "::1", "::ffff:127.0.0.1", "good.0x7f", "good.1",
		"good.test:", "good.test:0", "good.test:65536", "good.test:443x", "good.test:0443", "good.test:-1", "good.test:80:80", "good.test:http",
		"good..test", ".good.test", "good.test..", "-good.test", "good-.test", "a_b.good.test", "good.test\x00.evil.test", "good.test\n", "good\ttest.a", "gо\u00adod.test", "bücher.test",
		strings.Repeat("a", 64) + ".test", strings.Repeat("a.", 127) + "test",
		"localhost", "git.cofferdam.internal", "*.cofferdam.internal", "cofferdam.internal", "x.cofferdam.internal:80",
		"splice:", "splice:*", "splice:splice:good.test", "splice:preset:npm", "splice:good.test:0", "splice: good.test", "SPLICE:good.test", "splice:https://good.test", "splice:model.cofferdam.internal", "splice:1.2.3.4",
		"preset:", "preset:nope", "preset:bad", "preset:NPM", "PRESET:npm",
	} {
		got, err := ParseAllow([]string{"good.test", entry}, presets)
		if cofferdam.KindOf(err) != cofferdam.Invalid || err == nil || cofferdam.HintOf(err) == "" {
			t.Errorf("%q: %v, %v, want an invalid error with a hint", entry, got, err)
			continue
		}
		if !strings.Contains(err.Error(), "entry 2") {
			t.Errorf("%q: the error does not name the entry: %v", entry, err)
		}
	}
	many := make([]string, maxRules+1)
	for i := range many {
		many[i] = cofferdam.NewID("h") + ".test"
	}
	if _, err := ParseAllow(many, nil); cofferdam.KindOf(err) != cofferdam.Invalid {
		t.Errorf("%d rules: %v", len(many), err)
	}
}

// Every list that can be read allows exactly what it says again, and nothing
// that is not a name.
func FuzzParseAllow(f *testing.F) {
	for _, s := range []string{"good.test", "*.good.test:8443", "preset:npm", "1.2.3.4", "good.test:0443", "a_b.test", "good.test.", "splice:*.good.test:443"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, entry string) {
		rules, err := ParseAllow([]string{entry}, map[string][]string{"npm": {"npm.test"}})
		if err != nil {
			if cofferdam.KindOf(err) != cofferdam.Invalid {
				t.Errorf("%q: %v", entry, err)
			}
			return
		}
		for _, r := range rules {
			again, err := ParseAllow([]string{r.String()}, nil)
			if err != nil || len(again) != 1 || !again[0].same(r) {
				t.Errorf("%q became %v, which reads as %v, %v", entry, r, again, err)
			}
		}
		if _, err := New(Grant{Allow: rules}); err != nil {
			t.Errorf("%q cannot be compiled: %v", entry, err)
		}
	})
}
