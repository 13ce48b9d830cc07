package environment

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"cofferdam"
	"cofferdam/sandbox/sandboxtest"
	"cofferdam/sandbox/volume"
	"cofferdam/sandbox/watch"
)

// files is a setup that leaves a folder with these, and text in the first.
func files(text string, names ...string) func(context.Context, string) error {
	return func(_ context.Context, path string) error {
		err := os.MkdirAll(path, 0o755)
		for _, name := range names {
			err = errors.Join(err, os.MkdirAll(filepath.Dir(filepath.Join(path, name)), 0o755), os.WriteFile(filepath.Join(path, name), []byte(text), 0o644))
		}
		return err
	}
}

func folderWant() Want {
	return Want{Definition: Definition{Scope: cofferdam.Scope{Project: "p-1"}, Image: "host", Setup: []string{"a"}, Disk: 1 << 20, Form: Folder}, Name: "shop"}
}

// holdsText says what is in the file of an environment's folder.
func holdsText(t *testing.T, path, want string) {
	t.Helper()
	if got, err := os.ReadFile(filepath.Join(path, "bin", "tool")); err != nil || string(got) != want {
		t.Errorf("%q, %v, want %q", got, err, want)
	}
}

// What is true of an image is true of a folder: made once, found, made anew when it
// is too old, gone back to, rejected and removed; and not the same as an image.
func TestFolderIsKept(t *testing.T) {
	dir := t.TempDir()
	c, w := open(t, dir), folderWant()
	d := w.Digest()
	ensure := func(text string) Found {
		t.Helper()
		f, err := c.Ensure(t.Context(), w, files(text, "bin/tool"))
		if err != nil {
			t.Fatalf("%v (%s)", err, cofferdam.HintOf(err))
		}
		return f
	}
	first := ensure("first")
	holdsText(t, first.Path, "first")
	if outer, err := os.Stat(filepath.Dir(first.Path)); err != nil || outer.Mode().Perm() != 0o700 {
		t.Errorf("around the files: %v, %v", outer.Mode(), err)
	}
	if again := ensure("again"); !again.Hit || again.Path != first.Path {
		t.Errorf("%+v", again)
	}
	if e := c.List(w.Scope); len(e) != 1 || e[0].Size < 4096 || e[0].Definition.Form != Folder {
		t.Errorf("%+v", e)
	}
	image := w
	image.Form = ""
	if f, err := c.Ensure(t.Context(), image, writing("x")); err != nil || f.Hit || f.Why != "changed since the last: form" || f.Path == first.Path {
		t.Errorf("an image: %+v, %v", f, err)
	}
	w.MaxAge = time.Nanosecond
	holdsText(t, ensure("second").Path, "second")
	holdsText(t, ensure("third").Path, "third")
	if err := c.Rollback(w.Scope, d, "ann", time.Now()); err != nil {
		t.Fatal(err)
	}
	holdsText(t, first.Path, "second")
	c, w.MaxAge = open(t, dir), time.Hour
	if f := ensure("fourth"); !f.Hit {
		t.Errorf("after a restart: %+v", f)
	}
	w.MaxAge = time.Nanosecond
	ensure("fifth")
	if before, err := c.Reject(w.Scope, d, "not ready"); !before || err != nil {
		t.Errorf("%v, %v", before, err)
	}
	if err := c.Rollback(w.Scope, d, "ann", time.Now()); err != nil {
		t.Fatal(err)
	}
	holdsText(t, first.Path, "second")
	if err := errors.Join(c.Remove(w.Scope, d, "ann"), c.Remove(w.Scope, image.Digest(), "ann")); err != nil {
		t.Fatal(err)
	}
	if n := names(t, dir); n != 0 {
		t.Errorf("%d are left", n)
	}
}

// changed is when the kernel says that a file was changed last.
func changed(t *testing.T, path string) unix.Timespec {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		t.Fatal(err)
	}
	return st.Ctim
}

