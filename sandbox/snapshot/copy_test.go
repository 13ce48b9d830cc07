package snapshot

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// TestCopyInMemory: a copy that is no clone is what it was copied of, holes and all.
func TestCopyInMemory(t *testing.T) {
	from, to := filepath.Join(t.TempDir(), "from"), filepath.Join(memory(t), "to")
	text := bytes.Repeat([]byte("0123456789abcdef"), (8<<20+4096)/16)
	f, err := os.Create(from)
	must(t, err)
	_, err = f.WriteAt(text, 1<<20)
	must(t, err, f.Truncate(16<<20), f.Close())
	must(t, Copy(from, to))
	want, err := os.ReadFile(from)
	must(t, err)
	if got, err := os.ReadFile(to); err != nil || !bytes.Equal(got, want) {
		t.Errorf("the copy has %d bytes and differs, %v", len(got), err)
	}
}

// memory is a folder in memory, which no file is cloned into.
func memory(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "cofferdam-copy-")
	must(t, err)
	t.Cleanup(func() { must(t, os.RemoveAll(dir)) })
	return dir
}
