package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"cofferdam"
	"cofferdam/internal/service"
	"cofferdam/policy"
)

// TestPolicyDocument and TestEgressDocument follow docs/policy.md and docs/egress.md.
func TestPolicyDocument(t *testing.T) { followPolicies(t, "policy.md", 12) }
func TestEgressDocument(t *testing.T) { followPolicies(t, "egress.md", 1) }

// followPolicies follows a document: every file that a toml block names is there,
// every line of a console block after a $ is run in order, and prints what the block
// shows below it. "…" at the end of a line stands for its rest.
func followPolicies(t *testing.T, name string, least int) {
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", name))
	if err != nil {
		t.Fatal(err)
	}
	b := newBench(t)
	b.env["HOME"] = t.TempDir()
	task := b.shop()
	worked(t, b, task)
	t.Chdir(t.TempDir())
	ran := 0
	for _, m := range regexp.MustCompile("(?ms)^```(toml|console)(?: (\\S+))?\n(.*?)^```$").FindAllStringSubmatch(string(text), -1) {
		if m[1] == "toml" {
			if m[2] == "" {
				if _, err := policy.ParseDocument(policy.ProjectName, []byte(m[3]), nil); err != nil {
					t.Errorf("a part of a policy cannot be read: %v\n%s", err, m[3])
				}
				continue
			}
			if err := os.WriteFile(m[2], []byte(m[3]), 0o600); err != nil {
				t.Fatal(err)
			}
			continue
		}
		for _, part := range strings.Split("\n"+m[3], "\n$ ")[1:] {
			line, want, _ := strings.Cut(part, "\n")
			ran++
			if got := b.line(line); !shows(want, got) {
				t.Errorf("$ %s\n%s--- the document has\n%s", line, got, want)
			}
		}
	}
	if ran < least {
		t.Errorf("%d commands were run", ran)
	}
}

// line runs one line of a document at a terminal, and returns all that it prints.
func (b *bench) line(line string) string {
	b.t.Helper()
	line, to, _ := strings.Cut(line, " > ")
	var args []string
	for i, part := range strings.Split(line, `"`) {
		if i%2 == 1 {
			args = append(args, part)
		} else {
			args = append(args, strings.Fields(part)...)
		}
	}
	person := strings.Contains(line, " approve ") || strings.Contains(line, " reject ") // only they need a terminal, in which tables are cut to fit
	b.in, b.terminal = strings.NewReader(service.MemoryPassword+"\n"), person
	_, out, errs := b.run(args[1:]...)
	if to != "" {
		if err := os.WriteFile(to, []byte(out), 0o600); err != nil {
			b.t.Fatal(err)
		}
		out = ""
	}
	if strings.HasSuffix(out, ": ") { // what is typed at a prompt ends its line
		out += "\n"
	}
	return out + errs
}

// shows says whether got is what a document shows.
func shows(want, got string) bool {
	var b strings.Builder
	for line := range strings.Lines(want) {
		start, rest := strings.CutSuffix(strings.TrimRight(line, " \n"), "…")
		b.WriteString(regexp.QuoteMeta(start))
		if rest {
			b.WriteString("[^\n]*")
		}
		b.WriteString(" *\n")
	}
	return regexp.MustCompile("^" + strings.TrimRight(b.String(), "\n") + "\n*$").MatchString(strings.TrimRight(got, "\n") + "\n")
}

// worked gives a task a session that asked for three things.
func worked(t *testing.T, b *bench, task cofferdam.Task) {
	t.Helper()
	b.m.AddSession(cofferdam.Session{ID: "s-0001", Task: task.ID, Phase: "work"})
	for _, q := range []policy.Query{
		{Action: policy.HTTP, Host: "docs.example.com", Port: 443, Method: "GET", Path: "/guide"},
		{Action: policy.HTTP, Host: "tracker.example.com", Port: 443, Method: "GET", Path: "/repos/acme/issues"},
		{Action: policy.HTTP, Host: "tracker.example.com", Port: 443, Method: "POST", Path: "/repos/acme/issues"},
	} {
		text, err := json.Marshal(q)
		if err != nil {
			t.Fatal(err)
		}
		b.m.Emit("s-0001", cofferdam.Event{
			Kind: cofferdam.EventRequest, Resource: q.Method + " " + string(q.Host) + q.Path, Verdict: cofferdam.Refused, Rule: policy.DefaultDeny,
			Fields: map[string]string{cofferdam.FieldQuery: string(text)},
		})
	}
}

