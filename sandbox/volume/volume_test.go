package volume

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"cofferdam"
	"cofferdam/sandbox"
)

const (
	first  = sandbox.WorkspaceID("w-00000000000000000000000000000001")
	second = sandbox.WorkspaceID("w-00000000000000000000000000000002")
	boxA   = cofferdam.BoxID("b-0000000000000000000000000000000a")
	boxB   = cofferdam.BoxID("b-0000000000000000000000000000000b")
	small  = 8 << 20
)

func open(t *testing.T, dir string) *Store {
	t.Helper()
	s, err := Open(dir, sandbox.Process, nil)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *Store) must(t *testing.T, w Want) *Hold {
	t.Helper()
	h, err := s.Attach(t.Context(), w, "")
	if err != nil {
		t.Fatalf("%v (%s)", err, cofferdam.HintOf(err))
	}
	return h
}

func wantKind(t *testing.T, err error, kind cofferdam.Kind) {
	t.Helper()
	if err == nil || cofferdam.KindOf(err) != kind {
		t.Errorf("got %v, want one of kind %s", err, kind)
	}
}

// TestOneHolder: a workspace is in the hands of one box at a time, also when two
// processes use its folder, and a late epoch gets nothing.
func TestOneHolder(t *testing.T) {
	dir := t.TempDir()
	s, other := open(t, dir), open(t, dir)
	h := s.must(t, Want{first, 3, boxA, small})
	if !h.Fresh || h.Size != small || h.Box != boxA {
		t.Errorf("attached: %+v", h.Workspace)
	}
	for _, at := range []*Store{s, other} {
		_, err := at.Attach(t.Context(), Want{first, 4, boxB, small}, "")
		wantKind(t, err, cofferdam.Conflict)
		if err == nil || !strings.Contains(err.Error(), string(boxA)) {
			t.Errorf("does not name the box: %v", err)
		}
		wantKind(t, at.Remove(first), cofferdam.Conflict)
		if e := (*cofferdam.Error)(nil); !errors.As(at.Remove(first), &e) || e.Op != "volume.Remove" {
			t.Errorf("removing it is called %+v", e)
		}
		if all, err := at.List(); err != nil || len(all) != 1 || all[0].Box != boxA || all[0].Epoch != 3 {
			t.Errorf("listed: %+v %v", all, err)
		}
	}
	if err := h.Release(nil); err != nil {
		t.Fatal(err)
	}
	if err := h.Release(errors.New("late")); err != nil {
		t.Errorf("releasing twice: %v", err)
	}
	_, err := other.Attach(t.Context(), Want{first, 2, boxB, small}, "")
	wantKind(t, err, cofferdam.Conflict)
	again := other.must(t, Want{first, 3, boxB, 16 << 20})
	if again.Fresh || again.Size != small {
		t.Errorf("attached again: %+v", again.Workspace)
	}
	if err := again.Release(nil); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(s.Remove(first), s.Remove(first)); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
	if h := s.must(t, Want{first, 0, boxA, small}); !h.Fresh {
		t.Error("one that was removed is not made anew")
	}
}

// TestOnlyOneOfMany lets many ask at once.
func TestOnlyOneOfMany(t *testing.T) {
	s := open(t, t.TempDir())
	var got sync.Map
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			if h, err := s.Attach(context.Background(), Want{first, 1, boxA, small}, ""); err == nil {
				got.Store(h, true)
			} else if cofferdam.KindOf(err) != cofferdam.Conflict {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	n := 0
	got.Range(func(any, any) bool { n++; return true })
	if n != 1 {
		t.Errorf("%d have it", n)
	}
}

// TestReleaseIsABarrier: what cannot be written keeps its holder.
func TestReleaseIsABarrier(t *testing.T) {
	s := open(t, t.TempDir())
	h := s.must(t, Want{first, 1, boxA, small})
	calls, broken := 0, errors.New("input/output error")
	s.sync = func(path string) error {
		if calls++; path != h.Image {
			t.Errorf("wrote %s", path)
		}
		return broken
	}
	full := errors.New("no space left")
	if err := h.Release(full); !errors.Is(err, full) || calls != 0 {
		t.Errorf("the box's file system failed: %v, %d calls", err, calls)
	}
	if err := h.Release(nil); !errors.Is(err, broken) || calls != 1 {
		t.Errorf("the image failed: %v, %d calls", err, calls)
	}
	_, err := s.Attach(t.Context(), Want{first, 2, boxB, small}, "")
	wantKind(t, err, cofferdam.Conflict)
	s.sync = syncFile
	if err := h.Release(nil); err != nil {
		t.Fatal(err)
	}
	s.must(t, Want{first, 2, boxB, small})
}

// TestOpenRemovesHalf: what a killed process had half made is no workspace, and
// what another is about to make stays.
func TestOpenRemovesHalf(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	h := s.must(t, Want{first, 1, boxA, small})
	for _, name := range []string{half(first), half(second), string(second) + ".gone"} {
		if err := os.MkdirAll(filepath.Join(dir, name, "deep"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	again := open(t, dir)
	for name, want := range map[string]bool{half(first): true, half(second): false, string(second) + ".gone": false, string(first): true} {
		if _, err := os.Stat(filepath.Join(dir, name)); (err == nil) != want {
			t.Errorf("%s is there: %v, want %v", name, err == nil, want)
		}
	}
	if all, err := again.List(); err != nil || len(all) != 1 || all[0].ID != first {
		t.Errorf("listed %+v %v", all, err)
	}
	if err := h.Release(nil); err != nil {
		t.Fatal(err)
	}
}

func TestBadWants(t *testing.T) {
	s := open(t, t.TempDir())
	for name, w := range map[string]Want{
		"no id": {"", 1, boxA, small}, "a path": {"w-../../../../etc/000000000000000000", 1, boxA, small}, "upper case": {"w-0000000000000000000000000000000A", 1, boxA, small},
		"negative epoch": {first, -1, boxA, small}, "no size": {first, 1, boxA, 0}, "no box": {first, 1, "", small},
	} {
		if _, err := s.Attach(t.Context(), w, ""); cofferdam.KindOf(err) != cofferdam.Invalid || err == nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	_, err := s.Attach(t.Context(), Want{first, 1, boxA, 1 << 60}, "")
	wantKind(t, err, cofferdam.Exhausted)
	if err == nil || !strings.Contains(err.Error(), "1099511627776 MiB") {
		t.Errorf("does not name the size: %v", err)
	}
	wantKind(t, s.Remove("w-x"), cofferdam.Invalid)
	// A description that says another thing than its folder is not believed.
	h := s.must(t, Want{first, 1, boxA, small})
	if err := h.Release(nil); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(s.folder(first), aboutFile), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = s.Attach(t.Context(), Want{first, 2, boxA, small}, "")
	wantKind(t, err, cofferdam.Unavailable)
	if all, err := s.List(); err != nil || len(all) != 1 || all[0].ID != first {
		t.Errorf("listed: %+v %v", all, err)
	}
}

func half(id sandbox.WorkspaceID) string { return string(id) + ".new" }
