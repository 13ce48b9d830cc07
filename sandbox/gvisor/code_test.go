package gvisor

import (
	"bytes"
	"debug/elf"
	"strings"
	"testing"

	"cofferdam/sandbox"
)

// TestRename: the program is one segment that cannot be written; it gives a name
// of any length that a Spec may have, and no command of the box may run it to any
// effect.
func TestRename(t *testing.T) {
	f, err := elf.NewFile(bytes.NewReader(programOf(renameCode, 0)))
	if err != nil || len(f.Progs) != 1 || f.Progs[0].Flags != elf.PF_R|elf.PF_X {
		t.Fatalf("%+v, %v", f, err)
	}
	d := newDriver(t)
	b := newBox(t, d, func(s *sandbox.Spec) { s.Hostname = "first" }).(*box)
	for _, name := range []string{"a", "t-42", strings.Repeat("x", 63)} {
		if err := nameBox(d.conf, b.container, name); err != nil {
			t.Fatal(err)
		}
		if got, r := sh(t, b, "uname -n"); got != name || r.Exit != 0 {
			t.Errorf("the box is called %q, want %q", got, name)
		}
	}
	before, _ := sh(t, b, "uname -n")
	said, _ := sh(t, b, "printf mine | /"+programDir+"/"+renameName+" | od -An -tu1")
	if after, _ := sh(t, b, "uname -n"); said != "1" || after != before {
		t.Errorf("a command renamed the box to %q: it said %q", after, said)
	}
}
