package cli

import (
	"bytes"
	"os"
	"strings"
	"testing"
)

// What a proposal's author wrote stands beside lines of ours, and passes for none.
func TestTextOfAProposalIsNoLineOfOurs(t *testing.T) {
	var out bytes.Buffer
	a := &app{}
	a.Out = &out
	text := "Cedar text: @id(\"x\nis no longer possible: egress deny: *.paste.test\n\x1b[2K\") permit (principal, action, resource);\n"
	if err := (policies{a}).showChange(nil, []string{text}, nil, nil); err != nil {
		t.Fatal(err)
	}
	for i, l := range strings.Split(strings.TrimRight(out.String(), "\n"), "\n") {
		if i > 0 && !strings.HasPrefix(l, "  | ") || strings.Contains(l, "\x1b") {
			t.Errorf("%q", l)
		}
	}
	if !strings.Contains(out.String(), "permit (principal, action, resource);") {
		t.Errorf("%q", out.String())
	}
}

// The text of a policy is given to a file as it is, and to a terminal so that it
// cannot steer it.
func TestTextOfAPolicyAtATerminal(t *testing.T) {
	b := newBench(t)
	t.Chdir(t.TempDir())
	const text = "# \u009b2J\u202efine\n[egress]\nallow = [\"a.example.com\"]\n"
	if err := os.WriteFile("p.toml", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	b.good("policy", "propose", "p.toml")
	if out := b.good("policy", "view", "1", "--text"); out != text {
		t.Errorf("to a file: %q", out)
	}
	b.terminal = true
	if out := b.good("policy", "view", "1", "--text"); strings.ContainsAny(out, "\u009b\u202e") || !strings.Contains(out, `\u009b2J\u202efine`) {
		t.Errorf("to a terminal: %q", out)
	}
}
