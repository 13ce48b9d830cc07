package environment

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"cofferdam"
)

// disk mounts a file system of its own with some room, in bytes, at dir.
func disk(t *testing.T, dir string, size int) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tests", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, fmt.Sprint("mode=0700,size=", size)); err != nil {
		t.Skipf("not run here: mounting a file system: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) }) // a test may have done it
}

// What cannot be removed of an environment is in nobody's way: neither at the start of
// a server nor when any project's is made; it is said once, with what to do, and goes as
// soon as it can.
func TestWhatCannotBeRemoved(t *testing.T) {
	dir := t.TempDir()
	gone, half := filepath.Join(dir, "0.gone-1"), filepath.Join(dir, "1.building")
	for _, path := range []string{gone, half} {
		disk(t, filepath.Join(path, filesDir, "mounted"), 1<<20)
	}
	if os.RemoveAll(gone) == nil {
		t.Fatal("control: it can be removed")
	}
	var said bytes.Buffer
	c, err := Open(dir, slog.New(slog.NewTextHandler(&said, nil)))
	if err != nil {
		t.Fatal(err)
	}
	w := folderWant()
	for i := range 3 {
		w.Setup = []string{fmt.Sprint(i)}
		if f, err := c.Ensure(t.Context(), w, files("text", "bin/tool")); err != nil || f.Hit {
			t.Errorf("%+v, %v", f, err)
		}
		if err := c.Remove(w.Scope, w.Digest(), "next"); err != nil {
			t.Error(err)
		}
	}
	if text := said.String(); strings.Count(text, "level=WARN") != 2 || !strings.Contains(text, gone) || !strings.Contains(text, "rm -rf "+gone) || !strings.Contains(text, "1.gone-") {
		t.Errorf("said: %s", text)
	}
	for _, pattern := range []string{"0.gone-1", "1.gone-*"} {
		paths, err := filepath.Glob(filepath.Join(dir, pattern, filesDir, "mounted"))
		if err != nil || len(paths) != 1 {
			t.Fatal(paths, err)
		}
		if err := unix.Unmount(paths[0], 0); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.Ensure(t.Context(), w, files("text", "bin/tool")); err != nil {
		t.Error(err)
	}
	if left, err := filepath.Glob(filepath.Join(dir, "*.gone-*")); err != nil || len(left) > 0 {
		t.Errorf("left: %q, %v", left, err)
	}
}

// A disk that gets full while a setup writes is named, whatever the setup said, and
// nothing of it is left; the same setup passes once there is room. One that fails with
// room left, and one that nobody waits for any more, is told as it was.
func TestDiskThatGetsFull(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "disk")
	disk(t, dir, 8<<20)
	c, failed := open(t, dir), errors.New("npm install ended with 1")
	fill := func(path string) {
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
		for err == nil {
			_, err = f.Write(make([]byte, 64<<10))
		}
		if !errors.Is(err, unix.ENOSPC) {
			t.Fatal(err)
		}
		f.Close()
	}
	for name, w := range map[string]Want{"folder": folderWant(), "image": {Definition: Definition{Setup: []string{"a"}}}} {
		half := func(ctx context.Context, path string) error {
			if w.Form == Folder {
				path = filepath.Join(path, "x")
				if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
					return err
				}
			}
			fill(path)
			return failed
		}
		_, err := c.Ensure(t.Context(), w, half)
		if !errors.Is(err, ErrFull) || cofferdam.KindOf(err) != cofferdam.Unavailable || !strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), failed.Error()) || !strings.Contains(cofferdam.HintOf(err), "free disk space") || names(t, dir) != 0 {
			t.Errorf("%s: %v (%s), %d left", name, err, cofferdam.HintOf(err), names(t, dir))
		}
		ctx, cancel := context.WithCancel(t.Context())
		if _, err := c.Ensure(ctx, w, func(ctx context.Context, path string) error { cancel(); return half(ctx, path) }); !errors.Is(err, failed) || errors.Is(err, ErrFull) || names(t, dir) != 0 {
			t.Errorf("%s: nobody waits: %v, %d left", name, err, names(t, dir))
		}
		if _, err := c.Ensure(t.Context(), w, func(context.Context, string) error { return failed }); !errors.Is(err, failed) || errors.Is(err, ErrFull) || names(t, dir) != 0 {
			t.Errorf("%s: with room: %v, %d left", name, err, names(t, dir))
		}
		whole := writing("x")
		if w.Form == Folder {
			whole = files("x", "bin/tool")
		}
		if f, err := c.Ensure(t.Context(), w, whole); err != nil || f.Hit {
			t.Errorf("%s: when there is room: %+v, %v", name, f, err)
		}
		if err := c.Remove(w.Scope, w.Digest(), "next"); err != nil {
			t.Fatal(err)
		}
	}
	// What was whole when the disk got full meanwhile by others is kept or not, and never half.
	w := folderWant()
	_, err := c.Ensure(t.Context(), w, func(ctx context.Context, path string) error {
		err := files("x", "bin/tool")(ctx, path)
		fill(filepath.Join(dir, "others"))
		return err
	})
	if err == nil || !errors.Is(err, ErrFull) {
		t.Errorf("others filled it: %v", err)
	}
	if err := os.Remove(filepath.Join(dir, "others")); err != nil {
		t.Fatal(err)
	}
	f, err := open(t, dir).Ensure(t.Context(), w, files("y", "bin/tool"))
	if err != nil {
		t.Fatal(err)
	}
	holdsText(t, f.Path, map[bool]string{true: "x", false: "y"}[f.Hit])
}

