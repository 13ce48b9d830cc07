package watch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// small is what an 8 MiB image would hold.
var small = Usage{8 << 20, 2048}

func must(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// TestMeasure: what takes room on the disk counts, once, and nothing outside.
func TestMeasure(t *testing.T) {
	dir, outside := t.TempDir(), t.TempDir()
	data := make([]byte, 1<<20)
	must(t, os.WriteFile(filepath.Join(outside, "big"), data, 0o600))
	before, err := Measure(t.Context(), dir, small)
	must(t, err)
	must(t, os.MkdirAll(filepath.Join(dir, "a/b"), 0o700), os.WriteFile(filepath.Join(dir, "a/b/f"), data, 0o600))
	for i := range 5 {
		must(t, os.Link(filepath.Join(dir, "a/b/f"), filepath.Join(dir, fmt.Sprint("link", i))))
	}
	must(t, os.Symlink(outside, filepath.Join(dir, "out")), os.Symlink("/proc", filepath.Join(dir, "a/proc")), unix.Mkfifo(filepath.Join(dir, "pipe"), 0o600))
	sparse, err := os.Create(filepath.Join(dir, "sparse"))
	must(t, err)
	must(t, sparse.Truncate(1<<40), sparse.Close())
	u, err := Measure(t.Context(), dir, small)
	must(t, err)
	if more := u.Bytes - before.Bytes; u.Files != 12 || more < 1<<20 || more > 1<<20+64<<10 {
		t.Errorf("%+v after %+v", u, before)
	}
	if u.Exceeds(small) || !u.Exceeds(Usage{Bytes: 1 << 30, Files: 11}) || !u.Exceeds(Usage{Bytes: 1 << 20, Files: 100}) {
		t.Errorf("%+v of %+v", u, small)
	}
}

// TestMeasureEnds: it comes to an end whatever the folder is made of, and says so.
func TestMeasureEnds(t *testing.T) {
	deep := t.TempDir()
	must(t, os.MkdirAll(deep+strings.Repeat("/d", MaxDepth-1), 0o700))
	if u, err := Measure(t.Context(), deep, small); err != nil || u.Files != MaxDepth-1 {
		t.Errorf("%d folders below each other: %+v, %v", MaxDepth-1, u, err)
	}
	must(t, os.Mkdir(deep+strings.Repeat("/d", MaxDepth), 0o700))
	if _, err := Measure(t.Context(), deep, small); !errors.Is(err, ErrUncounted) {
		t.Errorf("%d: %v", MaxDepth, err)
	}
	many, most := t.TempDir(), small.Files
	for i := range 2 * most {
		must(t, os.WriteFile(filepath.Join(many, fmt.Sprint(i)), nil, 0o600))
	}
	if u, err := Measure(t.Context(), many, small); err != nil || u.Files != 2*most {
		t.Errorf("%d files: %+v, %v", 2*most, u, err)
	}
	must(t, os.WriteFile(filepath.Join(many, "more"), nil, 0o600))
	if _, err := Measure(t.Context(), many, small); !errors.Is(err, ErrUncounted) {
		t.Errorf("one more: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Measure(ctx, many, small); !errors.Is(err, context.Canceled) {
		t.Errorf("nobody waits for it: %v", err)
	}
	must(t, os.Symlink(many, filepath.Join(deep, "link")))
	for name, path := range map[string]string{"a link": filepath.Join(deep, "link"), "a file": filepath.Join(many, "0"), "nothing": "/no/such"} {
		if _, err := Measure(t.Context(), path, small); err == nil {
			t.Errorf("%s was measured", name)
		}
	}
}

// TestMeasureOfWhatGoes: a folder that is removed while it is counted ends no count:
// who makes and removes folders all the time would not be counted at all.
func TestMeasureOfWhatGoes(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "gone")
	must(t, os.Mkdir(dir, 0o700))
	f, err := os.Open(dir)
	must(t, err)
	must(t, os.Remove(dir))
	m := measure{ctx: t.Context(), most: 10, linked: map[uint64]bool{}}
	must(t, m.folder(f, MaxDepth))
}