// What only a person does is refused where nobody is, and bad words of a person
// change nothing.
func TestPolicyAtATerminal(t *testing.T) {
	b := newBench(t)
	t.Chdir(t.TempDir())
	if err := os.WriteFile("p.toml", []byte("[egress]\nallow = [\"a.example.com\"]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	b.good("policy", "propose", "p.toml")
	for _, args := range [][]string{{"policy", "approve", "1"}, {"policy", "reject", "1"}, {"policy", "approve", "1", "--no-input"}} {
		if code, _, errs := b.run(args...); code != 9 || !strings.Contains(errs, "no terminal") {
			t.Errorf("%v: exit %d\n%s", args, code, errs)
		}
	}
	b.terminal = true
	for _, c := range []struct{ typed, version, says string }{
		{"wrong\n", "1", "it does not hold"},
		{"\n", "1", "it does not hold"},
		{"", "1", "there was none"},
		{service.MemoryPassword + "\n", "2", "no such version"},
		{"x\n", "0", "no number"},
		{"x\n", "-1", ""},
		{"x\n", "one", "no number"},
		{"x\n", "99999999999999999999", "no number"},
	} {
		b.in = strings.NewReader(c.typed)
		if code, out, errs := b.run("policy", "approve", c.version); code == 0 || !strings.Contains(errs, c.says) || !strings.Contains(errs, "hint: ") {
			t.Errorf("%q, version %s: exit %d\n%s%s", c.typed, c.version, code, out, errs)
		}
	}
	b.terminal = false
	if code, _, errs := b.run("policy", "view"); code == 0 || !strings.Contains(errs, "no such version") {
		t.Errorf("something counts\n%s", errs)
	}
	for _, args := range [][]string{{"policy", "propose", "none.toml"}, {"policy", "propose", "."}, {"policy", "check", "none.toml"}, {"policy", "view", "1", "2"}, {"policy", "suggest", "t-9"}, {"policy", "replay", "p.toml", "t-9"}, {"policy", "explain", "a.example.com"}, {"policy", "explain", "--file", "p.toml", "--of", "t-1", "https://a.example.com"}} {
		if code, _, errs := b.run(args...); code == 0 || !strings.Contains(errs, "hint: ") {
			t.Errorf("%v: exit %d\n%s", args, code, errs)
		}
	}
	// What an agent or a stranger wrote cannot steer the terminal.
	if err := os.WriteFile("evil.toml", []byte("[[egress.rule]]\nid = \"x\"\neffect = \"allow\"\nhosts = [\"a.example.com\"]\nwhy = \"\\u001b[2Jfine\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	out := b.good("policy", "propose", "evil.toml", "--why", "\x1b[1Ahidden\u202etxt")
	if out += b.good("policy", "view", "2") + b.good("policy", "list"); strings.ContainsAny(out, "\x1b\u202e") || !strings.Contains(out, `\u001b[1Ahidden`) {
		t.Errorf("%q", out)
	}
}

// Classes are listed and printed, a policy is put under one and taken out of it
// again, and what cannot be is refused with a hint.
func TestPolicyClasses(t *testing.T) {
	b := newBench(t)
	t.Chdir(t.TempDir())
	for name, text := range map[string]string{
		"p.toml": "[egress]\nallow = [\"a.example.com\"]\n", "two.toml": "class = \"write\"\nclass = \"write\"\n",
		"org.toml": "second_person = true\n[egress]\nlimit = [\"a.example.com\"]\n", "bad.toml": "class = \"root\"\n",
	} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if out := b.good("policy", "class", "-q"); out != "read-only\nask-to-write\nwrite\n" {
		t.Errorf("%q", out)
	}
	for _, c := range policy.Classes() {
		if out := b.good("policy", "class", c.Name); out != c.Text {
			t.Errorf("%s:\n%s", c.Name, out)
		}
	}
	b.good("policy", "check", "org.toml", "--organization")
	b.good("policy", "diff", "org.toml", "org.toml", "--organization")
	decide := func(version string) {
		t.Helper()
		b.in, b.terminal = strings.NewReader(service.MemoryPassword+"\n"), true
		b.good("policy", "approve", version)
		b.terminal = false
	}
	b.good("policy", "propose", "--class", "write") // nothing counts yet
	b.good("policy", "propose", "p.toml", "--class", "read-only")
	decide("2")
	if out := b.good("policy", "view", "--text"); !strings.HasPrefix(out, "class = \"read-only\"\n[egress]\n") || !strings.Contains(out, "[base]") {
		t.Errorf("%s", out)
	}
	b.good("policy", "propose", "--class", "ask-to-write")
	decide("3")
	if out := b.good("policy", "view", "--text"); !strings.HasPrefix(out, "class = \"ask-to-write\"\n[egress]\nallow = [\"a.example.com\"]") || strings.Count(out, "[base]") != 1 {
		t.Errorf("%s", out)
	}
	b.good("policy", "propose", "--class", "none")
	decide("4")
	if out := b.good("policy", "view", "--text"); strings.TrimSpace(out) != "[egress]\nallow = [\"a.example.com\"]" {
		t.Errorf("%q", out)
	}
	for _, args := range [][]string{
		{"policy", "class", "root"},
		{"policy", "class", "a", "b"},
		{"policy", "propose"},
		{"policy", "propose", "--class", "root"},
		{"policy", "propose", "two.toml", "--class", "write"},
		{"policy", "propose", "bad.toml"},
		{"policy", "check", "bad.toml"},
		{"policy", "check", "org.toml"},
		{"policy", "check", "org.toml", "--organization", "--above", "org.toml"},
		{"policy", "suggest"},
		{"policy", "suggest", "t-1", "--promotion"},
		{"policy", "propose", "none.toml", "--class", "write"},
	} {
		if code, _, errs := b.run(args...); code == 0 || !strings.Contains(errs, "hint: ") {
			t.Errorf("%v: exit %d\n%s", args, code, errs)
		}
	}
}

// The page of a question hides nothing: what moves the cursor, what turns the
// direction, letters that look like others, and blanks that push the rest away.
func TestExactBytes(t *testing.T) {
	for in, want := range map[string]string{
		"a b":                                  `  | a b\(no line end)`,
		"rm\r\x1b[2Kls\n":                      `  | rm\u{d}\u{1b}[2Kls`,
		"x\u202etxt.exe\n":                     `  | x\u{202e}txt.exe`,
		"pay\u200bpal\n":                       `  | pay\u{200b}pal`,
		"g\u043e\u043ed.test\n":                `  | g\u{43e}\u{43e}d.test`,
		"ls" + strings.Repeat(" ", 4000) + "x": `  | ls\(4000 blanks)x\(no line end)`,
		"ls" + strings.Repeat(" ", 16) + "x\n": `  | ls                x`,
		"a\\nb\n":                              `  | a\\nb`,
		"a\tb\r\n":                             `  | a\u{9}b\r`,
		"\xff\xfe\n":                           `  | \xff\xfe`,
		"one\ntwo\n":                           "  | one\n  | two",
		"\n\n":                                 "  | \n  | ",
		"":                                     "",
	} {
		if got := exactBytes([]byte(in)); got != want {
			t.Errorf("%q is shown as %q, not %q", in, got, want)
		}
	}
}
