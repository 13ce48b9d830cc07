package cli

import (
	"bytes"
	"cmp"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"cofferdam"
	"cofferdam/internal/doctor"
	"cofferdam/sandbox"
)

// shown is what do prints on a terminal of so many columns; 0: elsewhere.
func shown(t *testing.T, columns int, env map[string]string, color string, do func(a *app)) string {
	t.Helper()
	var out bytes.Buffer
	a := &app{color: color, stdout: &out, System: System{
		Out: &out, Err: &out, Getenv: func(n string) string { return env[n] },
		Terminal: func(any) bool { return columns > 0 }, Width: func() int { return columns },
	}}
	do(a)
	return out.String()
}

var dumb = map[string]string{"TERM": "dumb"}

// TestTablesFit: a table is as wide as the terminal and no wider, its first column
// is whole, and elsewhere all of it is.
func TestTablesFit(t *testing.T) {
	head := []string{"SESSION", "STATE", "TEXT", "AGE"}
	rows := func() [][]string {
		return [][]string{
			{"s-" + strings.Repeat("0", 32), "in review", strings.Repeat("words of it ", 12), "3m"},
			{"s-1", "done", "fix  it\nnow", "1d"},
			{"s-2", "", strings.Repeat("☕", 90), "2h"},
		}
	}
	table := func(a *app) {
		if err := a.table(head, rows()); err != nil {
			t.Error(err)
		}
	}
	for _, columns := range []int{200, 80, 72} {
		out := shown(t, columns, dumb, "", table)
		for line := range strings.Lines(out) {
			if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > columns {
				t.Errorf("%d columns on %d: %s", n, columns, line)
			}
		}
		for _, want := range []string{"s-" + strings.Repeat("0", 32) + "  in review  words of it", "s-1", "done", "  fix it", "3m\n", "1d\n"} {
			if !strings.Contains(out, want) {
				t.Errorf("%d columns lack %q:\n%s", columns, want, out)
			}
		}
	}
	if out := shown(t, 80, dumb, "", table); !strings.Contains(out, "…  3m\n") {
		t.Errorf("a cut cell has no mark:\n%s", out)
	}
	// However narrow it is, a column keeps something.
	if out := shown(t, 10, dumb, "", table); !strings.Contains(out, strings.Repeat("0", 32)+"  in revi…  words o…  3m\n") {
		t.Errorf("10 columns:\n%s", out)
	}
	out := shown(t, 0, nil, "", table)
	if !strings.Contains(out, strings.TrimSpace(strings.Repeat("words of it ", 12))) || !strings.Contains(out, strings.Repeat("☕", 90)) || strings.Contains(out, "…") {
		t.Errorf("elsewhere it is cut:\n%s", out)
	}
	for line := range strings.Lines(out) { // and a row splits at two blanks
		parts := strings.FieldsFunc(strings.ReplaceAll(strings.TrimSpace(line), "  ", "\x00"), func(r rune) bool { return r == 0 })
		if len(parts) != len(head) {
			t.Errorf("%d cells: %q", len(parts), parts)
		}
	}
}

// TestFindingsFold: a finding of any length fits the terminal, and what cannot be
// broken is whole.
func TestFindingsFold(t *testing.T) {
	path := "/" + strings.Repeat("a", 100)
	list := []sandbox.Finding{
		{Name: "short", Level: sandbox.OK, Detail: "all is well"},
		{Name: "long", Level: sandbox.Fail, Detail: strings.Repeat("it said something ", 30), Fix: "apt install " + strings.Repeat("package ", 20)},
		{Name: "a-name-of-more-than-22-characters", Level: sandbox.Warn, Detail: path + " is not there, and neither is " + path},
		{Name: "profile", Level: sandbox.Warn, Detail: "one\x1b[2J", Fix: "write this:\nprofile x {\n  userns,\n}\n"},
		{Name: "silent", Level: sandbox.OK},
	}
	out := shown(t, 80, dumb, "", func(a *app) { screen{a}.findings(list) })
	for line := range strings.Lines(out) {
		line = strings.TrimSuffix(line, "\n")
		if utf8.RuneCountInString(line) > 80 && !strings.Contains(line, path) {
			t.Errorf("%d columns: %s", utf8.RuneCountInString(line), line)
		}
	}
	indent := strings.Repeat(" ", 29)
	for _, want := range []string{
		"ok    short                  all is well\n", "\n" + indent + "something it said", indent + "fix: apt install package", "\n" + indent + "     profile x {\n" + indent + "       userns,\n",
		`one\u001b[2J`, "ok    silent",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("it lacks %q:\n%s", want, out)
		}
	}
	if strings.Count(out, path) != 2 || strings.Count(out, "something") != 30 || strings.Count(out, "package") != 20 {
		t.Errorf("something is lost:\n%s", out)
	}
	out = shown(t, 0, nil, "", func(a *app) { screen{a}.findings(list[:3]) })
	if strings.Count(out, "\n") != 4 {
		t.Errorf("elsewhere it is folded:\n%s", out)
	}
}

