package quota

import (
	"os"
	"path/filepath"
	"testing"
)

// What needs a file system with project quotas is tested with boxes, in
// sandbox/gvisor.

// TestRanges: ids are in the reserved range, and owners do not share any.
func TestRanges(t *testing.T) {
	seen := map[uint32]bool{}
	for own := 0; own < 1<<16; own += 2 {
		p := New([]byte{byte(own >> 8), byte(own), 7})
		last := p.base + projectSlots - 1
		if p.base>>24 != Base>>24 || last>>24 != Base>>24 || p.base%projectSlots != 0 || seen[p.base] {
			t.Fatalf("owner %d has %#x to %#x", own, p.base, last)
		}
		seen[p.base] = true
	}
}

// TestNotEnforced: what is not there, or has no such quotas, is no quota.
func TestNotEnforced(t *testing.T) {
	for _, dir := range []string{"/proc", "/dev", filepath.Join(t.TempDir(), "missing")} {
		if Enforced(dir) {
			t.Errorf("%s enforces project quotas", dir)
		}
		if dir != "/dev" && New([]byte{1, 2}).EndLeftovers(dir) != nil {
			t.Errorf("%s has leftovers", dir)
		}
		if _, err := Read(dir, Base); err == nil {
			t.Errorf("limits of %s were read", dir)
		}
	}
}

// TestBeginRefuses: no folder gets a size that the kernel does not hold, and a
// refused one takes no id.
func TestBeginRefuses(t *testing.T) {
	dir := t.TempDir()
	link := filepath.Join(dir, "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	p := New([]byte{1, 2})
	for _, at := range []string{link, filepath.Join(dir, "missing"), "/proc"} {
		if id, err := p.Begin(at, 1<<20, 10); err == nil || id != 0 || len(p.used) != 0 {
			t.Errorf("%s: id %d, %v, in use %v", at, id, err, p.used)
		}
	}
}
