package snapshot

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"time"

	"cofferdam/sandbox/cgroup"
)

// TestCopyIsNoBoxs: nothing is copied while this process is in the group of a box
// that is being made, which would pay for the copy; and a copy of several chunks is
// what it was copied of, holes and all.
func TestCopyIsNoBoxs(t *testing.T) {
	from, to := filepath.Join(t.TempDir(), "from"), filepath.Join(memory(t), "to")
	text := bytes.Repeat([]byte("0123456789abcdef"), (2*copyChunk+4096)/16)
	f, err := os.Create(from)
	must(t, err)
	_, err = f.WriteAt(text, 1<<20)
	must(t, err, f.Truncate(4*copyChunk), f.Close())
	copied := make(chan error, 1)
	err = cgroup.Alone(func() error {
		go func() { copied <- Copy(from, to) }()
		select {
		case err := <-copied:
			t.Errorf("it was copied meanwhile: %v", err)
		case <-time.After(100 * time.Millisecond): // one that does not wait needs a few
		}
		return nil
	})
	must(t, err, <-copied)
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
