package snapshot

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"cofferdam"
	"cofferdam/sandbox"
)

// label is of a snapshot of a session.
func label(order int, automatic bool) sandbox.Label {
	return sandbox.Label{Session: "s-one", Order: order, Automatic: automatic, Comment: "a comment", Actor: "somebody"}
}

// keepOf takes a snapshot of a box with all that is said of it.
func keepOf(st *Store, t *testing.T, l sandbox.Label, spare sandbox.SnapshotID) (*Stored, error) {
	t.Helper()
	s, err := st.Add(sandbox.Take{ID: newID(), Spare: spare, Label: l}, sandbox.Spec{ID: "b-1", Workspace: "w-1", Scope: cofferdam.Scope{Project: "p-1"}, Snapshot: "s-parent"}, 0)
	if err != nil {
		return nil, err
	}
	must(t, fill(s), st.Keep(t.Context(), s))
	return s, nil
}

// named lists what there is of a session.
func named(t *testing.T, st *Store) string {
	t.Helper()
	all, err := st.List()
	must(t, err)
	var names []string
	for _, s := range all {
		if s.Automatic {
			names = append(names, s.Name()+"a")
		} else {
			names = append(names, s.Name())
		}
	}
	return strings.Join(names, " ")
}

// TestOfSession: a session has ten; an automatic one goes for a new one, the oldest
// first and none that is spared; one that was asked for never goes by itself.
func TestOfSession(t *testing.T) {
	st := newStore(t)
	for i := range 8 {
		_, err := keepOf(st, t, label(i, false), "")
		must(t, err)
	}
	undo, err := keepOf(st, t, label(8, true), "")
	must(t, err)
	_, err = keepOf(st, t, label(9, true), "")
	must(t, err)
	_, err = keepOf(st, t, label(9, false), "")
	wantKind(t, "a number that is taken", err, cofferdam.Conflict)
	_, err = keepOf(st, t, label(10, true), undo.ID) // as before it is put back to
	must(t, err)
	if got := named(t, st); got != "v0 v1 v2 v3 v4 v5 v6 v7 v8a v10a" {
		t.Errorf("the spared one: %s", got)
	}
	for i := 11; i <= 12; i++ {
		_, err = keepOf(st, t, label(i, false), "")
		must(t, err)
	}
	if got := named(t, st); got != "v0 v1 v2 v3 v4 v5 v6 v7 v11 v12" {
		t.Errorf("automatic ones: %s", got)
	}
	for _, automatic := range []bool{false, true} {
		_, err = keepOf(st, t, label(13, automatic), "")
		wantKind(t, "one too many", err, cofferdam.Exhausted)
		if !strings.Contains(cofferdam.HintOf(err), "v0") {
			t.Errorf("it does not say which to remove: %q", cofferdam.HintOf(err))
		}
	}
	other := label(0, false)
	other.Session = "s-two"
	_, err = keepOf(st, t, other, "")
	must(t, err)
	_, err = st.Add(sandbox.Take{ID: newID(), Label: label(0, false)}, sandbox.Spec{Scope: cofferdam.Scope{Project: "p-2"}}, 0)
	must(t, err) // a session of that name in another project
}

// TestTakenAtOnce: those that are being taken count, and two of them do not take the
// place of one.
func TestTakenAtOnce(t *testing.T) {
	st := newStore(t)
	for i := range 10 {
		_, err := keepOf(st, t, label(i, i >= 8), "")
		must(t, err)
	}
	add := func(order int) (*Stored, error) {
		return st.Add(sandbox.Take{ID: newID(), Label: label(order, false)}, sandbox.Spec{Scope: cofferdam.Scope{Project: "p-1"}}, 0)
	}
	one, err := add(10)
	must(t, err)
	two, err := add(11)
	must(t, err)
	if one.instead == two.instead || one.instead == "" || two.instead == "" {
		t.Errorf("they take the place of %q and %q", one.instead, two.instead)
	}
	_, err = add(11)
	wantKind(t, "a number that is being taken", err, cofferdam.Conflict)
	_, err = add(12)
	wantKind(t, "a third", err, cofferdam.Exhausted)
	must(t, st.Drop(one), fill(two), st.Keep(t.Context(), two))
	if got := named(t, st); got != "v0 v1 v2 v3 v4 v5 v6 v7 v8a v11" && got != "v0 v1 v2 v3 v4 v5 v6 v7 v9a v11" {
		t.Errorf("afterwards: %s", got)
	}
}

