package cofferdam_test

import (
	"go/token"
	"go/types"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"cofferdam"
)

// TestSpecification: every number in docs/SPECIFICATION.md names the test that
// holds it, and that test exists.
func TestSpecification(t *testing.T) {
	text, err := os.ReadFile("docs/SPECIFICATION.md")
	if err != nil {
		t.Fatal(err)
	}
	tests := testNames(t)
	rows := 0
	for _, l := range strings.Split(string(text), "\n") {
		if !strings.HasPrefix(l, "| ") || strings.HasPrefix(l, "| what ") || strings.HasPrefix(l, "|--") || strings.HasPrefix(l, "|---") {
			continue
		}
		cells := strings.Split(strings.Trim(l, "| "), "|")
		held := strings.TrimSpace(cells[len(cells)-1])
		rows++
		if held == "not measured here" {
			continue
		}
		for _, name := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(held, -1) {
			if !tests[name[1]] {
				t.Errorf("SPECIFICATION.md names the test %s, which does not exist: %s", name[1], l)
			}
		}
		if !strings.Contains(held, "`") {
			t.Errorf("SPECIFICATION.md: no test is named for: %s", l)
		}
	}
	if rows < 10 {
		t.Errorf("SPECIFICATION.md has only %d rows that could be read", rows)
	}
}

// constantIn evaluates "name = expression" or "name: expression" in a file.
func constantIn(t *testing.T, file, name string) string {
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`\b` + name + `(?:\s*=|:)\s*([0-9_]+(?:\s*<<\s*[0-9]+)?)`).FindStringSubmatch(string(text))
	if m == nil {
		return "not there"
	}
	v, err := types.Eval(token.NewFileSet(), nil, token.NoPos, m[1])
	if err != nil {
		t.Fatal(err)
	}
	return v.Value.ExactString()
}

// numberIn reads the number of such as "at most 1 MiB".
func numberIn(says string) string {
	m := regexp.MustCompile(`([0-9][0-9,]*)(?: ([KMG]iB))?`).FindStringSubmatch(says)
	n, err := strconv.ParseInt(strings.ReplaceAll(m[1], ",", ""), 10, 64)
	if err != nil {
		return err.Error()
	}
	return strconv.FormatInt(n<<map[string]int{"": 0, "KiB": 10, "MiB": 20, "GiB": 30}[m[2]], 10)
}

// testNames returns every Go test, benchmark and fuzz target, and every script
// as its path below testdata.
func testNames(t *testing.T) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	fn := regexp.MustCompile(`(?m)^func ((?:Test|Benchmark|Fuzz)\w+)\(`)
	for _, f := range tracked(t, "*.go", "*.txtar") {
		if strings.HasSuffix(f, ".txtar") {
			names[strings.TrimPrefix(f, "testdata/")] = true
			continue
		}
		text, err := os.ReadFile(f)
		if err != nil {
			continue // deleted, not yet committed
		}
		for _, m := range fn.FindAllStringSubmatch(string(text), -1) {
			names[m[1]] = true
		}
	}
	return names
}

// tracked returns the files of the tree that match, committed or about to be.
func tracked(t *testing.T, patterns ...string) []string {
	t.Helper()
	args := append([]string{"ls-files", "-co", "--exclude-standard", "--"}, patterns...)
	out, err := exec.Command("git", args...).Output()
	if err != nil {
		t.Skip("needs git and a checkout: " + err.Error())
	}
	return strings.Fields(string(out))
}

// TestExitCodes: every kind of error has a status, an exit code and a hint.
func TestExitCodes(t *testing.T) {
	kinds := cofferdam.Kinds()
	for k := cofferdam.Internal; k <= cofferdam.Tampered; k++ {
		i, ok := kinds[k]
		if !ok || i.Name == "" || i.HTTP == 0 || i.Exit == 0 || i.Hint == "" || i.Retry == "" {
			t.Errorf("kind %d is incomplete: %+v", k, i)
		}
		if cofferdam.ParseKind(i.Name) != k {
			t.Errorf("kind %d does not survive its name %q", k, i.Name)
		}
	}
	if len(kinds) != int(cofferdam.Tampered)+1 {
		t.Errorf("there are %d kinds in the table and %d constants", len(kinds), cofferdam.Tampered+1)
	}
}

// TestWords: an event's prefix names the room it is about, and every noun of
// the command line has a file of its name in cli and in api or service.
func TestWords(t *testing.T) {
	text, err := os.ReadFile("event.go")
	if err != nil {
		t.Fatal(err)
	}
	prefixes := map[string]string{
		"exec": "sandbox", "agent": "agent", "egress": "gateway/egress", "wire": "gateway/wire", "git": "gateway/git",
		"model": "gateway/model", "session": "session", "task": "task", "proof": "proof", "merge": "merge", "trace": "trace", "workspace": "workspace", "approval": "approval", "budget": "budget", "identity": "identity", "policy": "policy", "sandbox": "sandbox",
		"secret": "secret", "tool": "agent/loop",
	}
	for _, m := range regexp.MustCompile(`= "([a-z]+)\.[a-z]+"`).FindAllStringSubmatch(string(text), -1) {
		dir, ok := prefixes[m[1]]
		if _, err := os.Stat(filepath.Join(".", dir)); !ok || err != nil {
			t.Errorf("event prefix %q is no room", m[1])
		}
	}
	for _, noun := range []string{"task", "session", "merge", "repo", "model", "trace", "proof", "workspace", "approval", "policy"} {
		if _, err := os.Stat(filepath.Join("internal/cli", noun+".go")); err != nil {
			t.Errorf("the noun %s has no file of its name in internal/cli", noun)
		}
		if _, err := os.Stat(filepath.Join("internal/service", noun+".go")); err != nil {
			t.Errorf("the noun %s has no file of its name in internal/service", noun)
		}
	}
}

// TestMakefile: at most fifteen targets, each with a line of help.
func TestMakefile(t *testing.T) {
	text, err := os.ReadFile("Makefile")
	if err != nil {
		t.Fatal(err)
	}
	targets := regexp.MustCompile(`(?m)^([a-z]+):(.*)$`).FindAllStringSubmatch(string(text), -1)
	if len(targets) > 15 {
		t.Errorf("the Makefile has %d targets", len(targets))
	}
	for _, m := range targets {
		if !strings.Contains(m[2], "## ") {
			t.Errorf("the target %s has no help line", m[1])
		}
	}
}

// TestDocumentSizes: a longer document is a sign of a tree to simplify.
func TestDocumentSizes(t *testing.T) {
	for file, limit := range map[string]int{"ARCHITECTURE.md": 400, "CONTRIBUTING.md": 150, "AGENTS.md": 20} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Error(err)
			continue
		}
		if n := strings.Count(string(text), "\n"); n > limit {
			t.Errorf("%s has %d lines, more than %d", file, n, limit)
		}
	}
}
