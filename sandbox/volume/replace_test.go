package volume

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"cofferdam"
	"cofferdam/sandbox"
)

// filled fills a workspace that is a file of this size with one letter.
func filled(letter string) func(string, int64) error {
	return func(path string, size int64) error {
		return os.WriteFile(path, bytes.Repeat([]byte(letter), int(size)), 0o600)
	}
}

// files opens a store whose workspaces are files that are not sparse.
func files(t *testing.T, dir string) *Store {
	t.Helper()
	s, err := Open(dir, sandbox.GVisor, func(_ context.Context, path string, size int64) error { return filled("a")(path, size) })
	must(t, err)
	return s
}

// holds says which letter a workspace is full of.
func holds(t *testing.T, s *Store, id sandbox.WorkspaceID, size int) string {
	t.Helper()
	data, err := os.ReadFile(s.image(id))
	must(t, err)
	if len(data) != size || !bytes.Equal(data, bytes.Repeat(data[:1], size)) {
		t.Fatalf("it holds %d bytes, or two contents: %q … %q", len(data), data[:1], data[len(data)-1:])
	}
	return string(data[:1])
}

// TestReplace: a workspace that no box has gets another content; what cannot be is
// refused and changes nothing.
func TestReplace(t *testing.T) {
	dir := t.TempDir()
	s := files(t, dir)
	const size = 64 << 10
	h := s.must(t, Want{first, 3, boxA, size})
	put := func(id sandbox.WorkspaceID, epoch int64, fill func(string, int64) error) error {
		return s.Replace(t.Context(), id, epoch, size, fill)
	}
	wantKind(t, put(first, 3, filled("b")), cofferdam.Conflict) // a box has it
	must(t, h.Release(nil))
	wantKind(t, put(first, 2, filled("b")), cofferdam.Conflict) // late
	wantKind(t, put(first, -1, filled("b")), cofferdam.Invalid)
	wantKind(t, put("w-../../x", 3, filled("b")), cofferdam.Invalid)
	wantKind(t, put(second, 3, filled("b")), cofferdam.NotFound)
	broken := errors.New("input/output error")
	if err := put(first, 3, func(path string, size int64) error { return errors.Join(filled("b")(path, size/2), broken) }); !errors.Is(err, broken) {
		t.Errorf("what cannot be filled: %v", err)
	}
	wantKind(t, put(first, 3, func(path string, size int64) error { return filled("b")(path, size+1) }), cofferdam.Invalid)
	wantKind(t, put(first, 3, func(path string, _ int64) error { return os.Mkdir(path, 0o700) }), cofferdam.Invalid)
	wantKind(t, s.Replace(t.Context(), first, 3, 1<<60, filled("b")), cofferdam.Exhausted)
	if got := holds(t, s, first, size); got != "a" {
		t.Errorf("after refusals it holds %s", got)
	}
	must(t, put(first, 4, filled("b")))
	if got := holds(t, s, first, size); got != "b" {
		t.Errorf("it holds %s", got)
	}
	left, err := os.ReadDir(dir)
	must(t, err)
	for _, e := range left {
		if !strings.HasSuffix(e.Name(), ".lock") && e.Name() != string(first) {
			t.Errorf("left behind: %s", e.Name())
		}
	}
	if _, err := s.Attach(t.Context(), Want{first, 3, boxB, size}, ""); cofferdam.KindOf(err) != cofferdam.Conflict {
		t.Errorf("who had it before it was put back: %v", err)
	}
	again := s.must(t, Want{first, 4, boxB, size})
	must(t, again.Release(nil)) // what it needs for that is there
}

const replaceDir = "COFFERDAM_TEST_REPLACE"

// TestReplaceKilled: whenever the process that puts a workspace back is killed, the
// next one finds one of the two contents, whole and with its description, and nothing
// else.
func TestReplaceKilled(t *testing.T) {
	const size = 256 << 10
	if dir := os.Getenv(replaceDir); dir != "" {
		s := files(t, dir)
		fmt.Println("now")
		for i := int64(0); ; i++ {
			must(t, s.Replace(t.Context(), first, 2+i, size, filled(string(rune('b'+i%20)))))
			fmt.Println("done", i)
		}
	}
	dir := t.TempDir()
	must(t, files(t, dir).must(t, Want{first, 1, boxA, size}).Release(nil))
	seen, half := map[string]bool{}, 0
	for range 15 {
		must(t, reset(dir))
		cmd := exec.Command(os.Args[0], "-test.run", "^TestReplaceKilled$")
		cmd.Env = append(os.Environ(), replaceDir+"="+dir)
		out, err := cmd.StdoutPipe()
		must(t, err, cmd.Start())
		said := bufio.NewScanner(out)
		for said.Scan() && said.Text() != "now" {
		}
		for range rand.IntN(3) { // somewhere in one of the first
			said.Scan()
		}
		time.Sleep(time.Duration(rand.IntN(4000)) * time.Microsecond)
		must(t, cmd.Process.Kill())
		_, _ = io.Copy(io.Discard, out)
		_ = cmd.Wait() // it was killed
		if found, err := filepath.Glob(dir + "/w-*.new"); err == nil && len(found) > 0 {
			half++
		}
		s := files(t, dir)
		all, err := s.List()
		if err != nil || len(all) != 1 || all[0].Size != size {
			t.Fatalf("listed %+v, %v", all, err)
		}
		letter := holds(t, s, first, size)
		if want := string(rune('b' + (all[0].Epoch-2)%20)); all[0].Epoch > 1 && letter != want {
			t.Errorf("it holds %s, and its description is that of %s", letter, want)
		}
		if left, err := filepath.Glob(dir + "/w-*.new"); err != nil || len(left) > 0 {
			t.Errorf("left: %q, %v", left, err)
		}
		seen[letter] = true
		h := s.must(t, Want{first, all[0].Epoch, boxB, size})
		must(t, h.Release(nil))
	}
	t.Logf("contents found: %v; %d were killed with one half made", seen, half)
	if len(seen) < 2 {
		t.Errorf("control: none came before its end: %v", seen)
	}
}

// reset gives the workspace its first content and epoch.
func reset(dir string) error {
	s, err := Open(dir, sandbox.GVisor, nil)
	if err != nil {
		return err
	}
	a, err := s.read(first)
	if err != nil {
		return err
	}
	a.Epoch = 1
	return errors.Join(filled("a")(s.image(first), a.Size), s.write(s.folder(first), a))
}
