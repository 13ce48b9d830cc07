package watch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"cofferdam"
	"cofferdam/sandbox"
)

// written is a folder that a box writes to which is not there: what was done to it
// is remembered.
type written struct {
	*Folder
	dir      string
	commands Commands
	mu       sync.Mutex
	killed   []cofferdam.ExecID // guarded by mu
	ended    string             // guarded by mu
	full     int                // guarded by mu
	refuse   error              // of a kill
}

func write(t *testing.T, most Usage) *written {
	t.Helper()
	w := &written{dir: filepath.Join(t.TempDir(), "work")}
	must(t, os.Mkdir(w.dir, 0o700))
	w.Folder = NewFolder(w.dir, most, 0, Box{
		Commands: &w.commands, Life: sandbox.NewLife(),
		Kill: func(_ context.Context, id cofferdam.ExecID) error {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.killed = append(w.killed, id)
			return w.refuse
		},
		Open: func(yield func(*os.File, []string) bool) {
			f, err := os.Open("/proc/self/fd")
			must(t, err)
			defer f.Close()
			yield(f, nil)
		},
		Full:  func() { w.mu.Lock(); defer w.mu.Unlock(); w.full++ },
		End:   func(why string) { w.mu.Lock(); defer w.mu.Unlock(); w.ended = why },
		Fault: func(err error) { t.Error(err) },
	})
	return w
}

// file writes so many MiB.
func (w *written) file(t *testing.T, name string, mib int) {
	t.Helper()
	must(t, os.WriteFile(filepath.Join(w.dir, name), make([]byte, mib<<20), 0o600))
}

// TestFolder: within its size nothing happens; over it commands are ended and say
// why; what makes room is left alone, and what grows on without one ends the box.
func TestFolder(t *testing.T) {
	w := write(t, Usage{16 << 20, 100})
	done := w.commands.Begin("e-1", func(*sandbox.Result) {})
	w.file(t, "a", 10)
	must(t, w.look(t.Context()))
	if w.killed != nil || w.Over() || w.Held() < 10<<20 {
		t.Fatalf("10 MiB of 16: %q, holds %d", w.killed, w.Held())
	}
	w.file(t, "b", 10)
	must(t, w.look(t.Context()))
	if !slices.Equal(w.killed, []cofferdam.ExecID{"e-1"}) || !w.Over() || w.full != 1 || w.ended != "" {
		t.Fatalf("20 MiB of 16: %q, %q", w.killed, w.ended)
	}
	var r sandbox.Result
	if done(&r); !strings.Contains(r.Reason, "/work holds 20 MiB in 2 files, and its size is 16 MiB for 100") {
		t.Errorf("%q", r.Reason)
	}
	w.commands.Begin("e-2", func(*sandbox.Result) {}) // it makes room, which takes a while
	must(t, w.look(t.Context()))
	if len(w.killed) != 1 || !w.Over() {
		t.Errorf("what makes room: %q", w.killed)
	}
	must(t, os.Remove(filepath.Join(w.dir, "b")), w.look(t.Context()))
	if len(w.killed) != 1 || w.Over() {
		t.Errorf("it has made room: %q, over %v", w.killed, w.Over())
	}
}

// TestFolderThatGrowsOn: who writes on without a command ends the box, and so does
// what no kill ends; one that wrote and is over by itself ends nothing.
func TestFolderThatGrowsOn(t *testing.T) {
	w := write(t, Usage{16 << 20, 100})
	w.file(t, "a", 30)
	must(t, w.look(t.Context()))
	if w.ended != "" || !w.Over() {
		t.Fatalf("once: %q", w.ended)
	}
	w.file(t, "b", 10)
	must(t, w.look(t.Context()))
	if !strings.Contains(w.ended, "writes on") {
		t.Errorf("again: %q", w.ended)
	}
	w = write(t, Usage{16 << 20, 100})
	w.refuse = errors.New("it does not end")
	w.commands.Begin("e-1", func(*sandbox.Result) {})
	w.file(t, "a", 30)
	if err := w.look(t.Context()); !errors.Is(err, w.refuse) || !strings.Contains(w.ended, "writes on") {
		t.Errorf("what no kill ends: %v, %q", err, w.ended)
	}
	w = write(t, Usage{16 << 20, 1000})
	must(t, os.MkdirAll(w.dir+strings.Repeat("/d", MaxDepth), 0o700), w.look(t.Context()))
	if !strings.Contains(w.ended, "nested more than") {
		t.Errorf("what cannot be counted: %q", w.ended)
	}
}

// TestFolderCountsWhatHasNoName: files that were removed and are open count, once,
// and no longer once they are closed.
func TestFolderCountsWhatHasNoName(t *testing.T) {
	w := write(t, Usage{16 << 20, 100})
	w.file(t, "a", 10)
	f, err := os.Open(filepath.Join(w.dir, "a"))
	must(t, err)
	twin, err := unix.Dup(int(f.Fd()))
	must(t, err, os.Remove(f.Name()), w.look(t.Context()))
	if n := w.Held(); n < 10<<20 || n > 11<<20 || w.Over() {
		t.Errorf("10 MiB with two descriptors: %d", n)
	}
	must(t, unix.Close(twin), f.Close(), w.look(t.Context()))
	if n := w.Held(); n > 1<<20 {
		t.Errorf("closed: %d", n)
	}
}

// TestFolderCountsRemovedFolders: one that had many names keeps their room while
// somebody has it open.
func TestFolderCountsRemovedFolders(t *testing.T) {
	w := write(t, Usage{16 << 20, 4000})
	many := filepath.Join(w.dir, "many")
	must(t, os.Mkdir(many, 0o700))
	for i := range 3000 {
		must(t, os.WriteFile(filepath.Join(many, fmt.Sprintf("%0200d", i)), nil, 0o600))
	}
	f, err := os.Open(many)
	must(t, err, os.RemoveAll(many))
	defer f.Close()
	var st unix.Stat_t
	must(t, unix.Fstat(int(f.Fd()), &st), w.look(t.Context()))
	if st.Blocks*512 < 100<<10 {
		t.Skipf("not run here: on this file system it keeps %d bytes", st.Blocks*512)
	}
	if n := w.Held(); n < st.Blocks*512 {
		t.Errorf("a removed folder of %d bytes: %d", st.Blocks*512, n)
	}
	must(t, f.Close(), w.look(t.Context()))
	if n := w.Held(); n > 64<<10 {
		t.Errorf("closed: %d", n)
	}
}

// TestFolderIsWatched: what is too much is found by whoever watches, and nobody
// looks after the end.
func TestFolderIsWatched(t *testing.T) {
	w := write(t, Usage{16 << 20, 100})
	l := Folders{w.Folder}
	l.Begin()
	w.commands.Begin("e-1", func(*sandbox.Result) {})
	w.file(t, "a", 30)
	for deadline := time.Now().Add(time.Minute); !l.Over(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("nobody finds 30 MiB of 16: %d", w.Held())
		}
	}
	l.End()
	if l.Of(w.dir) != w.Folder || l.Of("/other") != nil {
		t.Error("it is not found by its folder")
	}
	must(t, os.Remove(filepath.Join(w.dir, "a")))
	if time.Sleep(3 * folderTick); !w.Over() {
		t.Error("it is looked at although that was ended")
	}
	if w.killed == nil {
		t.Error("its command was not ended")
	}
}
