package microvm

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// What a keeper that was killed had half made is removed by the next one: half a
// root is as large as its image.
func TestHalfIsRemoved(t *testing.T) {
	d := &Driver{o: Options{Root: t.TempDir(), Cache: t.TempDir()}}
	old := time.Now().Add(-2 * time.Hour)
	for path, stays := range map[string]bool{
		filepath.Join(d.o.Root, "view-1"): false, filepath.Join(d.o.Cache, ".new-1"): false, filepath.Join(d.o.Cache, "root-1"): true,
	} {
		if err := os.MkdirAll(path, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, old, old); err != nil {
			t.Fatal(err)
		}
		if err := d.dropHalf(); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Lstat(path); (err == nil) != stays {
			t.Errorf("%s: %v", filepath.Base(path), err)
		}
	}
	young := filepath.Join(d.o.Cache, ".new-2") // another process may be making it
	if err := os.WriteFile(young, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := d.dropHalf(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(young); err != nil {
		t.Error(err)
	}
}
