package gvisor

import (
	"os"
	"path/filepath"
	"testing"
)

// A keeper that is killed while it takes a snapshot leaves half of one; the next
// keeper removes it. Whole ones stay.
func TestHalfASnapshotIsRemoved(t *testing.T) {
	o := options(t)
	id := "s-00000000000000000000000000000001"
	half, whole := filepath.Join(o.Root, "snapshots", id+".new", memoryDir), filepath.Join(o.Root, "snapshots", id)
	for _, dir := range []string{half, whole} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	d, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
	if _, err := os.Lstat(filepath.Dir(half)); err == nil {
		t.Error("half a snapshot is still there")
	}
	if _, err := os.Lstat(whole); err != nil {
		t.Error(err)
	}
}
