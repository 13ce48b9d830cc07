package local

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"cofferdam"
)

// TestFolderWithoutRights: a folder that the user may not enter, and a file that
// the user may not copy, are told as such, with what to do.
func TestFolderWithoutRights(t *testing.T) {
	dir := real(t)
	shell(t, dir, "mkdir closed copied state; touch copied/secret; chmod 000 closed copied/secret")
	if os.Geteuid() == 0 {
		shell(t, dir, "chmod 711 ..; chown -R 65534 .")
	}
	s := testState(filepath.Join(dir, "state"))
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // for good: the thread ends with the goroutine
		if err := unix.Setfsuid(65534); os.Geteuid() == 0 && err != nil {
			t.Error(err)
			return
		}
		if _, err := findWorkspace(filepath.Join(dir, "closed"), "", s); err == nil || !strings.Contains(err.Error(), "permission denied") || !strings.Contains(cofferdam.HintOf(err), "may enter") {
			t.Errorf("a folder that may not be entered: %v, hint %q", err, cofferdam.HintOf(err))
		}
		w := workspace{dir: filepath.Join(dir, "copied")}
		if err := w.copy(t.Context(), s, "s-1"); err == nil || !strings.Contains(cofferdam.HintOf(err), "readable to you") {
			t.Errorf("a file that may not be read: %v, hint %q", err, cofferdam.HintOf(err))
		}
	}()
	<-done
}

// TestCopyFollowsNoSwap: an entry that another process swaps for a link after it
// was looked at is not read through that link, wherever in the tree it is.
func TestCopyFollowsNoSwap(t *testing.T) {
	for _, what := range []string{"file", "folder", "deep", "pipe", "top"} {
		t.Run(what, func(t *testing.T) {
			dir := real(t)
			shell(t, dir, "mkdir -p shop/folder/sub secret/sub && echo canary > secret/file && echo canary > secret/sub/file && echo plain > shop/file && echo plain > shop/folder/file && echo plain > shop/folder/sub/file")
			shop := filepath.Join(dir, "shop")
			swap := func(path, target string) {
				if err := errors.Join(os.RemoveAll(path), os.Symlink(target, path)); err != nil {
					t.Error(err)
				}
			}
			swaps := map[string]func(){
				"file":   func() { swap(filepath.Join(shop, "file"), "../secret/file") },
				"folder": func() { swap(filepath.Join(shop, "folder"), "../secret") },
				"deep":   func() { swap(filepath.Join(shop, "folder/sub"), "../../secret/sub") },
				"pipe": func() {
					path := filepath.Join(shop, "file")
					if err := errors.Join(os.Remove(path), unix.Mkfifo(path, 0o600)); err != nil {
						t.Error(err)
					}
				},
			}
			at := map[string]string{"file": "file", "folder": "folder", "deep": "folder/sub", "pipe": "file"}[what]
			done := false
			between := func(path string) {
				if path == at && !done {
					done = true
					swaps[what]()
				}
			}
			if what == "top" {
				swap(shop, "secret")
			}
			to := filepath.Join(dir, "copy")
			err := copyFolder(t.Context(), shop, to, between)
			if what == "top" && !errors.Is(err, unix.ELOOP) || what != "top" && (err != nil || !done) {
				t.Errorf("%v, swapped: %t", err, done)
			}
			if out := shell(t, dir, "test ! -d copy || ! grep -rl canary copy"); out != "" {
				t.Errorf("copied: %s", out)
			}
			// Control: by its name, as it was looked at, the same entry is the secret.
			if what != "pipe" {
				if out := shell(t, dir, "grep -Rl canary shop/"); !strings.Contains(out, "file") {
					t.Errorf("control: %q", out)
				}
			}
		})
	}
}

// TestCopyOfABusyFolder: one that is swapped again and again ends the copy, one
// that goes away is not in it, and who does not want it any more is heard.
func TestCopyOfABusyFolder(t *testing.T) {
	dir := real(t)
	shell(t, dir, "mkdir -p shop/x && echo a > shop/gone && echo b > shop/stays && mkfifo shop/pipe && touch -d 2001-02-03T04:05:06Z shop/stays shop/x shop")
	shop := filepath.Join(dir, "shop")
	attributes := unix.Setxattr(filepath.Join(shop, "stays"), "user.kind", []byte("v"), 0) == nil
	shell(t, dir, "touch -d 2001-02-03T04:05:06Z shop/stays shop/x shop")
	if err := copyFolder(t.Context(), shop, filepath.Join(dir, "one"), func(path string) {
		if path == "gone" {
			os.Remove(filepath.Join(shop, path))
		}
	}); err != nil {
		t.Error(err)
	}
	if out := shell(t, dir, "ls -A one | tr '\\n' ' '; test -p one/pipe && stat -c %Y one one/x one/stays | sort -u"); out != "pipe stays x 981173106\n" {
		t.Errorf("the copy: %q", out)
	}
	value := make([]byte, 8)
	if n, err := unix.Getxattr(filepath.Join(dir, "one/stays"), "user.kind", value); attributes && (err != nil || string(value[:n]) != "v") {
		t.Errorf("its attribute: %q, %v", value[:max(n, 0)], err)
	}
	n := 0
	err := copyFolder(t.Context(), shop, filepath.Join(dir, "two"), func(path string) {
		if path == "stays" || path == "x" { // each look sees the other kind
			n++
			shell(t, shop, "if test -f stays; then rm stays; mkdir stays; else rmdir stays; echo b > stays; fi")
		}
	})
	if !errors.Is(err, errSwapped) || n < maxCopyTries {
		t.Errorf("after %d swaps: %v", n, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := copyFolder(ctx, shop, filepath.Join(dir, "three"), nil); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	shell(t, dir, "p=deep; for i in $(seq 300); do p=$p/d; done; mkdir -p $p")
	if err := copyFolder(t.Context(), filepath.Join(dir, "deep"), filepath.Join(dir, "four"), nil); err == nil || !strings.Contains(err.Error(), "deep") {
		t.Errorf("300 folders deep: %v", err)
	}
}

// leaves is a context that nobody waits for any more after n looks at it.
type leaves struct {
	context.Context
	n int
}

func (l *leaves) Err() error {
	if l.n--; l.n < 0 {
		return context.Canceled
	}
	return nil
}

// TestCopyOfALargeFileEnds: whoever does not wait any more need not wait for the
// end of a file either.
func TestCopyOfALargeFileEnds(t *testing.T) {
	dir := real(t)
	shell(t, dir, "head -c 50331648 /dev/zero > large; : > copy")
	from, err := os.Open(filepath.Join(dir, "large"))
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	to, err := os.OpenFile(filepath.Join(dir, "copy"), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer to.Close()
	c := &copier{ctx: &leaves{t.Context(), 2}}
	err = c.fill(from, to, 3*copyPiece)
	info, statErr := to.Stat()
	if statErr != nil {
		t.Fatal(statErr)
	}
	if err == nil && info.Size() == 3*copyPiece && c.ctx.(*leaves).n == 2 {
		t.Skip("the file system of the test shares data: there is nothing to wait for")
	}
	if !errors.Is(err, context.Canceled) || info.Size() != 2*copyPiece {
		t.Errorf("%v, %d bytes are copied", err, info.Size())
	}
}
