package policy

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"cofferdam"
)

func TestParseProject(t *testing.T) {
	p, err := ParseProject([]byte(`
# what this repository needs
[egress]
allow = ["registry.test", "*.cdn.test:8443", "preset:npm"]

[limits]
memory = "2GiB"
disk = 1048576
temp = "512MiB"
cpu = 1.5
pids = 256
open_files = 1024
`))
	want := Project{
		Narrows: true, Allow: []Rule{{ID: "allow-1", Pattern: "registry.test", Port: 0, Origin: "registry.test", Splice: false}, {ID: "allow-2", Pattern: "*.cdn.test", Port: 8443, Origin: "*.cdn.test:8443", Splice: false}},
		Presets: []string{"npm"},
		Limits:  cofferdam.Limits{Memory: 2 << 30, Disk: 1 << 20, Temp: 512 << 20, CPU: 1.5, PIDs: 256, OpenFiles: 1024},
	}
	if d := cmp.Diff(want, p); err != nil || d != "" {
		t.Errorf("%v %s", err, d)
	}
	for text, narrows := range map[string]bool{
		"": false, "# only a comment\n": false, "[egress]\n": false, "[egress]\nallow = []\n": true, "[limits]\ncpu = 1\n": false,
	} {
		if p, err := ParseProject([]byte(text)); err != nil || p.Narrows != narrows || len(p.Allow) != 0 {
			t.Errorf("%q: %+v, %v", text, p, err)
		}
	}
	for text, want := range map[string]string{
		"[egress]\nallow = []\nalow = []\n":        `line 3: the key "egress.alow" is unknown`,
		"colour = 1\n":                             `line 1: the key "colour" is unknown`,
		"\n[network]\nx = 1\n":                     `line 2: the key "network" is unknown`,
		"[egress]\nallow = \"good.test\"\n":        `line 2: key "egress.allow": wrong type of value: text needs quotes`,
		"egress = 1\n":                             `line 1: key "egress": wrong type of value`,
		"[egress]\nallow = [\"\"]\n":               "entry 1",
		"[egress]\nallow = [\"*\"]\n":              "entry 1",
		"[egress]\nallow = [\"preset:\"]\n":        "entry 1",
		"[egress]\nallow = null\n":                 "line 2",
		"[egress]\nallow = [1]\n":                  "line 2",
		"[egress\n":                                "line 1",
		"\x00\xff":                                 "line 1",
		"[limits]\nmemory = \"lots\"\n":            "limits.memory",
		"[limits]\nmemory = -1\n":                  "limits.memory",
		"[limits]\nmemory = 1.5\n":                 "limits.memory",
		"[limits]\nmemory = \"99999999999GiB\"\n":  "limits.memory",
		"[limits]\ncpu = nan\n":                    "limits.cpu",
		"[limits]\ncpu = 0.0\n":                    "limits.cpu",
		"[limits]\npids = 0\n":                     "limits.pids",
		"[limits]\nopen_files = \"many\"\n":        "line 2",
		"# " + strings.Repeat("x", maxProject):     "larger than",
		"[egress]\nallow = []\n[egress]\nx = []\n": "line 3",
	} {
		_, err := ParseProject([]byte(text))
		if err == nil || cofferdam.KindOf(err) != cofferdam.Invalid || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), ProjectPath) || strings.Contains(err.Error(), "struct") {
			t.Errorf("%.60q: %v, want %q", text, err, want)
		}
	}
}

func FuzzParseProject(f *testing.F) {
	f.Add([]byte("[egress]\nallow = [\"good.test\", \"preset:npm\"]\n[limits]\ncpu = 1\nmemory = \"1GiB\"\n"))
	f.Add([]byte("[egress]\nallow = null\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		p, err := ParseProject(text)
		if err != nil {
			if cofferdam.KindOf(err) != cofferdam.Invalid {
				t.Errorf("%v", err)
			}
			return
		}
		// Whatever it says, nothing is added to what was granted.
		g, err := Grant{Allow: allow(t, "good.test", "*.wild.test:8443")}.Narrow(p)
		if err != nil {
			return
		}
		s, err := New(g)
		if err != nil {
			t.Fatalf("the narrowed grant cannot be compiled: %v", err)
		}
		for _, r := range p.Allow {
			host := cofferdam.Host(strings.Replace(r.Pattern, "*", "x", 1))
			for _, port := range []uint16{80, 443, 8443, r.Port} {
				q := Query{Action: Connect, Host: host, Port: port}
				if s.Decide(q).Verdict == cofferdam.Allowed && compile(t, Grant{Allow: allow(t, "good.test", "*.wild.test:8443")}).Decide(q).Verdict != cofferdam.Allowed {
					t.Errorf("%s:%d was added", host, port)
				}
			}
		}
	})
}

