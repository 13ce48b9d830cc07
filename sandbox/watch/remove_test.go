package watch

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"cofferdam/sandbox/sandboxtest"
)

// TestRemove: folders go that nest deeper than this process may have files open, and
// nothing outside does.
func TestRemove(t *testing.T) {
	dir, outside := t.TempDir(), filepath.Join(t.TempDir(), "kept")
	must(t, os.WriteFile(outside, nil, 0o600), os.Mkdir(filepath.Join(dir, "x"), 0o700))
	path := filepath.Join(dir, "x")
	for i := range 3 {
		tree := filepath.Join(path, fmt.Sprint(i), "a\nb")
		must(t, os.MkdirAll(tree, 0o700), os.Symlink(filepath.Dir(outside), filepath.Join(tree, "out")), os.Link(outside, filepath.Join(tree, "link")))
		must(t, unix.Mkfifo(filepath.Join(tree, "pipe"), 0o600), os.WriteFile(filepath.Join(tree, "closed"), nil, 0))
		sandboxtest.Nest(t, tree, 2000)
	}
	sandboxtest.FewFiles(t)
	if os.RemoveAll(filepath.Join(path, "0")) == nil {
		t.Error("control: these are not too deep")
	}
	must(t, Remove(path))
	if list, err := os.ReadDir(dir); err != nil || len(list) > 0 {
		t.Errorf("left: %v, %v", list, err)
	}
	if _, err := os.Stat(outside); err != nil {
		t.Error(err)
	}
	must(t, Remove(path)) // what is not there is no error
	must(t, os.Symlink(outside, path), Remove(path))
	if _, err := os.Stat(outside); err != nil {
		t.Error(err)
	}
}