// A folder that somebody wrote to is not given to a box: neither when a file has the
// size and the time that it had, nor when it was put aside; it is made anew.
func TestFolderThatWasTouched(t *testing.T) {
	c, w := open(t, t.TempDir()), folderWant()
	for name, touch := range map[string]func(path string) error{
		"other bytes": func(path string) error {
			file := filepath.Join(path, "bin/tool")
			info, err := os.Stat(file)
			for before := changed(t, file); err == nil && changed(t, file) == before; { // some kernels' clock stands for 10 ms
				err = errors.Join(os.WriteFile(file, []byte("evils"), 0o644), os.Chtimes(file, info.ModTime(), info.ModTime()))
			}
			return err
		},
		"one more": func(path string) error { return os.WriteFile(filepath.Join(path, "more"), nil, 0o644) },
		"one less": func(path string) error { return os.Remove(filepath.Join(path, "bin/tool")) },
		"its mode": func(path string) error { return os.Chmod(filepath.Join(path, "bin"), 0o777) },
		"what is known": func(path string) error {
			return os.WriteFile(filepath.Join(filepath.Dir(path), aboutFile), []byte("{}"), 0o600)
		},
		"half known": func(path string) error {
			return os.WriteFile(filepath.Join(filepath.Dir(path), aboutFile), []byte(`{"sta`), 0o600)
		},
		"not known": func(path string) error { return os.Remove(filepath.Join(filepath.Dir(path), aboutFile)) },
	} {
		f, err := c.Ensure(t.Context(), w, files("first", "bin/tool"))
		if err != nil {
			t.Fatal(err)
		}
		if again, err := c.Ensure(t.Context(), w, nil); err != nil || !again.Hit {
			t.Fatalf("%s: the control: %+v, %v", name, again, err)
		}
		if err := touch(f.Path); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		again, err := c.Ensure(t.Context(), w, files("again", "bin/tool"))
		if err != nil || again.Hit || !strings.Contains(again.Why, "not as its setup left it") {
			t.Errorf("%s: %+v, %v", name, again, err)
		}
		holdsText(t, f.Path, "again")
		if e := c.List(w.Scope); len(e) != 1 || !e[0].Before.IsZero() { // nobody goes back to it
			t.Errorf("%s: %+v", name, e)
		}
		if err := c.Remove(w.Scope, w.Digest(), "next"); err != nil {
			t.Fatal(err)
		}
	}
}

// A folder that a box has is not removed under it, by nobody; it goes when the box
// does, with the next that is made, or at the next start.
func TestFolderInUseStays(t *testing.T) {
	dir := t.TempDir()
	c, w := open(t, dir), folderWant()
	left := func() int {
		gone, err := filepath.Glob(filepath.Join(dir, "*.gone-*"))
		if err != nil {
			t.Fatal(err)
		}
		return len(gone)
	}
	for i, removed := range []func() error{
		func() error { return c.Remove(w.Scope, w.Digest(), "ann") },
		func() error { _, err := c.Prune(w.Scope, 0, 1, time.Now()); return err },
		func() error { _, err := c.Reject(w.Scope, w.Digest(), "not ready"); return err },
	} {
		f, err := c.Ensure(t.Context(), w, files("text", "bin/tool"))
		if err != nil {
			t.Fatal(err)
		}
		box, err := volume.Share(f.Path)
		if err != nil {
			t.Fatal(err)
		}
		if err := removed(); err != nil || left() != 1 {
			t.Errorf("%d: %v, %d left", i, err, left())
		}
		if got, err := unix.Openat(int(box.Fd()), "bin/tool", unix.O_RDONLY, 0); err != nil || unix.Close(got) != nil {
			t.Errorf("%d: the box cannot read: %v", i, err)
		}
		if _, err := volume.Share(f.Path); err == nil {
			t.Errorf("%d: another box gets it", i)
		}
		open(t, dir)
		if left() != 1 {
			t.Errorf("%d: a start removed it", i)
		}
		if err := box.Close(); err != nil {
			t.Fatal(err)
		}
		if i%2 == 0 {
			open(t, dir)
		} else if _, err := c.Ensure(t.Context(), w, files("text", "bin/tool")); err != nil {
			t.Fatal(err)
		}
		if left() != 0 {
			t.Errorf("%d: it is still there", i)
		}
	}
}