func TestNarrow(t *testing.T) {
	npm := map[string][]string{"npm": {"registry.npm.test"}}
	for _, c := range []struct{ granted, project, want, dropped string }{
		{"good.test", "good.test", "good.test", ""},
		{"good.test", "evil.test", "", "evil.test"},
		{"good.test", "", "", ""},
		{"good.test,other.test", "good.test,evil.test", "good.test", "evil.test"},
		{"*.wild.test", "a.wild.test", "a.wild.test", ""},
		{"a.wild.test,b.wild.test,c.test", "*.wild.test", "a.wild.test,b.wild.test", ""},
		{"*.wild.test", "*.sub.wild.test", "*.sub.wild.test", ""},
		{"*.sub.wild.test", "*.wild.test", "*.sub.wild.test", ""},
		{"*.wild.test", "wild.test", "", "wild.test"},
		{"*.wild.test", "evilwild.test", "", "evilwild.test"},
		{"good.test", "good.test:443", "good.test:443", ""},
		{"good.test:443", "good.test", "good.test:443", ""},
		{"good.test:8443", "good.test", "", "good.test"},
		{"good.test", "good.test:8443", "", "good.test:8443"},
		{"good.test:22", "good.test:23", "", "good.test:23"},
		{"preset:npm,good.test", "preset:npm", "registry.npm.test", ""},
		{"good.test", "preset:npm", "", "preset:npm"},
		{"splice:good.test", "good.test", "splice:good.test", ""},
		{"good.test", "splice:good.test", "good.test", ""},
		{"good.test", "splice:evil.test", "", "splice:evil.test"},
		{"*.wild.test", "splice:a.wild.test:443", "a.wild.test:443", ""},
		{"*.wild.test,splice:a.wild.test", "a.wild.test", "splice:a.wild.test", ""},
		{"splice:*.wild.test,a.wild.test", "a.wild.test", "a.wild.test", ""},
		{"splice:*.wild.test,a.wild.test", "*.wild.test", "a.wild.test,splice:*.wild.test", ""},
		{"*.a.test,*.b.test", "x.a.test,x.b.test,x.c.test", "x.a.test,x.b.test", "x.c.test"},
	} {
		granted, err := ParseAllow(split(c.granted), npm)
		if err != nil {
			t.Fatal(err)
		}
		p, err := ParseProject([]byte("[egress]\nallow = [" + quoted(c.project) + "]\n"))
		if err != nil {
			t.Fatal(err)
		}
		g, err := Grant{Allow: granted, Repo: "r-1", Operator: "// x"}.Narrow(p)
		if err != nil {
			t.Fatal(err)
		}
		if got := join(g.Allow); got != c.want || join(g.Dropped) != c.dropped {
			t.Errorf("%s narrowed by %s: %q, dropped %q", c.granted, c.project, got, join(g.Dropped))
		}
		if g.Repo != "r-1" || g.Operator != "// x" {
			t.Errorf("%s narrowed by %s lost the rest: %+v", c.granted, c.project, g)
		}
		for i, r := range g.Allow {
			if r.ID != number(make([]Rule, i+1))[i].ID {
				t.Errorf("rule %d has the id %s", i, r.ID)
			}
		}
	}
	g := Grant{Allow: allow(t, "good.test")}
	if same, err := g.Narrow(Project{}); err != nil || len(same.Allow) != 1 {
		t.Errorf("a project without a list: %+v, %v", same, err)
	}
}

func TestNarrowLimits(t *testing.T) {
	p := Project{Limits: cofferdam.Limits{Memory: 10, CPU: 0.5, PIDs: 1000}}
	got := p.NarrowLimits(cofferdam.Limits{Memory: 20, Disk: 5, CPU: 2, PIDs: 100, OpenFiles: 7})
	want := cofferdam.Limits{Memory: 10, Disk: 5, CPU: 0.5, PIDs: 100, OpenFiles: 7}
	if got != want {
		t.Errorf("%+v", got)
	}
}

func split(s string) []string {
	if s == "" {
		return nil
	}
	return strings.Split(s, ",")
}

func quoted(s string) string {
	var out []string
	for _, e := range split(s) {
		out = append(out, `"`+e+`"`)
	}
	return strings.Join(out, ",")
}

func join(rules []Rule) string {
	var out []string
	for _, r := range rules {
		out = append(out, r.String())
	}
	return strings.Join(out, ",")
}
