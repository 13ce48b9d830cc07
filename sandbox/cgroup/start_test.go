package cgroup

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestStartWaits: no program starts while Alone does what it was given.
func TestStartWaits(t *testing.T) {
	started := make(chan error, 1)
	err := Alone(func() error {
		go func() {
			cmd := exec.Command("true")
			err := Start(cmd)
			started <- err
			if err == nil {
				_ = cmd.Wait() // it does nothing
			}
		}()
		select {
		case err := <-started:
			t.Errorf("a program was started meanwhile: %v", err)
		case <-time.After(100 * time.Millisecond): // one that does not wait needs a few
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := <-started; err != nil {
		t.Error(err)
	}
}

// TestDriversUseStart: no room below this one starts a program in another way.
func TestDriversUseStart(t *testing.T) {
	found := 0
	err := filepath.WalkDir("..", func(path string, e fs.DirEntry, err error) error {
		if err == nil && e.IsDir() && (e.Name() == "testdata" || e.Name() == "sandboxtest") {
			return filepath.SkipDir
		}
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") || path == "../cgroup/start.go" {
			return err
		}
		files := token.NewFileSet()
		f, err := parser.ParseFile(files, path, nil, 0)
		if err != nil {
			return err
		}
		ast.Inspect(f, func(n ast.Node) bool {
			of, what := called(n)
			if of == "cgroup" && what == "Start" {
				found++
			}
			if of == "cmd" && slices.Contains([]string{"Start", "Run", "Output", "CombinedOutput"}, what) || what == "ForkExec" || what == "StartProcess" {
				t.Errorf("%s: %s.%s starts a program that may end with a box it is no part of: use cgroup.Start", files.Position(n.Pos()), of, what)
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if found < 5 {
		t.Errorf("control: Start is found %d times", found)
	}
}

// called names the function that n calls, and the last name of what it is of.
func called(n ast.Node) (of, what string) {
	call, ok := n.(*ast.CallExpr)
	if !ok {
		return "", ""
	}
	f, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return "", ""
	}
	switch x := f.X.(type) {
	case *ast.Ident:
		of = x.Name
	case *ast.SelectorExpr:
		of = x.Sel.Name
	}
	return of, f.Sel.Name
}