// A setup of a server that was killed writes on into what nobody takes for whole:
// neither at the start, which goes on, nor when the next setup is over.
func TestFolderOfADeadServer(t *testing.T) {
	dir := t.TempDir()
	w := folderWant()
	half := filepath.Join(dir, strings.TrimPrefix(string(w.Digest()), "sha256:")+".building")
	if err := errors.Join(os.Mkdir(half, 0o700), files("half", "bin/tool")(t.Context(), filepath.Join(half, filesDir))); err != nil {
		t.Fatal(err)
	}
	box, err := volume.Alone(filepath.Join(half, filesDir)) // the box of that setup
	if err != nil {
		t.Fatal(err)
	}
	c := open(t, dir)
	fd, err := unix.Openat(int(box.Fd()), "late", unix.O_CREAT|unix.O_WRONLY, 0o600)
	if err != nil || unix.Close(fd) != nil {
		t.Fatalf("the box cannot write: %v", err)
	}
	f, err := c.Ensure(t.Context(), w, func(ctx context.Context, path string) error {
		return errors.Join(box.Close(), files("whole", "bin/tool")(ctx, path)) // its box is destroyed first
	})
	if err != nil || f.Hit {
		t.Fatalf("%+v, %v", f, err)
	}
	holdsText(t, f.Path, "whole")
	if _, err := os.Stat(filepath.Join(f.Path, "late")); err == nil || names(t, dir) != 1 {
		t.Errorf("what was half made is there: %v, %d", err, names(t, dir))
	}
}

// No more is kept than the definition says, whichever way it is too much; and what
// was too much is gone.
func TestFolderHasItsSize(t *testing.T) {
	dir := t.TempDir()
	c, w := open(t, dir), folderWant()
	var many []string
	for i := range volume.Allowed(w.Disk).Files + 1 {
		many = append(many, fmt.Sprint(i))
	}
	deep := strings.Repeat("d/", watch.MaxDepth+1) + "x"
	for name, build := range map[string]func(context.Context, string) error{
		"bytes":    files(strings.Repeat("x", 1<<20+1), "big"),
		"files":    files("", many...),
		"twice":    files("", append(slices.Clone(many), strings.Split(strings.Join(many, "x,")+"x", ",")...)...),
		"too deep": files("", deep),
	} {
		_, err := c.Ensure(t.Context(), w, build)
		if !errors.Is(err, ErrTooLarge) || cofferdam.KindOf(err) != cofferdam.Invalid || cofferdam.HintOf(err) == "" || names(t, dir) != 0 {
			t.Errorf("%s: %v, %d left", name, err, names(t, dir))
		}
	}
	if _, err := c.Ensure(t.Context(), w, files(strings.Repeat("x", 1<<19), "bin/tool")); err != nil { // the benign twin
		t.Error(err)
	}
	_, err := c.Ensure(t.Context(), Want{Definition: Definition{Setup: []string{"b"}, Disk: 1 << 20, Form: Folder}}, func(context.Context, string) error { return nil })
	if cofferdam.KindOf(err) != cofferdam.Unavailable || names(t, dir) != 1 {
		t.Errorf("nothing was made: %v", err)
	}
}

// TestDeepFolder: a setup whose folders nest deeper than a server may have files open
// keeps no other project from its environments, and no server from its start.
func TestDeepFolder(t *testing.T) {
	dir := t.TempDir()
	c, err := Open(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	w := Want{Definition: Definition{Setup: []string{"mkdir"}, Disk: 1 << 30, Form: Folder}, Name: "deep"}
	sandboxtest.FewFiles(t)
	deep := func(ctx context.Context, path string) error {
		err := files("x", "f")(ctx, path)
		sandboxtest.Nest(t, path, 2000)
		return err
	}
	if _, err := c.Ensure(t.Context(), w, deep); cofferdam.KindOf(err) != cofferdam.Invalid || !strings.Contains(err.Error(), "nested") {
		t.Errorf("deep: %v", err)
	}
	w.Project = "p-other"
	if _, err := c.Ensure(t.Context(), w, files("x", "f")); err != nil {
		t.Errorf("another project: %v", err)
	}
	if err := deep(t.Context(), filepath.Join(dir, "0.building", filesDir)); err != nil { // what a server that was killed left
		t.Fatal(err)
	}
	if _, err := Open(dir, nil); err != nil {
		t.Errorf("the next server: %v", err)
	}
	if left, err := filepath.Glob(filepath.Join(dir, "*.gone*")); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}
