package cofferdam_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// cases are the ids that the sandbox has to be shown by.
func cases() (ids []string) {
	some := func(kind string, numbers ...int) {
		for _, n := range numbers {
			ids = append(ids, fmt.Sprintf("%s-%02d", kind, n))
		}
	}
	for n := 1; n <= 20; n++ {
		some("CMP", n)
	}
	some("RES", 1, 2, 3, 4, 5, 6, 7, 8)
	some("XTK", 1, 2, 3, 4, 5, 6, 7)
	some("BUD", 1, 2)
	some("SCP", 1)
	some("U", 5, 7, 8, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 24)
	some("BR", 24, 26, 29, 34, 35)
	return ids
}

// TestCases: testdata/README.md says of every case which script holds it, the
// script names the case in the prose it opens with, and every script that is
// called by an id is in the table or tells of a case that is none of the sandbox's.
func TestCases(t *testing.T) {
	text, err := os.ReadFile("testdata/README.md")
	if err != nil {
		t.Fatal(err)
	}
	held := map[string]string{}
	for _, m := range regexp.MustCompile("(?m)^\\| ([A-Z]+-[0-9]+) \\| `([^`]+)` \\|").FindAllStringSubmatch(string(text), -1) {
		if held[m[1]] != "" {
			t.Errorf("testdata/README.md has %s twice", m[1])
		}
		held[m[1]] = m[2]
	}
	kinds := map[string]bool{}
	for _, id := range cases() {
		kinds[id] = true
		script, err := os.ReadFile(filepath.Join("testdata", filepath.FromSlash(held[id])))
		if held[id] == "" || err != nil {
			t.Errorf("testdata/README.md names no script for %s: %v", id, err)
			continue
		}
		prose, _, _ := strings.Cut(string(script), "\n\n")
		if !regexp.MustCompile(id + `\b`).MatchString(prose) {
			t.Errorf("testdata/%s does not open with what it does about %s", held[id], id)
		}
		delete(held, id)
	}
	for id, script := range held {
		t.Errorf("testdata/README.md has %s (%s), which is no case", id, script)
	}
	for _, f := range tracked(t, "testdata/attacks/*.txtar", "testdata/everyday/*.txtar") {
		id := strings.TrimSuffix(filepath.Base(f), ".txtar")
		kind, _, _ := strings.Cut(id, "-")
		if (kind == "CMP" || kind == "RES" || kind == "XTK") && !kinds[id] && !strings.HasPrefix(id, kind+"-run") {
			t.Errorf("%s is called by no id that there is", f)
		}
	}
}
