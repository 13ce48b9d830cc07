package cli

import (
	"bytes"
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
