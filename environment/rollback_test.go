package environment

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"cofferdam"
)

// R14: what is made anew with the same definition keeps the one before, and a
// person goes back to it.
func TestRollback(t *testing.T) {
	dir := t.TempDir()
	c := open(t, dir)
	w := Want{Definition: Definition{Scope: cofferdam.Scope{Project: "p-1"}, Image: "host", Setup: []string{"a"}}, Name: "shop"}
	d := w.Digest()
	ensure := func(text string) Found {
		f, err := c.Ensure(t.Context(), w, writing(text))
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	holds := func(want string) {
		t.Helper()
		got, err := os.ReadFile(c.path(d, ".img"))
		if err != nil || string(got) != want {
			t.Errorf("%q %v, want %q", got, err, want)
		}
	}
	first := ensure("first")
	if err := c.Rollback(w.Scope, d, "ann", time.Now()); cofferdam.KindOf(err) != cofferdam.NotFound {
		t.Errorf("with none before: %v", err)
	}
	holds("first")
	made := c.List(w.Scope)[0].Created
	w.MaxAge = time.Nanosecond
	// A setup that fails changes neither.
	if _, err := c.Ensure(t.Context(), w, func(_ context.Context, path string) error {
		return errors.Join(os.WriteFile(path, []byte("half"), 0o600), errors.New("no"))
	}); err == nil {
		t.Fatal("the control does not hold")
	}
	holds("first")
	ensure("second")
	holds("second")
	if e := c.List(w.Scope); len(e) != 1 || !e[0].Before.Equal(made) {
		t.Errorf("%+v, made %s", e, made)
	}
	for _, other := range []cofferdam.Scope{{Project: "p-2"}, {Organization: "o-2", Project: "p-1"}} {
		if err := c.Rollback(other, d, "eve", time.Now()); cofferdam.KindOf(err) != cofferdam.NotFound {
			t.Errorf("another project rolled it back: %v", err)
		}
	}
	holds("second")
	// It is not too old at once, and found by a cache of the next process.
	if err := c.Rollback(w.Scope, d, "ann went back to it", time.Now()); err != nil {
		t.Fatal(err)
	}
	c = open(t, dir)
	w.MaxAge = time.Hour
	if f := ensure("third"); !f.Hit || f.Path != first.Path {
		t.Errorf("%+v", f)
	}
	holds("first")
	if e := c.List(w.Scope)[0]; !e.Before.IsZero() || e.Why != "ann went back to it" || !e.Created.Equal(made) {
		t.Errorf("%+v", e)
	}
	if err := c.Rollback(w.Scope, d, "ann", time.Now()); cofferdam.KindOf(err) != cofferdam.NotFound {
		t.Errorf("twice: %v", err)
	}
}

// What a readiness command does not accept goes, and the one before stays, is
// listed and can be gone back to; what a person removes goes whole.
func TestReject(t *testing.T) {
	c := open(t, t.TempDir())
	w := Want{Definition: Definition{Scope: cofferdam.Scope{Project: "p-1"}, Image: "host", Setup: []string{"a"}}, Name: "shop", MaxAge: time.Nanosecond}
	d := w.Digest()
	for _, text := range []string{"good", "bad"} {
		if _, err := c.Ensure(t.Context(), w, writing(text)); err != nil {
			t.Fatal(err)
		}
	}
	if before, err := c.Reject(w.Scope, d, "not ready"); !before || err != nil {
		t.Fatalf("%v %v", before, err)
	}
	if e := c.List(w.Scope); len(e) != 1 || e[0].Gone != "not ready" || e[0].Before.IsZero() || e[0].Size == 0 {
		t.Errorf("%+v", e)
	}
	if err := c.Rollback(w.Scope, d, "ann", time.Now()); err != nil {
		t.Fatal(err)
	}
	if got, _ := os.ReadFile(c.path(d, ".img")); string(got) != "good" || c.List(w.Scope)[0].Gone != "" {
		t.Errorf("%q", got)
	}
	if before, err := c.Reject(w.Scope, d, "not ready"); before || err != nil || len(c.List(w.Scope)) != 0 {
		t.Errorf("%v %v", before, err)
	}
	if before, err := c.Reject(cofferdam.Scope{Project: "p-2"}, d, "not ready"); before || err != nil {
		t.Errorf("another project: %v %v", before, err)
	}
	for range 2 {
		if _, err := c.Ensure(t.Context(), w, writing("x")); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Remove(w.Scope, d, "ann removed it"); err != nil {
		t.Fatal(err)
	}
	left, err := os.ReadDir(c.dir)
	if err != nil || len(left) != 1 || !strings.HasSuffix(left[0].Name(), ".json") {
		t.Errorf("left %v %v", left, err)
	}
}

// No project finds, lists, removes or prunes what is another's, though it is made
// of the same.
func TestProjectsKeepApart(t *testing.T) {
	c := open(t, t.TempDir())
	want := func(s cofferdam.Scope) Want {
		return Want{Definition: Definition{Scope: s, Image: "host", Setup: []string{"a"}}, Name: "shop/claude"}
	}
	scopes := []cofferdam.Scope{{Organization: "o-1", Project: "p-1"}, {Organization: "o-1", Project: "p-2"}, {Organization: "o-2", Project: "p-1"}}
	paths := map[string]bool{}
	for _, s := range scopes {
		f, err := c.Ensure(t.Context(), want(s), writing("of "+string(s.Organization+"/")+string(s.Project)))
		if err != nil || f.Hit || f.Why != "the first for shop/claude" || paths[f.Path] {
			t.Errorf("%+v: %+v %v", s, f, err)
		}
		paths[f.Path] = true
	}
	mine := want(scopes[0]).Digest()
	for _, s := range scopes[1:] {
		if all := c.List(s); len(all) != 1 || all[0].Digest == mine {
			t.Errorf("%+v sees %+v", s, all)
		}
		if err := c.Remove(s, mine, "eve"); cofferdam.KindOf(err) != cofferdam.NotFound {
			t.Errorf("%+v removed another's: %v", s, err)
		}
		if gone, err := c.Prune(s, 0, 1, time.Now()); err != nil || len(gone) != 1 || gone[0].Definition.Scope != s {
			t.Errorf("%+v pruned %+v %v", s, gone, err)
		}
	}
	if f, err := c.Ensure(t.Context(), want(scopes[0]), writing("again")); err != nil || !f.Hit {
		t.Errorf("the control: %+v %v", f, err)
	}
}