// TestManifest: what is listed is what was signed, also by the next keeper; a
// description that says another thing is not, whoever made its digest fit, and a
// snapshot in the place of another is listed by its id alone.
func TestManifest(t *testing.T) {
	st := newStore(t)
	s, err := keepOf(st, t, label(0, false), "")
	must(t, err)
	other, err := keepOf(st, t, label(1, false), "")
	must(t, err)
	manifest, err := s.Manifest()
	must(t, err, st.Sign(s.ID, []byte("signed")), st.Sign(s.ID, []byte("signed again")))
	next := &Store{Dir: st.Dir, Tier: "test"}
	find := func() sandbox.Snapshot {
		t.Helper()
		all, err := next.List()
		must(t, err)
		for _, x := range all {
			if x.ID == s.ID {
				return x
			}
		}
		t.Fatalf("it is not listed: %+v", all)
		return sandbox.Snapshot{}
	}
	found := find()
	must(t, found.Fits(manifest))
	if string(found.Note) != "signed again" || found.Parent != "s-parent" || found.Workspace != "w-1" || found.Box != "b-1" || found.Actor != "somebody" || found.Memory {
		t.Errorf("listed as %+v", found)
	}
	_, release, err := next.Open(t.Context(), s.Scope, s.ID, s.Digest)
	must(t, err)
	release()
	_, _, err = next.Open(t.Context(), s.Scope, s.ID, other.Digest)
	wantKind(t, "another digest than was signed", err, cofferdam.Tampered)

	forged := *s
	forged.Comment, forged.Digest = "another comment", ""
	forged.Digest, err = forged.digest(t.Context())
	must(t, err)
	data, err := json.Marshal(forged)
	must(t, err, os.WriteFile(s.Path(description), data, 0o600))
	wantKind(t, "a forged description", find().Fits(manifest), cofferdam.Tampered)
	_, release, err = next.Open(t.Context(), s.Scope, s.ID, "") // control: its digest fits
	must(t, err)
	release()
	_, _, err = next.Open(t.Context(), s.Scope, s.ID, s.Digest)
	wantKind(t, "a forged one against the digest that was signed", err, cofferdam.Tampered)

	must(t, os.RemoveAll(s.Path("")), os.Rename(other.Path(""), filepath.Clean(s.Path(""))))
	if x := find(); x.Digest != "" || x.Comment != "" {
		t.Errorf("another one in its place: %+v", x)
	}
	_, _, err = next.Open(t.Context(), s.Scope, s.ID, "")
	wantKind(t, "another one in its place", err, cofferdam.Tampered)
	must(t, next.Remove(s.ID))
	wantKind(t, "signing what is gone", next.Sign(s.ID, []byte("x")), cofferdam.NotFound)
}

// TestNotes: a note is bounded, and what cannot be read is none.
func TestNotes(t *testing.T) {
	st := newStore(t)
	s, err := keepOf(st, t, label(0, false), "")
	must(t, err)
	wantKind(t, "no note", st.Sign(s.ID, nil), cofferdam.Invalid)
	wantKind(t, "a long note", st.Sign(s.ID, make([]byte, sandbox.MaxNote+1)), cofferdam.Invalid)
	wantKind(t, "a path", st.Sign("../x", []byte("x")), cofferdam.Invalid)
	for name, change := range map[string]func(path string) error{
		"a link":      func(path string) error { return os.Symlink(s.Path(description), path) },
		"a folder":    func(path string) error { return os.Mkdir(path, 0o700) },
		"too long":    func(path string) error { return os.WriteFile(path, make([]byte, 1<<20), 0o600) },
		"nothing":     func(path string) error { return os.WriteFile(path, nil, 0o600) },
		"not written": func(string) error { return nil },
	} {
		must(t, os.RemoveAll(s.Path(noteFile)), change(s.Path(noteFile)))
		all, err := st.List()
		if err != nil || len(all) != 1 || all[0].Note != nil {
			t.Errorf("%s: %+v, %v", name, all, err)
		}
	}
}

// TestRestoreProves: a workspace is put back from a whole snapshot of its own alone.
func TestRestoreProves(t *testing.T) {
	st := newStore(t)
	s, err := st.Add(sandbox.Take{ID: newID()}, sandbox.Spec{Workspace: workspace, Scope: cofferdam.Scope{Project: "p-1"}}, 0)
	must(t, err)
	must(t, fill(s), st.Keep(t.Context(), s))
	good := sandbox.Restore{Scope: s.Scope, Workspace: workspace, Snapshot: s.ID, Digest: s.Digest}
	calls := 0
	put := func(*Stored) error { calls++; return nil }
	must(t, st.Restore(t.Context(), good, put))
	if calls != 1 {
		t.Fatalf("control: put was called %d times", calls)
	}
	for name, c := range map[string]struct {
		change func(*sandbox.Restore)
		want   cofferdam.Kind
	}{
		"no digest":         {func(r *sandbox.Restore) { r.Digest = "" }, cofferdam.Invalid},
		"another digest":    {func(r *sandbox.Restore) { r.Digest = "sha256:0" }, cofferdam.Tampered},
		"another workspace": {func(r *sandbox.Restore) { r.Workspace = "w-00000000000000000000000000000002" }, cofferdam.Invalid},
		"a path":            {func(r *sandbox.Restore) { r.Workspace = "../x" }, cofferdam.Invalid},
		"another project":   {func(r *sandbox.Restore) { r.Scope.Project = "p-2" }, cofferdam.NotFound},
		"another snapshot":  {func(r *sandbox.Restore) { r.Snapshot = newID() }, cofferdam.NotFound},
	} {
		r := good
		c.change(&r)
		wantKind(t, name, st.Restore(t.Context(), r, put), c.want)
	}
	must(t, os.WriteFile(s.Path(Tree+"/deep/file"), []byte("wock"), 0o644))
	wantKind(t, "one that was changed", st.Restore(t.Context(), good, put), cofferdam.Tampered)
	if calls != 1 {
		t.Errorf("put was called for what is refused")
	}
	must(t, os.WriteFile(s.Path(Tree+"/deep/file"), []byte("work"), 0o644), os.Chtimes(s.Path(Tree+"/deep/file"), time.Unix(1, 0), time.Unix(1, 0)))
	disk := errors.New("no space left on device")
	_, err = st.Add(sandbox.Take{ID: newID(), Label: sandbox.Label{Comment: "\x1b[2J"}}, sandbox.Spec{}, 0)
	wantKind(t, "a comment that moves the cursor", err, cofferdam.Invalid)
	wantKind(t, "one that was put right again but for its times", st.Restore(t.Context(), good, func(*Stored) error { return disk }), cofferdam.Tampered)
}

const workspace = "w-00000000000000000000000000000001"
