package volume

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"cofferdam"
	"cofferdam/sandbox"
	"cofferdam/sandbox/sandboxtest"
	"cofferdam/sandbox/watch"
)

func must(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// TestFolders: a workspace that is a folder is counted when it is given back and
// when it is taken, and one that no box could have is refused.
func TestFolders(t *testing.T) {
	s, err := Open(t.TempDir(), sandbox.GVisor, func(_ context.Context, path string, _ int64) error { return os.Mkdir(path, 0o700) })
	must(t, err)
	h := s.must(t, Want{first, 1, boxA, small})
	must(t, os.WriteFile(filepath.Join(h.Image, "f"), make([]byte, 2<<20), 0o600), h.Release(nil))
	used := func() int64 {
		t.Helper()
		all, err := s.List()
		if err != nil || len(all) != 1 {
			t.Fatalf("%+v, %v", all, err)
		}
		return all[0].Used
	}
	if n := used(); n < 2<<20 || n > 3<<20 {
		t.Errorf("given back with %d bytes", n)
	}
	must(t, os.WriteFile(filepath.Join(h.Image, "g"), make([]byte, 2<<20), 0o600))
	h = s.must(t, Want{first, 2, boxA, small})
	if h.Used < 4<<20 {
		t.Errorf("taken with %d bytes", h.Used)
	}
	must(t, os.MkdirAll(h.Image+strings.Repeat("/d", watch.MaxDepth), 0o700), h.Release(nil))
	_, err = s.Attach(t.Context(), Want{first, 3, boxA, small}, "")
	wantKind(t, err, cofferdam.Exhausted)
	sandboxtest.Nest(t, h.Image+strings.Repeat("/d", watch.MaxDepth), 2000) // deeper than a keeper may have files open
	sandboxtest.FewFiles(t)
	must(t, s.Remove(first))
}
