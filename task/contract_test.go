package task_test

import (
	"strings"
	"testing"

	"cofferdam"
	"cofferdam/task"
)

// TestContractOfATask: paths are those of git, from the root; what could be read
// in two ways is refused.
func TestContractOfATask(t *testing.T) {
	check := func(c cofferdam.Contract) error {
		r := request()
		r.Contract = &c
		return task.Check(r)
	}
	for _, good := range [][]string{nil, {"src/"}, {"README"}, {"a b/c.txt", ".github/", "ä/", "..x"}} {
		if err := check(cofferdam.Contract{Paths: good}); err != nil {
			t.Errorf("%q: %v", good, err)
		}
	}
	for _, bad := range []string{"", "/", "/src/", "../x", "a/../b", "a//b", "./a", "a/.", "*.go", "a?", "[a]", "a\x00", "a\nb", "a\xff", strings.Repeat("a", 1025)} {
		wantKind(t, check(cofferdam.Contract{Paths: []string{"src/", bad}}), cofferdam.Invalid)
	}
	wantKind(t, check(cofferdam.Contract{Mark: true}), cofferdam.Invalid)
	wantKind(t, check(cofferdam.Contract{Paths: make([]string, 201)}), cofferdam.Invalid)
	c := &cofferdam.Contract{Paths: []string{"src/", "README"}}
	if got := strings.Join(c.Beyond([]string{"src/a", "src", "srcs/a", "README", "README/x", "Src/a"}), " "); got != "src srcs/a README/x Src/a" {
		t.Errorf("beyond it: %s", got)
	}
}
