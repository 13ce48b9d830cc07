package local

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"cofferdam"
)

// TestKilledRunOfAnotherState: what a killed run left in memory is finished by a run
// with another state folder, into its own state folder; if that is gone, it is
// removed. What goes on, what nobody knows and what is not this user's stays.
func TestKilledRunOfAnotherState(t *testing.T) {
	runtime, dir := real(t), real(t)
	old := time.Now().Add(-time.Hour)
	age := func(paths ...string) {
		t.Helper()
		for _, path := range paths {
			if err := os.Chtimes(path, old, old); err != nil {
				t.Fatal(err)
			}
		}
	}
	begin := func(name, id string, goesOn bool) state {
		t.Helper()
		s := newState(filepath.Join(dir, name), runtime)
		if !s.apart() {
			t.Fatalf("live records in %s", s.live)
		}
		r, err := s.open(cofferdam.SessionID(id))
		if err != nil {
			t.Fatal(err)
		}
		if err := r.put(cofferdam.Event{Kind: cofferdam.EventExecStart, Resource: "command"}); err != nil {
			t.Fatal(err)
		}
		if goesOn {
			t.Cleanup(func() { r.store.Close() })
		} else {
			r.store.Close() // as the kernel does at the end of a process
		}
		age(r.dir(), s.live)
		return s
	}
	killed, goesOn := begin("killed", "s-1", false), begin("goes-on", "s-2", true)
	gone, goneGoesOn := begin("gone", "s-3", false), begin("gone-goes-on", "s-4", true)
	for _, s := range []state{gone, goneGoesOn} {
		if err := os.RemoveAll(s.dir); err != nil {
			t.Fatal(err)
		}
	}
	parent := filepath.Dir(killed.live)
	foreign := begin("foreign", "s-5", false) // says that it is another's
	if err := os.WriteFile(filepath.Join(foreign.live, stateFile), []byte(killed.dir), 0o600); err != nil {
		t.Fatal(err)
	}
	open := begin("open", "s-6", false) // others may write its state folder
	if err := os.Chmod(open.dir, 0o777); err != nil {
		t.Fatal(err)
	}
	keyless := begin("keyless", "s-7", false)
	if err := os.RemoveAll(keyless.path("keys")); err != nil {
		t.Fatal(err)
	}
	empty := filepath.Join(parent, "0000000000000000")
	if err := os.Mkdir(empty, 0o700); err != nil {
		t.Fatal(err)
	}
	age(empty, foreign.live)

	own := newState(filepath.Join(dir, "own"), runtime)
	if err := own.prepare(); err != nil {
		t.Fatal(err)
	}
	for range 20 { // each looks at some
		own.tidy("s-me")
	}
	traces := list(killed.path("traces"))
	if len(traces) != 1 || len(list(killed.live)) != 0 {
		t.Fatalf("of a killed run: traces %v, live %v", traces, list(killed.live))
	}
	if _, text := verify(t, killed, killed.path("traces", traces[0].Name())); !strings.Contains(text, "was killed") || !strings.Contains(text, "s-1") {
		t.Errorf("the trace: %s", text)
	}
	for name, want := range map[string]bool{gone.live: false, empty: false, goesOn.live: true, goneGoesOn.live: true, foreign.live: true, open.live: true, keyless.live: true, own.live: true} {
		if there(name) != want {
			t.Errorf("%s is there: %t", filepath.Base(name), !want)
		}
	}
	for _, s := range []state{goesOn, goneGoesOn, foreign, open, keyless} {
		if len(list(s.live)) != 1 || len(list(s.path("traces"))) != 0 || s != goneGoesOn && there(s.path("keys")) != (s != keyless) {
			t.Errorf("%s was touched", filepath.Base(s.dir))
		}
	}
	if there(goneGoesOn.dir) || there(gone.dir) {
		t.Error("a state folder that was gone is there again")
	}
}
