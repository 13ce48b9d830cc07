package userns

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"cofferdam"
)

func TestRanges(t *testing.T) {
	file := filepath.Join(t.TempDir(), "sub")
	for _, c := range []struct {
		text string
		want span
		said string // in the error; "" for none
	}{
		{"me:100000:65536\n", span{100000, 65536}, ""},
		{"1000:100000:65536\n", span{100000, 65536}, ""},
		{"you:1:70000\nme:100000:10\nme:300000:65535\nme:200000:65536", span{200000, 65536}, ""},
		{"me:100000:65534\n", span{}, "65534 ids, and 65535 are needed"},
		{"you:100000:65536\nmetoo:100000:65536\n", span{}, "no range"},
		{"", span{}, "no range"},
		{"me:-1:65536\nme:x:65536\nme:1:99999999999999\nme:1\n:::\n\x00\xff\n", span{}, "no range"},
		{strings.Repeat("x", 1<<17), span{}, "too long"},
	} {
		if err := os.WriteFile(file, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := idRange(file, "me", 1000)
		if got != c.want || (err == nil) != (c.said == "") || err != nil && !strings.Contains(err.Error(), c.said) {
			t.Errorf("%.60q: %v, %v", c.text, got, err)
		}
		if err != nil && (cofferdam.KindOf(err) != cofferdam.Unavailable || !strings.Contains(cofferdam.HintOf(err), "usermod --add-subuids")) {
			t.Errorf("%.60q: hint %q", c.text, cofferdam.HintOf(err))
		}
	}
	if _, err := idRange(file+"none", "me", 1000); err == nil || cofferdam.HintOf(err) == "" {
		t.Errorf("no file: %v", err)
	}
}

// What uid 0 is outside is read from any map that a kernel writes.
func TestOutside(t *testing.T) {
	for text, want := range map[string]string{
		"         0       1000          1\n         1     100000      65536\n": "1000",
		"         1     100000      65536\n         0       1001          1\n": "1001",
		"         0          0 4294967295\n":                                   "0",
		"         1     100000      65536\n":                                   "",
		"":                                                                     "",
		"0 1000\n":                                                             "",
		"0 1000 0\n":                                                           "",
		strings.Repeat("x", 1e5):                                               "",
	} {
		if got, ok := outside(strings.NewReader(text)); got != want || ok != (want != "") {
			t.Errorf("%.60q: %q, %v", text, got, ok)
		}
	}
}

// A program that nobody started in a namespace goes on as it is.
func TestSettleOutside(t *testing.T) {
	if err := Settle(); err != nil {
		t.Error(err)
	}
}

// What forbids user namespaces is named with its fix, as Ubuntu, Debian and a
// hardened host have it: here in a folder in the place of /proc.
func TestForbidden(t *testing.T) {
	for name, c := range map[string]struct {
		file, text, want string
	}{
		"Ubuntu":         {"sys/kernel/apparmor_restrict_unprivileged_userns", "1\n", "{\n  userns,\n"},
		"Ubuntu, open":   {"sys/kernel/apparmor_restrict_unprivileged_userns", "0\n", "the host must let users"},
		"Debian":         {"sys/kernel/unprivileged_userns_clone", "0\n", "sysctl kernel.unprivileged_userns_clone=1"},
		"none":           {"sys/user/max_user_namespaces", "0\n", "sysctl user.max_user_namespaces="},
		"some":           {"sys/user/max_user_namespaces", "10\n", "the host must let users"},
		"not there":      {"sys/other", "", "the host must let users"},
		"unread, a file": {"sys", "", "the host must let users"},
	} {
		proc := t.TempDir()
		if err := os.MkdirAll(filepath.Dir(filepath.Join(proc, c.file)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(proc, c.file), []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := forbidden(proc); !strings.Contains(got, c.want) {
			t.Errorf("%s: %q", name, got)
		}
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Base(self)
	if got := AppArmor(); !strings.Contains(got, "/etc/apparmor.d/"+name+" ") || !strings.Contains(got, "\nabi <abi/4.0>,\n") || !strings.Contains(got, "profile "+name+` "`+self+`" flags=(unconfined) {`+"\n  userns,\n") {
		t.Errorf("%q", got)
	}
}
