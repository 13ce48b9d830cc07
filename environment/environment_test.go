package environment

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"cofferdam"
)

func open(t *testing.T, dir string) *Cache {
	t.Helper()
	c, err := Open(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func writing(text string) func(context.Context, string) error {
	return func(_ context.Context, path string) error { return os.WriteFile(path, []byte(text), 0o600) }
}

func names(t *testing.T, dir string) int {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	return len(slices.DeleteFunc(entries, func(e os.DirEntry) bool { return strings.HasSuffix(e.Name(), ".json") }))
}

func TestEverythingIsInTheDigest(t *testing.T) {
	base := Definition{Image: "host", Setup: []string{"a", "b"}, Allow: []string{"c"}, Env: []string{"d"}, Disk: 1}
	seen := map[cofferdam.Digest]int{base.Digest(): 0}
	for i, change := range []func(*Definition){
		func(d *Definition) { d.Project = "p-2" },
		func(d *Definition) { d.Organization = "o-2" },
		func(d *Definition) { d.Image = "/image" },
		func(d *Definition) { d.Setup = []string{"ab"} },
		func(d *Definition) { d.Setup = []string{"b", "a"} },
		func(d *Definition) { d.Allow = nil },
		func(d *Definition) { d.Env = nil },
		func(d *Definition) { d.Disk = 2 },
		func(d *Definition) { d.ImageDigest = "sha256:1" },
	} {
		d := base
		change(&d)
		if j, twice := seen[d.Digest()]; twice {
			t.Errorf("changes %d and %d have the same digest", i+1, j)
		}
		seen[d.Digest()] = i + 1
	}
}

func TestMadeOnceWhoeverAsks(t *testing.T) {
	dir := t.TempDir()
	c := open(t, dir)
	d := Definition{Setup: []string{"a"}}
	var builds atomic.Int32
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			f, err := c.Ensure(t.Context(), Want{Definition: d}, func(ctx context.Context, path string) error {
				builds.Add(1)
				return writing("whole")(ctx, path)
			})
			if text, rerr := os.ReadFile(f.Path); err != nil || rerr != nil || string(text) != "whole" {
				t.Errorf("%q %v %v", text, err, rerr)
			}
		})
	}
	wg.Wait()
	f, err := open(t, dir).Ensure(t.Context(), Want{Definition: d}, nil)
	if err != nil || !f.Hit || builds.Load() != 1 {
		t.Errorf("%+v %v after %d builds", f, err, builds.Load())
	}
}

func TestWithoutSetupThereIsNoImage(t *testing.T) {
	f, err := open(t, t.TempDir()).Ensure(t.Context(), Want{Definition: Definition{Image: "host"}}, nil)
	if err != nil || f.Path != "" || f.Digest == "" {
		t.Errorf("%+v %v", f, err)
	}
}

func TestFailedBuildLeavesNothingAndIsTriedAgain(t *testing.T) {
	dir := t.TempDir()
	c := open(t, dir)
	d := Definition{Setup: []string{"a"}}
	broken := errors.New("no network")
	_, err := c.Ensure(t.Context(), Want{Definition: d}, func(ctx context.Context, path string) error {
		return errors.Join(writing("half")(ctx, path), broken)
	})
	if !errors.Is(err, broken) || names(t, dir) != 0 {
		t.Fatalf("%v, %d files", err, names(t, dir))
	}
	if f, err := c.Ensure(t.Context(), Want{Definition: d}, writing("whole")); err != nil || f.Hit {
		t.Fatalf("%+v %v", f, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	_, err = c.Ensure(ctx, Want{Definition: Definition{Setup: []string{"b"}}}, func(ctx context.Context, path string) error {
		cancel()
		return writing("cut")(ctx, path)
	})
	if err == nil || names(t, dir) != 1 {
		t.Errorf("a build that was cut: %v, %d files", err, names(t, dir))
	}
}

func TestNothingIsMadeWhereNothingWasWritten(t *testing.T) {
	c := open(t, t.TempDir())
	_, err := c.Ensure(t.Context(), Want{Definition: Definition{Setup: []string{"a"}}}, func(context.Context, string) error { return nil })
	if cofferdam.KindOf(err) != cofferdam.Unavailable {
		t.Errorf("%v", err)
	}
}

func TestHalfMadeOfADeadProcessIsRemoved(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "abc.building"), []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	open(t, dir)
	if names(t, dir) != 0 {
		t.Error("it is still there")
	}
}

func TestCacheIsBounded(t *testing.T) {
	dir := t.TempDir()
	c := open(t, dir)
	oldest := ""
	for i := range MaxImages {
		f, err := c.Ensure(t.Context(), Want{Definition: Definition{Setup: []string{"a"}, Disk: int64(i)}}, writing("x"))
		if err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			oldest = f.Path
		}
	}
	next := Definition{Setup: []string{"b"}}
	if _, err := c.Ensure(t.Context(), Want{Definition: next}, writing("x")); cofferdam.KindOf(err) != cofferdam.Unavailable {
		t.Errorf("all in use: %v", err)
	}
	before := time.Now().Add(-2 * idle)
	if err := os.Chtimes(strings.TrimSuffix(oldest, ".img")+".json", before, before); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Ensure(t.Context(), Want{Definition: next}, writing("x")); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(oldest); err == nil || names(t, dir) != MaxImages {
		t.Errorf("the oldest is still there, or %d are", names(t, dir))
	}
}

func TestReadOnlyFolderIsSaid(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(filepath.Join(file, "env"), nil); cofferdam.KindOf(err) != cofferdam.Unavailable {
		t.Errorf("%v", err)
	}
}