// TestTiersOnce: what one tier lacks is not said again of the next, only that it does.
func TestTiersOnce(t *testing.T) {
	weak := func(level string) []sandbox.Finding {
		return []sandbox.Finding{{Name: "kvm", Level: level, Detail: "it crashed", Fix: "buy another"}, {Name: "swap", Level: level, Detail: "it is on"}, {Name: "fine", Level: sandbox.OK, Detail: "yes"}}
	}
	r := doctor.Report{Tier: sandbox.GVisor, Tiers: []sandbox.Survey{
		sandbox.NewSurvey(sandbox.Offer{Tier: sandbox.GVisor}, []sandbox.Finding{{Name: "fine", Level: sandbox.OK}}),
		sandbox.NewSurvey(sandbox.Offer{Tier: sandbox.MicroVM}, weak(sandbox.Fail)),
		sandbox.NewSurvey(sandbox.Offer{Tier: sandbox.Emulated}, append(weak(sandbox.Warn), sandbox.Finding{Name: "own", Level: sandbox.Warn, Detail: "it is slow"})),
	}}
	tiers := func(a *app) { screen{a}.tiers(r) }
	want := `
tiers of box (docs/tiers.md says which protects against what):
gvisor             usable  the one of this server's boxes
microvm            no
  fail  kvm                    it crashed
                               fix: buy another
  fail  swap                   it is on
microvm-emulated   usable
  warn  own                    it is slow
  warn  as above               kvm, swap
`
	if out := shown(t, 0, nil, "", tiers); out != want {
		t.Errorf("%s\nwant%s", out, want)
	}
	r.Tier, r.Items = sandbox.Emulated, weak(sandbox.Warn)
	if out := shown(t, 0, nil, "", tiers); !strings.Contains(out, "\n  fail  as above               kvm, swap\n") || strings.Contains(out, "crashed") {
		t.Errorf("a server of the emulated tier:\n%s", out)
	}
}

// TestColours: words of status have a colour on a terminal that knows them, unless
// somebody wants none, and never anywhere else by themselves.
func TestColours(t *testing.T) {
	for name, c := range map[string]struct {
		columns int
		env     map[string]string
		color   string
		want    bool
	}{
		"terminal":               {80, nil, "", true},
		"auto":                   {80, nil, "auto", true},
		"terminal, no colour":    {80, map[string]string{"NO_COLOR": "1"}, "", false},
		"terminal, empty":        {80, map[string]string{"NO_COLOR": ""}, "", true},
		"terminal, dumb":         {80, dumb, "", false},
		"terminal, never":        {80, nil, "never", false},
		"pipe":                   {0, nil, "", false},
		"pipe, always":           {0, nil, "always", true},
		"no colour, but always":  {80, map[string]string{"NO_COLOR": "1"}, "always", true},
		"pipe, NO_COLOR, always": {0, map[string]string{"NO_COLOR": "1"}, "always", true},
	} {
		out := shown(t, c.columns, c.env, c.color, func(a *app) {
			screen{a}.findings([]sandbox.Finding{{Name: "disk", Level: sandbox.Fail, Detail: "full"}})
			if err := a.table([]string{"TASK", "STATE", "AGE"}, [][]string{{"t-1", string(cofferdam.Done), "1d"}, {"done", string(cofferdam.Queued), "1d"}}); err != nil {
				t.Error(err)
			}
		})
		plain := "fail  disk                   full\nTASK  STATE   AGE\nt-1   done    1d\ndone  queued  1d\n"
		want := plain
		if c.want {
			want = "\x1b[31mfail\x1b[0m  disk                   full\nTASK  STATE   AGE\nt-1   \x1b[32mdone\x1b[0m    1d\ndone  queued  1d\n"
		}
		if out != want {
			t.Errorf("%s: %q", name, out)
		}
	}
	b := newBench(t)
	if code, _, errs := b.run("status", "--color", "blue"); code != 2 || !twoLines(errs) || !strings.Contains(errs, "auto, always, never") {
		t.Errorf("a colour that is none: %d %s", code, errs)
	}
}

// TestConfigView: every setting is shown with its value and where it comes from, in
// one column, on a terminal too, and a hidden one is not.
func TestConfigView(t *testing.T) {
	b := newBench(t)
	b.terminal = true
	b.env["COFFERDAM_TIER"], b.env["HOME"] = "process", "/home/"+strings.Repeat("a", 50)
	file := filepath.Join(t.TempDir(), "c.toml")
	if err := os.WriteFile(file, []byte("parallel = 3\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	out := b.good("config", "view", "--config", file, "--listen", "off")
	at := 0
	for line := range strings.Lines(out) {
		name, value, _ := strings.Cut(line, ":")
		begins := len(name) + 1 + len(value) - len(strings.TrimLeft(value, " "))
		if at = cmp.Or(at, begins); begins != at {
			t.Errorf("a value in column %d, the first in %d: %s", begins, at, line)
		}
	}
	plain := regexp.MustCompile(`: +`).ReplaceAllString(out, ": ")
	for _, want := range []string{"file: " + file + "\n", "tier: process  (environment)\n", "parallel: 3  (file)\n", "listen: -  (flag)\n", "agent-timeout: 1h0m0s  (default)\n", "server: http://127"} {
		if !strings.Contains(plain, want) {
			t.Errorf("it lacks %q:\n%s", want, out)
		}
	}
	if strings.Contains(out, "debug-person") {
		t.Errorf("a debug knob is shown:\n%s", out)
	}
	var got struct {
		Schema   string
		Settings []setting
	}
	if err := json.Unmarshal([]byte(b.good("config", "view", "--json")), &got); err != nil || got.Schema != "cofferdam/config/v1" || len(got.Settings) < 10 {
		t.Errorf("%+v, %v", got, err)
	}
}

// TestWithoutPassword: a password in the address of a server is not shown with it.
func TestWithoutPassword(t *testing.T) {
	for server, want := range map[string]string{
		"https://me:hunter2@proxy.test/": "https://me:xxxxx@proxy.test/",
		"http://me:hunt%er2@127.0.0.1:9": "no URL",
		"http://127.0.0.1:7420":          "http://127.0.0.1:7420",
		"unix:/run/a%b/c@d.sock":         "unix:/run/a%b/c@d.sock",
	} {
		if got := withoutPassword(server); got != want {
			t.Errorf("%s: %s", server, got)
		}
	}
}
