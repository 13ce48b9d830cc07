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

// A program that nobody started in a namespace goes on as it is.
func TestSettleOutside(t *testing.T) {
	if err := Settle(); err != nil {
		t.Error(err)
	}
}
