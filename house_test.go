package cofferdam_test

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// room is one row of the import table in ARCHITECTURE.md.
type room struct {
	imports []string
	budget  int
}

// pkg is what "go list -json" says of a package of this module.
type pkg struct {
	ImportPath, Dir, Doc           string
	Imports, GoFiles, XTestGoFiles []string
}

func rooms(t *testing.T) map[string]room {
	t.Helper()
	text, err := os.ReadFile("ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	row := regexp.MustCompile("(?m)^\\| `([^`]+)` \\| [^|]+ \\|([^|]*)\\| ([0-9,]+) \\|$")
	quoted := regexp.MustCompile("`([^`]+)`")
	table := map[string]room{}
	for _, m := range row.FindAllStringSubmatch(string(text), -1) {
		r := room{}
		for _, q := range quoted.FindAllStringSubmatch(m[2], -1) {
			r.imports = append(r.imports, q[1])
		}
		r.budget, err = strconv.Atoi(strings.ReplaceAll(m[3], ",", ""))
		if err != nil {
			t.Fatal(err)
		}
		table[m[1]] = r
	}
	if len(table) < 10 {
		t.Fatalf("the import table in ARCHITECTURE.md has %d readable rows", len(table))
	}
	return table
}

func packages(t *testing.T) []pkg {
	t.Helper()
	out, err := exec.Command("go", "list", "-json=ImportPath,Dir,Doc,Imports,GoFiles,XTestGoFiles", "./...").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var all []pkg
	for d := json.NewDecoder(bytes.NewReader(out)); d.More(); {
		var p pkg
		if err := d.Decode(&p); err != nil {
			t.Fatal(err)
		}
		if len(p.GoFiles) > 0 {
			all = append(all, p)
		}
	}
	return all
}

// name is the room a package stands in: its path below the module.
func (p pkg) name() string {
	if p.ImportPath == "cofferdam" {
		return "."
	}
	return strings.TrimPrefix(p.ImportPath, "cofferdam/")
}

func TestImports(t *testing.T) {
	table := rooms(t)
	seen := map[string]bool{}
	for _, p := range packages(t) {
		r, ok := table[p.name()]
		seen[p.name()] = true
		if !ok {
			t.Errorf("%s has no row in ARCHITECTURE.md's import table", p.name())
			continue
		}
		for _, allowed := range r.imports {
			if allowed != "*" && !slices.Contains(p.Imports, "cofferdam/"+allowed) {
				t.Errorf("ARCHITECTURE.md allows %s to import %s, which it does not need", p.name(), allowed)
			}
		}
		for _, i := range p.Imports {
			if i == "cofferdam" || !strings.HasPrefix(i, "cofferdam/") || slices.Contains(r.imports, "*") {
				continue
			}
			if i = strings.TrimPrefix(i, "cofferdam/"); !slices.Contains(r.imports, i) {
				t.Errorf("%s imports %s, which ARCHITECTURE.md does not allow", p.name(), i)
			}
			if i == "internal/daemon" && p.name() != "cmd/cofferdam-server" {
				t.Errorf("%s imports internal/daemon; only cmd/cofferdam-server may", p.name())
			}
		}
	}
	for name := range table {
		if !seen[name] {
			t.Errorf("ARCHITECTURE.md has a row for %s, but there is no such package", name)
		}
	}
}

func TestPackageDocs(t *testing.T) {
	for _, p := range packages(t) {
		doc := packageComment(t, p)
		if strings.Count(doc, ". ")+strings.Count(doc, ".\n")+strings.Count(doc, ".") < 2 || len(doc) < 80 {
			t.Errorf("%s has a package comment of less than two sentences: %q", p.name(), doc)
		}
	}
}

// packageComment returns the whole comment above the package clause.
func packageComment(t *testing.T, p pkg) string {
	t.Helper()
	longest := ""
	for _, f := range p.GoFiles {
		text, err := os.ReadFile(filepath.Join(p.Dir, f))
		if err != nil {
			t.Fatal(err)
		}
		head, _, _ := strings.Cut("\n"+string(text), "\npackage ")
		if len(head) > len(longest) {
			longest = head
		}
	}
	return longest
}

// TestBannedNames keeps drawers out: folders, files and types that could hold anything.
func TestBannedNames(t *testing.T) {
	drawers := []string{"util", "utils", "common", "shared", "helper", "helpers", "misc", "base", "core", "types", "models", "manager", "impl"}
	for _, p := range packages(t) {
		if slices.Contains(drawers, filepath.Base(p.name())) {
			t.Errorf("the room %s has a drawer's name", p.name())
		}
		for _, f := range p.GoFiles {
			if slices.Contains(drawers, strings.TrimSuffix(f, ".go")) {
				t.Errorf("%s/%s has a drawer's name", p.name(), f)
			}
			text, err := os.ReadFile(filepath.Join(p.Dir, f))
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range regexp.MustCompile(`(?m)^type (\w*(Manager|Helper|Impl|Util))\b`).FindAllStringSubmatch(string(text), -1) {
				t.Errorf("%s/%s: the type %s has a drawer's name", p.name(), f, m[1])
			}
		}
	}
}

// TestDependencies: each direct module has its line and reason, and no mock
// generator or assertion library is among them.
func TestDependencies(t *testing.T) {
	mod, err := os.ReadFile("go.mod")
	if err != nil {
		t.Fatal(err)
	}
	lines, err := os.ReadFile("docs/dependencies.md")
	if err != nil {
		t.Fatal(err)
	}
	direct := regexp.MustCompile(`(?m)^\t(\S+) v\S+$`).FindAllStringSubmatch(string(mod), -1)
	if len(direct) < 5 {
		t.Fatalf("go.mod has %d readable direct requirements", len(direct))
	}
	for _, m := range direct {
		if !strings.Contains(string(lines), "| "+m[1]+" |") {
			t.Errorf("docs/dependencies.md does not say why %s is required", m[1])
		}
		for _, banned := range []string{"testify", "gomock", "mock", "gomega", "ginkgo", "gorm"} {
			if strings.HasSuffix(m[1], "/"+banned) {
				t.Errorf("go.mod requires %s directly", m[1])
			}
		}
	}
}

// TestGuestDeps and TestProofDeps: what runs in every box, and what an auditor
// runs, gain no dependency unnoticed.
func TestGuestDeps(t *testing.T) {
	compareDeps(t, "./cmd/cofferdam-init", "testdata/deps/cofferdam-init.txt")
}
func TestProofDeps(t *testing.T) { compareDeps(t, "./proof", "testdata/deps/proof.txt") }

// TestClientDeps: the command line starts fast because it links nothing large.
// Of gVisor it has the network stack alone, for run, which costs a start less
// than a millisecond.
func TestClientDeps(t *testing.T) {
	for _, d := range deps(t, "./cmd/cofferdam") {
		for _, large := range []string{"gvisor.dev/gvisor/runsc", "gvisor.dev/gvisor/pkg/sentry", "github.com/vishvananda/netlink", "go.temporal.io/", "modernc.org/sqlite", "google.golang.org/grpc", "cofferdam/internal/daemon"} {
			if strings.HasPrefix(d, large) {
				t.Errorf("cmd/cofferdam links %s", d)
			}
		}
	}
}

func deps(t *testing.T, path string) []string {
	t.Helper()
	out, err := exec.Command("go", "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", path).Output()
	if err != nil {
		t.Fatalf("go list -deps %s: %v", path, err)
	}
	list := strings.Fields(string(out))
	slices.Sort(list)
	return list
}

func compareDeps(t *testing.T, path, file string) {
	t.Helper()
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	got := strings.Join(deps(t, path), "\n") + "\n"
	if got != string(want) {
		t.Errorf("the dependencies of %s changed; look at each, then write them into %s:\n%s", path, file, got)
	}
}
