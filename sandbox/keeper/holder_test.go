package keeper

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"cofferdam"
)

// begins locks the state folder of a slot as a keeper does that is about to serve
// at socket; "" is one of an earlier release.
func (h *house) begins(s Slot, socket string) (serves func() error, end func()) {
	h.t.Helper()
	if err := os.MkdirAll(s.State, 0o700); err != nil {
		h.t.Fatal(err)
	}
	lock, err := os.Create(filepath.Join(s.State, LockFile))
	if err == nil {
		err = syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	}
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { lock.Close() })
	if socket == "" {
		_, err = lock.WriteString("process 4242")
	} else {
		serves, err = Begin(lock, socket)
	}
	if err != nil {
		h.t.Fatal(err)
	}
	return serves, func() { lock.Close() }
}

// TestKeeperThatNeverServes: a new keeper that was stopped before it came to
// serving, in the middle of an upgrade, keeps no server from starting: another
// takes its place beside it, and boxes of before are there. One that has served, or
// serves somewhere else, may have boxes: then nothing is started.
func TestKeeperThatNeverServes(t *testing.T) {
	fake(t).Close() // skips who is not root
	for name, c := range map[string]struct {
		serves  bool
		socket  string // "": of an earlier release
		slot    int
		keepers string // "": refused
	}{
		"the new one":                 {false, "k-2.sock", 1, "a* - b -"},
		"the first one":               {false, "k.sock", 0, "- a* b -"},
		"its socket was taken away":   {true, "k-2.sock", 1, ""},
		"it has another socket":       {false, "other socket", 1, ""},
		"one of an earlier release":   {false, "", 1, ""},
		"the last one of four places": {false, "k-4.sock", 3, "a* b - -"},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHouse(t)
			h.patience = 50 * time.Millisecond
			old := h.slots[0]
			if c.slot == 0 {
				old = h.slots[1]
			}
			h.keeper(old, "a", nil)
			first, err := Dial(testContext(t), old.Socket)
			if err != nil {
				t.Fatal(err)
			}
			b := newBox(t, first)
			socket := c.socket
			if socket != "" {
				socket = filepath.Join(filepath.Dir(h.slots[0].Socket), c.socket)
			}
			serves, end := h.begins(h.slots[c.slot], socket)
			if c.serves {
				if err := serves(); err != nil {
					t.Fatal(err)
				}
			}
			set, err := h.serve("b")
			if c.keepers == "" {
				if cofferdam.KindOf(err) != cofferdam.Conflict || !strings.Contains(cofferdam.HintOf(err), "lock") || h.args != nil || len(h.running) != 1 {
					t.Errorf("%v (%s), %d keepers", err, cofferdam.HintOf(err), len(h.running))
				}
				return
			}
			if err != nil {
				t.Fatalf("%v (%s)", err, cofferdam.HintOf(err))
			}
			h.want("beside it", c.keepers)
			if got, err := set.Open(testContext(t), b.ID()); err != nil || got.ID() != b.ID() {
				t.Errorf("the box of before: %v", err)
			}
			if list, err := set.List(testContext(t)); err != nil || len(list) != 1 {
				t.Errorf("%d boxes, %v", len(list), err)
			}
			newBox(t, set)
			end() // by whom the error's hint told to: nothing else changes
			h.mustServe("b")
			h.want("when it was ended", c.keepers)
		})
	}
}

// TestHolder reads what keepers of this release and of earlier ones write, and
// anything else.
func TestHolder(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, LockFile)
	if h := holderOf(dir); h != (holder{}) {
		t.Errorf("%+v", h)
	}
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString(strings.Repeat("x", 4096)); err != nil { // of whom it was before
		t.Fatal(err)
	}
	serves, err := Begin(f, "/a b/k.sock")
	if h := holderOf(dir); err != nil || h != (holder{os.Getpid(), beginsWord, "/a b/k.sock"}) {
		t.Errorf("%+v, %v", h, err)
	}
	if err := serves(); err != nil || holderOf(dir) != (holder{os.Getpid(), servesWord, "/a b/k.sock"}) {
		t.Errorf("%+v, %v", holderOf(dir), err)
	}
	for text, want := range map[string]holder{
		"process 7": {process: 7}, "": {}, "\x00\xff\n\n\n": {}, "process x\nbegins": {word: "begins"}, "process 9\nserves /k": {9, "serves", "/k"},
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := holderOf(dir); got.process != want.process || got.socket != want.socket {
			t.Errorf("%q: %+v", text, got)
		}
	}
}
