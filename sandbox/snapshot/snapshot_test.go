package snapshot

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"cofferdam"
	"cofferdam/sandbox"
)

func newID() sandbox.SnapshotID { return sandbox.SnapshotID(cofferdam.NewID("s")) }

func newStore(t *testing.T) *Store {
	t.Helper()
	st := &Store{Dir: filepath.Join(t.TempDir(), "snapshots"), Tier: "test"}
	must(t, st.Sweep())
	return st
}

func must(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

func wantKind(t *testing.T, what string, err error, want cofferdam.Kind) {
	t.Helper()
	if err == nil || cofferdam.KindOf(err) != want {
		t.Errorf("%s: got error %v, want one of kind %s", what, err, want)
	}
}

// fill puts into a snapshot what drivers put there.
func fill(s *Stored) error {
	return errors.Join(
		os.WriteFile(s.Path("memory"), []byte("memory"), 0o600), os.MkdirAll(s.Path(Tree+"/deep"), 0o700),
		os.WriteFile(s.Path(Tree+"/deep/file"), []byte("work"), 0o644), os.Symlink("/etc/passwd", s.Path(Tree+"/link")),
		os.WriteFile(s.Path(Tree+"/hole"), nil, 0o600), os.Truncate(s.Path(Tree+"/hole"), 1<<40), // which nobody could read in time
	)
}

// keep takes a snapshot.
func keep(t *testing.T, st *Store, id sandbox.SnapshotID) *Stored {
	t.Helper()
	s, err := st.Add(sandbox.Take{ID: id, Memory: true}, sandbox.Spec{}, 0)
	must(t, err)
	must(t, fill(s), st.Keep(t.Context(), s))
	return s
}

func list(t *testing.T, st *Store) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(st.Dir)
	must(t, err)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// TestHalfIsSwept: what a keeper that was killed left, in the middle of taking a
// snapshot or of removing one, is never opened and goes at the next start.
func TestHalfIsSwept(t *testing.T) {
	st := newStore(t)
	whole := keep(t, st, newID())
	taking, err := st.Add(sandbox.Take{ID: newID(), Memory: true}, sandbox.Spec{}, 0)
	must(t, err)
	must(t, fill(taking))
	described, err := st.Add(sandbox.Take{ID: newID(), Memory: true}, sandbox.Spec{}, 0)
	must(t, err)
	must(t, fill(described))
	_, err = described.describe(t.Context(), st)
	must(t, err) // killed just before its rename
	removing := keep(t, st, newID())
	must(t, os.Remove(removing.Path(description)))
	next := &Store{Dir: st.Dir, Tier: "test"}
	for name, s := range map[string]*Stored{"half taken": taking, "not renamed": described, "half removed": removing} {
		_, _, err := next.Open(t.Context(), cofferdam.Scope{}, s.ID, "")
		wantKind(t, name, err, cofferdam.NotFound)
	}
	must(t, next.Sweep())
	if got := list(t, next); len(got) != 1 || got[0] != string(whole.ID) {
		t.Errorf("left: %q, want only the whole one", got)
	}
	_, release, err := next.Open(t.Context(), cofferdam.Scope{}, whole.ID, "")
	must(t, err)
	release()
}

// TestTamperedIsRefused: one changed byte, name or link target anywhere in a
// snapshot, also by a keeper that has proved it before.
func TestTamperedIsRefused(t *testing.T) {
	for name, change := range map[string]func(*Stored) error{
		"memory":    func(s *Stored) error { return os.WriteFile(s.Path("memory"), []byte("memoru"), 0o600) },
		"file":      func(s *Stored) error { return os.WriteFile(s.Path(Tree+"/deep/file"), []byte("wock"), 0o644) },
		"new file":  func(s *Stored) error { return os.WriteFile(s.Path("more"), nil, 0o600) },
		"file gone": func(s *Stored) error { return os.Remove(s.Path("memory")) },
		"link": func(s *Stored) error {
			return errors.Join(os.Remove(s.Path(Tree+"/link")), os.Symlink("/etc/shadow", s.Path(Tree+"/link")))
		},
		"time":                  func(s *Stored) error { return os.Chtimes(s.Path(Tree+"/deep/file"), time.Time{}, time.Unix(1, 0)) },
		"name of one file more": func(s *Stored) error { return os.Link(s.Path(Tree+"/deep/file"), s.Path(Tree+"/hard")) },
		"file instead of a hole": func(s *Stored) error {
			f, err := os.OpenFile(s.Path(Tree+"/hole"), os.O_WRONLY, 0)
			if err != nil {
				return err
			}
			_, err = f.WriteAt([]byte{1}, 1<<39)
			return errors.Join(err, f.Close())
		},
		"length of a hole": func(s *Stored) error { return os.Truncate(s.Path(Tree+"/hole"), 1<<40+1) },
		"mode":             func(s *Stored) error { return os.Chmod(s.Path(Tree+"/deep/file"), 0o4755) },
		"link for it": func(s *Stored) error {
			return errors.Join(os.Remove(s.Path("memory")), os.Symlink("/etc/passwd", s.Path("memory")))
		},
		"description": func(s *Stored) error { return os.WriteFile(s.Path(description), []byte("{}"), 0o600) },
		"digest taken out": func(s *Stored) error {
			bare := *s
			bare.Digest = ""
			data, err := json.Marshal(bare)
			return errors.Join(err, os.WriteFile(s.Path(description), data, 0o600), os.WriteFile(s.Path("memory"), []byte("memoru"), 0o600))
		},
		"no JSON": func(s *Stored) error { return os.WriteFile(s.Path(description), nil, 0o600) },
	} {
		t.Run(name, func(t *testing.T) {
			st := newStore(t)
			s, early := keep(t, st, newID()), keep(t, st, newID())
			_, release, err := st.Open(t.Context(), cofferdam.Scope{}, s.ID, "")
			must(t, err)
			release()
			must(t, change(s), change(early)) // early was never opened: Keep alone has read it
			_, _, err = st.Open(t.Context(), cofferdam.Scope{}, early.ID, "")
			wantKind(t, "open what was kept", err, cofferdam.Tampered)
			must(t, st.Remove(early.ID))
			_, _, err = st.Open(t.Context(), cofferdam.Scope{}, s.ID, "")
			wantKind(t, "open", err, cofferdam.Tampered)
			must(t, st.Remove(s.ID))
			if got := list(t, st); len(got) != 0 {
				t.Errorf("left: %q", got)
			}
		})
	}
}

// TestReadOnce: what Keep has read is not read again while nobody touches it,
// and is by the next keeper.
func TestReadOnce(t *testing.T) {
	st := newStore(t)
	s := keep(t, st, newID())
	for range 2 {
		_, release, err := st.Open(t.Context(), cofferdam.Scope{}, s.ID, "")
		must(t, err)
		release()
	}
	if len(st.proved) != 1 {
		t.Errorf("%d stamps, want the one of Keep", len(st.proved))
	}
	next := &Store{Dir: st.Dir, Tier: "test"}
	_, release, err := next.Open(t.Context(), cofferdam.Scope{}, s.ID, "")
	must(t, err)
	release()
	if len(next.proved) != 1 {
		t.Error("the next keeper has proved nothing")
	}
}

// TestNobodyWaitsForAProof: while a snapshot is read to be proved, which takes as long
// as it is large, others are taken, listed, kept and opened.
func TestNobodyWaitsForAProof(t *testing.T) {
	st := newStore(t)
	s := keep(t, st, newID())
	st.proving.Lock()
	defer st.proving.Unlock()
	done := make(chan error, 1)
	go func() {
		other, err := st.Add(sandbox.Take{ID: newID(), Memory: true}, sandbox.Spec{}, 0)
		if err == nil {
			err = errors.Join(fill(other), st.Keep(t.Context(), other))
		}
		_, lerr := st.List()
		_, release, oerr := st.Open(t.Context(), cofferdam.Scope{}, s.ID, "")
		if oerr == nil {
			release()
		}
		done <- errors.Join(err, lerr, oerr)
	}()
	select {
	case err := <-done:
		must(t, err)
	case <-time.After(time.Minute):
		t.Fatal("they wait for it")
	}
}

// TestBounds: ids that are none, too many snapshots, and more bytes than the
// disk has, what is being taken included.
func TestBounds(t *testing.T) {
	st := newStore(t)
	for _, bad := range []sandbox.SnapshotID{"", "s-1", "../../etc", "s-0123456789abcdef0123456789abcdeF", "s-0123456789abcdef0123456789abcdef\n"} {
		_, err := st.Add(sandbox.Take{ID: bad, Memory: true}, sandbox.Spec{}, 0)
		wantKind(t, "add", err, cofferdam.Invalid)
		_, _, err = st.Open(t.Context(), cofferdam.Scope{}, bad, "")
		wantKind(t, "open", err, cofferdam.Invalid)
		wantKind(t, "remove", st.Remove(bad), cofferdam.Invalid)
	}
	const all = 1 << 60
	_, err := st.Add(sandbox.Take{ID: newID(), Memory: true}, sandbox.Spec{}, all)
	wantKind(t, "more than the disk", err, cofferdam.Exhausted)
	first, err := st.Add(sandbox.Take{ID: newID(), Memory: true}, sandbox.Spec{}, 0)
	must(t, err)
	st.adding[first.ID].need = all
	_, err = st.Add(sandbox.Take{ID: newID(), Memory: true}, sandbox.Spec{}, 0)
	wantKind(t, "beside one that may need the disk", err, cofferdam.Exhausted)
	wantKind(t, "room", st.Room(0), cofferdam.Exhausted)
	_, err = st.Add(sandbox.Take{ID: first.ID, Memory: true}, sandbox.Spec{}, 0)
	wantKind(t, "twice at once", err, cofferdam.Conflict)
	must(t, st.Drop(first), st.Room(0))
	for range MaxSnapshots {
		_, err := st.Add(sandbox.Take{ID: newID(), Memory: true}, sandbox.Spec{}, 0)
		must(t, err)
	}
	_, err = st.Add(sandbox.Take{ID: newID(), Memory: true}, sandbox.Spec{}, 0)
	wantKind(t, "too many", err, cofferdam.Exhausted)
}

// TestRemovedUnderAReader: who has a snapshot open has all of it; nobody else
// finds it, and the last reader takes its files away.
func TestRemovedUnderAReader(t *testing.T) {
	st := newStore(t)
	id := newID()
	keep(t, st, id)
	s, release, err := st.Open(t.Context(), cofferdam.Scope{}, id, "")
	must(t, err)
	must(t, st.Remove(id), st.Remove(id))
	_, _, err = st.Open(t.Context(), cofferdam.Scope{}, id, "")
	wantKind(t, "open", err, cofferdam.NotFound)
	_, err = st.Add(sandbox.Take{ID: id, Memory: true}, sandbox.Spec{}, 0)
	wantKind(t, "add", err, cofferdam.Conflict)
	if data, err := os.ReadFile(s.Path("memory")); err != nil || string(data) != "memory" {
		t.Errorf("the reader: %q, %v", data, err)
	}
	release()
	release()
	if got := list(t, st); len(got) != 0 {
		t.Errorf("left: %q", got)
	}
	keep(t, st, id)
}

// TestManyAtOnce: whatever is called at the same time, each call ends with
// success or an error that says why, and nothing is left.
func TestManyAtOnce(t *testing.T) {
	st := newStore(t)
	ids := []sandbox.SnapshotID{newID(), newID(), newID()}
	allowed := map[cofferdam.Kind]bool{cofferdam.Conflict: true, cofferdam.NotFound: true}
	check := func(what string, err error) {
		if err != nil && !allowed[cofferdam.KindOf(err)] {
			t.Errorf("%s: %v", what, err)
		}
	}
	var all sync.WaitGroup
	for i := range 24 {
		all.Go(func() {
			for round := range 8 {
				id := ids[(i+round)%len(ids)]
				switch i % 4 {
				case 0:
					s, err := st.Add(sandbox.Take{ID: id, Memory: true}, sandbox.Spec{}, 0)
					if check("add", err); err != nil {
						continue
					}
					if round%2 == 0 {
						check("drop", errors.Join(fill(s), st.Drop(s)))
					} else {
						check("keep", errors.Join(fill(s), st.Keep(t.Context(), s)))
					}
				case 1, 2:
					s, release, err := st.Open(t.Context(), cofferdam.Scope{}, id, "")
					if check("open", err); err != nil {
						continue
					}
					if data, err := os.ReadFile(s.Path("memory")); err != nil || string(data) != "memory" {
						t.Errorf("a reader has %q, %v", data, err)
					}
					release()
				case 3:
					check("remove", st.Remove(id))
				}
			}
		})
	}
	all.Wait()
	for _, id := range ids {
		must(t, st.Remove(id))
	}
	if got := list(t, st); len(got) != 0 || len(st.adding) != 0 || len(st.readers) != 0 || len(st.removed) != 0 {
		t.Errorf("left: %q, %v, %v, %v", got, st.adding, st.readers, st.removed)
	}
}
