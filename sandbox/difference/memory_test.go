package difference

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// TestListHoldsNames: what is held of a folder are the names in it, and its own path once,
// however long that is.
func TestListHoldsNames(t *testing.T) {
	const files = 2000
	dir := t.TempDir()
	for len(dir) < 3500 {
		dir = filepath.Join(dir, strings.Repeat("d", 200))
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for i := range files {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprint(i)), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	f := folder(dir)
	root, err := f.root()
	if err != nil {
		t.Fatal(err)
	}
	before := live()
	all, err := f.list(t.Context(), root)
	if err != nil || len(all) != files {
		t.Fatalf("%d files, %v", len(all), err)
	}
	if held := live() - before; held > files*512 {
		t.Errorf("%d bytes for each of %d names", held/files, files)
	}
	runtime.KeepAlive(all)
}

// live is how many bytes somebody still has.
func live() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC() // what the first one found out of use
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
