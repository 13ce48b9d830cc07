package sandbox

import (
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestSignalNamesOneProcess(t *testing.T) {
	for _, pid := range []int{-1 << 31, -2, -1, 0, 1, os.Getpid()} {
		if err := Signal(pid, 0); err == nil { // signal 0 hurts nobody if this fails
			t.Errorf("%d is taken for a process of a box", pid)
		}
	}
	for _, group := range []int{-1, 0, 1, syscall.Getpgrp()} {
		if err := SignalGroup(group, 0); err == nil {
			t.Errorf("%d is taken for a group of a box", group)
		}
	}
	cmd := exec.Command("sleep", "60")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if err := Signal(cmd.Process.Pid, syscall.SIGKILL); err != nil {
		t.Error(err)
	}
	_ = cmd.Wait() // it was killed
	if err := Signal(cmd.Process.Pid, syscall.SIGKILL); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("one that has ended: %v", err)
	}
}

// TestNobodySignalsByNumber: the drivers and the keeper call kill(2) by Signal
// alone. Pid 1 of a box is meant to end all that is in it.
func TestNobodySignalsByNumber(t *testing.T) {
	seen := 0
	for _, root := range []string{".", "../cmd/cofferdam-keeper"} {
		err := filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") || path == "signal.go" {
				return err
			}
			set := token.NewFileSet()
			file, err := parser.ParseFile(set, path, nil, 0)
			if err != nil {
				return err
			}
			seen++
			ast.Inspect(file, func(n ast.Node) bool {
				call, ok := n.(*ast.SelectorExpr)
				if !ok || call.Sel.Name != "Kill" && call.Sel.Name != "Tgkill" {
					return true
				}
				if of, ok := call.X.(*ast.Ident); ok && (of.Name == "unix" || of.Name == "syscall") {
					t.Errorf("%s: kills by number; sandbox.Signal does not take -1 for a process", set.Position(n.Pos()))
				}
				return true
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if seen < 50 {
		t.Errorf("only %d files were read", seen)
	}
}