// Paths that are longer than the kernel takes are refused as what they are, and gone.
func TestPathsThatAreTooLong(t *testing.T) {
	dir := t.TempDir()
	c, w := open(t, dir), folderWant()
	long := func(folders int) func(context.Context, string) error {
		return func(_ context.Context, path string) error {
			if err := os.MkdirAll(path, 0o700); err != nil {
				return err
			}
			fd, err := unix.Open(path, unix.O_PATH|unix.O_DIRECTORY, 0)
			for range folders {
				name := strings.Repeat("d", 250)
				if err = errors.Join(err, unix.Mkdirat(fd, name, 0o700)); err != nil {
					return err
				}
				next, err := unix.Openat(fd, name, unix.O_PATH|unix.O_DIRECTORY, 0)
				if err = errors.Join(err, unix.Close(fd)); err != nil {
					return err
				}
				fd = next
			}
			if _, err := Holds(path, func([]byte) bool { return false }); (cofferdam.KindOf(err) == cofferdam.Invalid && err != nil) != (folders > 16) {
				t.Errorf("looking through %d folders: %v", folders, err)
			}
			return unix.Close(fd)
		}
	}
	if _, err := c.Ensure(t.Context(), w, long(20)); !errors.Is(err, ErrTooLarge) || cofferdam.KindOf(err) != cofferdam.Invalid || !strings.Contains(cofferdam.HintOf(err), "nest less") || names(t, dir) != 0 {
		t.Errorf("%v (%s), %d left", err, cofferdam.HintOf(err), names(t, dir))
	}
	if _, err := c.Ensure(t.Context(), w, long(12)); err != nil { // the benign twin
		t.Error(err)
	}
}

// To look through many files takes the memory of one.
func TestHoldsInLittleMemory(t *testing.T) {
	dir := t.TempDir()
	for i := range 200 {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprint(i)), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if has, err := Holds(dir, func([]byte) bool { return false }); has || err != nil {
		t.Fatal(has, err)
	}
	if runtime.ReadMemStats(&after); after.TotalAlloc-before.TotalAlloc > 4*holdsPiece {
		t.Errorf("%d MiB for 200 files", (after.TotalAlloc-before.TotalAlloc)>>20)
	}
}
