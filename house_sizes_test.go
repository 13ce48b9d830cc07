package cofferdam_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Ceilings of style: a file, a function, a type's methods. Tables are exempt by
// being data, not by being listed here.
const (
	maxFileLines     = 500
	maxFunctionLines = 70
	maxMethods       = 40
)

// manyMethods are the types that may have more methods than maxMethods, and why.
var manyMethods = map[string]string{
	"client.Client":            "one method for each verb of the API, each a line or two",
	"internal/service.Service": "one method for each verb, in one file per noun",
	"internal/service.Memory":  "plays every interface of its neighbours for tests",
	"internal/store.Store":     "one file per noun; each noun's interface is small, and the store implements them all",
}

func TestSizes(t *testing.T) {
	table := rooms(t)
	for _, p := range packages(t) {
		code, methods := 0, map[string]int{}
		for _, f := range p.GoFiles {
			path := filepath.Join(p.Dir, f)
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			code += codeLines(string(text))
			set := token.NewFileSet()
			file, err := parser.ParseFile(set, path, text, 0)
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range file.Decls {
				fn, ok := d.(*ast.FuncDecl)
				if !ok {
					continue
				}
				if n := set.Position(fn.End()).Line - set.Position(fn.Pos()).Line + 1; n > maxFunctionLines {
					t.Errorf("%s/%s: %s has %d lines, more than %d", p.name(), f, fn.Name.Name, n, maxFunctionLines)
				}
				if fn.Recv != nil {
					methods[receiver(fn)]++
				}
			}
		}
		for name, n := range methods {
			if n > maxMethods && manyMethods[p.name()+"."+name] == "" {
				t.Errorf("%s: the type %s has %d methods, more than %d", p.name(), name, n, maxMethods)
			}
		}
		if r, ok := table[p.name()]; ok && code > r.budget {
			t.Errorf("%s has %d code lines, more than its budget of %d", p.name(), code, r.budget)
		}
	}
}

// TestFileSizes holds every file of Go, tests included, to the ceiling.
func TestFileSizes(t *testing.T) {
	list, err := exec.Command("git", "ls-files", "*.go").Output()
	if err != nil {
		t.Skip("needs the repository: " + err.Error())
	}
	for _, path := range strings.Fields(string(list)) {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(string(text), "\n"); n > maxFileLines {
			t.Errorf("%s has %d lines, more than %d", path, n, maxFileLines)
		}
	}
}

// codeLines counts lines that are neither empty nor only a comment.
func codeLines(text string) int {
	n := 0
	for _, l := range strings.Split(text, "\n") {
		if l = strings.TrimSpace(l); l != "" && !strings.HasPrefix(l, "//") {
			n++
		}
	}
	return n
}

func receiver(fn *ast.FuncDecl) string {
	e := fn.Recv.List[0].Type
	if s, ok := e.(*ast.StarExpr); ok {
		e = s.X
	}
	if i, ok := e.(*ast.IndexExpr); ok {
		e = i.X
	}
	if id, ok := e.(*ast.Ident); ok {
		return id.Name
	}
	return "?"
}
