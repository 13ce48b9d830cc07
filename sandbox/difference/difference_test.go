package difference

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"cofferdam/sandbox"
)

func must(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

func write(path, text string) error { return os.WriteFile(path, []byte(text), 0o644) }

// of compares, and wants an answer.
func of(t *testing.T, from, to string) sandbox.Differences {
	t.Helper()
	d, err := Of(t.Context(), from, to)
	must(t, err)
	return d
}

// lines tells differences as text.
func lines(d sandbox.Differences) (all []string) {
	tell := func(f *sandbox.Found) string {
		if f == nil {
			return "-"
		}
		return fmt.Sprintf("%s,%d,%o", f.Kind, f.Size, f.Mode)
	}
	for _, x := range d.List {
		all = append(all, fmt.Sprintf("%q %s %s", x.Path, tell(x.Was), tell(x.Is)))
	}
	return all
}

// twins makes two folders that fill fills alike.
func twins(t *testing.T, fill func(dir string) error) (a, b string) {
	t.Helper()
	a, b = filepath.Join(t.TempDir(), "a"), filepath.Join(t.TempDir(), "b")
	must(t, os.Mkdir(a, 0o755), os.Mkdir(b, 0o755), fill(a), fill(b))
	return a, b
}

// TestFolders: each kind of difference is told, in order of the paths, and what is
// alike is not, whatever its owner and time are.
func TestFolders(t *testing.T) {
	a, b := twins(t, func(dir string) error {
		return errors.Join(
			write(dir+"/same", "same"), write(dir+"/changed", "old"), write(dir+"/mode", "x"), write(dir+"/kind", "x"),
			write(dir+"/gone", "x"), os.Mkdir(dir+"/d", 0o755), write(dir+"/d/inner", "1"), os.Symlink("one", dir+"/link"),
			os.MkdirAll(dir+"/deep/er", 0o755), write(dir+"/deep/er/f", "x"), write(dir+"/hole", ""), os.Truncate(dir+"/hole", 1<<40),
		)
	})
	must(t,
		write(b+"/changed", "new"), unix.Chmod(b+"/mode", 0o4755), os.Remove(b+"/kind"), os.Mkdir(b+"/kind", 0o755), write(b+"/kind/k", ""),
		os.Remove(b+"/gone"), write(b+"/d/inner", "22"), os.Remove(b+"/link"), os.Symlink("two", b+"/link"), os.RemoveAll(b+"/deep"),
		write(b+"/new\xff\n\x1b[2J", "x"), os.Chtimes(b+"/same", t0, t0), unix.Mkfifo(b+"/pipe", 0o600),
		os.Symlink("/etc/passwd", b+"/passwd"),
	)
	want := []string{
		`"changed" file,3,644 file,3,644`,
		`"d/inner" file,1,644 file,2,644`,
		`"deep" folder,0,755 -`, `"deep/er" folder,0,755 -`, `"deep/er/f" file,1,644 -`,
		`"gone" file,1,644 -`,
		`"kind" file,1,644 folder,0,755`, `"kind/k" - file,0,644`,
		`"link" link,3,777 link,3,777`,
		`"mode" file,1,644 file,1,4755`,
		`"new\xff\n\x1b[2J" - file,1,644`,
		`"passwd" - link,11,777`,
		`"pipe" - other,0,600`,
	}
	d := of(t, a, b)
	if got := strings.Join(lines(d), "\n"); got != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", got, strings.Join(want, "\n"))
	}
	if d.Added != 4 || d.Removed != 4 || d.Changed != 5 || d.More != 0 {
		t.Errorf("counted %+v", d)
	}
	if d := of(t, a, a); len(d.List) != 0 {
		t.Errorf("with itself: %q", lines(d))
	}
}

// TestHoles: a file that holds zeros is the one that has a hole there, and a byte in
// the middle of a terabyte of nothing is found.
func TestHoles(t *testing.T) {
	a, b := twins(t, func(dir string) error {
		return errors.Join(write(dir+"/zeros", ""), os.Truncate(dir+"/zeros", 1<<20), write(dir+"/far", ""), os.Truncate(dir+"/far", 1<<40))
	})
	must(t, write(b+"/zeros", string(make([]byte, 1<<20))))
	f, err := os.OpenFile(b+"/far", os.O_WRONLY, 0)
	must(t, err)
	_, err = f.WriteAt([]byte{1}, 1<<39)
	must(t, err, f.Close())
	if got := lines(of(t, a, b)); len(got) != 1 || !strings.HasPrefix(got[0], `"far"`) {
		t.Errorf("got %q", got)
	}
}

// TestBounds: what is not listed is counted, and a tree that is too deep is refused.
func TestBounds(t *testing.T) {
	memory, err := os.MkdirTemp("/dev/shm", "cofferdam-difference-") // where many files cost little
	must(t, err)
	t.Cleanup(func() { must(t, os.RemoveAll(memory)) })
	a, b, long := memory+"/a", memory+"/b", memory+"/long"
	must(t, os.Mkdir(a, 0o755), os.Mkdir(b, 0o755), os.Mkdir(long, 0o755))
	for i := range sandbox.MaxDifferences + 7 {
		must(t, write(fmt.Sprintf("%s/%06d", b, i), ""))
	}
	if d := of(t, a, b); len(d.List) != sandbox.MaxDifferences || d.More != 7 || d.Added != sandbox.MaxDifferences+7 {
		t.Errorf("%d listed, %d more, %d added", len(d.List), d.More, d.Added)
	}
	for i := range 3 {
		must(t, os.Mkdir(fmt.Sprintf("%s/%d", long, i), 0o755))
		for j := range 3000 {
			must(t, write(fmt.Sprintf("%s/%d/%s%d", long, i, strings.Repeat("n", 240), j), ""))
		}
	}
	d := of(t, a, long)
	total := 0
	for _, x := range d.List {
		total += len(x.Path)
	}
	if total > sandbox.MaxPathBytes || d.More == 0 || int64(len(d.List))+d.More != d.Added {
		t.Errorf("%d bytes of names, %d listed, %d more of %d", total, len(d.List), d.More, d.Added)
	}
	deep := b + "/deep"
	must(t, os.MkdirAll(deep+strings.Repeat("/d", MaxDepth+1), 0o755))
	if _, err := Of(t.Context(), a, deep); !errors.Is(err, ErrTooMuch) {
		t.Errorf("folders that nest too deep: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Of(ctx, a, b); !errors.Is(err, context.Canceled) {
		t.Errorf("who goes away: %v", err)
	}
}
