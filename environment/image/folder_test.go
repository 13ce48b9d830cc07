package image

import (
	"archive/tar"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// An entry lands where its path leads now, though the one before it was in a
// folder of the same path.
func TestFolderIsLookedUpAgain(t *testing.T) {
	for name, c := range map[string]struct {
		entries    []tar.Header
		have, gone []string
	}{
		"folder becomes a link":  {[]tar.Header{dir("c/b"), file("a/b/x", ""), link("a", "c"), file("a/b/y", "")}, []string{"c/b/y"}, []string{"c/b/x"}},
		"link becomes a folder":  {[]tar.Header{dir("c/b"), link("a", "c"), file("a/b/x", ""), dir("a"), file("a/b/y", "")}, []string{"c/b/x", "a/b/y"}, []string{"c/b/y", "a/b/x"}},
		"link leads elsewhere":   {[]tar.Header{dir("c/b"), dir("d/b"), link("a", "c"), file("a/b/x", ""), link("a", "d"), file("a/b/y", "")}, []string{"c/b/x", "d/b/y"}, []string{"c/b/y", "d/b/x"}},
		"folder is taken away":   {[]tar.Header{file("a/b/x", ""), file(".wh.a", ""), file("a/b/y", "")}, []string{"a/b/y"}, []string{"a/b/x"}},
		"itself is taken away":   {[]tar.Header{file("a/b/x", ""), file("a/.wh.b", ""), file("a/b/y", "")}, []string{"a/b/y"}, []string{"a/b/x"}},
		"inner one becomes file": {[]tar.Header{file("a/b/x/z", ""), file("a/b/x", ""), file("a/b/y", "")}, []string{"a/b/y", "a/b/x"}, []string{"a/b/x/z"}},
		"by two names":           {[]tar.Header{dir("c"), link("a", "c"), file("a/x", ""), file("c/y", ""), hard("a/z", "c/y"), hard("c/w", "a/x")}, []string{"c/x", "c/y", "c/z", "c/w"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			in := filling(t, math.MaxInt64, math.MaxInt64)
			if err := unpacked(t, in, c.entries...); err != nil {
				t.Fatal(err)
			}
			there := func(name string) bool { // without the links of this machine
				real, err := filepath.EvalSymlinks(filepath.Join(in.root.Name(), filepath.Dir(name)))
				if err != nil {
					return false
				}
				_, err = os.Lstat(filepath.Join(real, filepath.Base(name)))
				return err == nil && real == filepath.Join(in.root.Name(), filepath.Dir(name))
			}
			for _, want := range c.have {
				if !there(want) {
					t.Errorf("%s is not there", want)
				}
			}
			for _, no := range c.gone {
				if there(no) {
					t.Errorf("%s is there", no)
				}
			}
		})
	}
}

// worked is how long this thread had a processor: a busy machine makes it no longer.
func worked(t *testing.T) time.Duration {
	t.Helper()
	var at unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &at); err != nil {
		t.Fatal(err)
	}
	return time.Duration(at.Nano())
}

// deep unpacks files in a folder of that depth, from one to the next of them,
// and returns the least time of a processor that a few tries took.
func deep(t *testing.T, depth, folders int) time.Duration {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var entries []tar.Header
	for i := range 150 {
		entries = append(entries, file(fmt.Sprintf("%d/%s%d", i%folders, strings.Repeat("a/", depth), i), ""))
	}
	var all []time.Duration
	for range 3 {
		in := filling(t, math.MaxInt64, math.MaxInt64)
		if err := unpacked(t, in, entries[:folders]...); err != nil { // the folders themselves are made
			t.Fatal(err)
		}
		begin := worked(t)
		if err := unpacked(t, in, entries...); err != nil {
			t.Fatal(err)
		}
		all = append(all, worked(t)-begin)
	}
	return slices.Min(all)
}

// A deep image costs its depth at most, and mostly what a flat one does; it was
// the square of its depth, and others wait for it. The bounds leave room for a
// busy machine.
func TestDeepImages(t *testing.T) {
	flat, one, two := deep(t, 0, 1), deep(t, 120, 1), deep(t, 120, 2)
	t.Logf("flat %s, deep %s, in turn %s", flat, one, two)
	if one > 20*flat {
		t.Errorf("in one folder: %s, and %s at the top", one, flat)
	}
	if two > 400*flat {
		t.Errorf("in two folders in turn: %s, and %s at the top", two, flat)
	}
}
