package watch

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"cofferdam"
	"cofferdam/sandbox"
)

// stand is a box that stands still, or not.
type stand struct {
	kept bool
	goOn func()
}

func (s stand) Kept() bool { return s.kept }
func (s stand) GoOn()      { s.goOn() }

// standing is what was written by a box that can be stopped, on a disk of its own.
type standing struct {
	*written
	free  int64         // MiB of its disk
	stops int           // how often it was stopped
	gone  int           // how often it went on
	still func() stand  // what it does then; nil: it stands
	begun chan struct{} // closed once a command that began meanwhile runs
}

func writeStill(t *testing.T, most Usage) *standing {
	s := &standing{written: write(t, most), free: 1000, begun: make(chan struct{})}
	s.Folder.space = func(string) (Usage, error) { return Usage{s.free << 20, 1 << 20}, nil }
	s.Folder.peak = Usage{s.free << 20, 1 << 20}
	s.Folder.box.Still = func(context.Context) (Stillness, error) {
		s.stops++
		st := stand{kept: true}
		if s.still != nil {
			st = s.still()
		}
		if !st.kept && st.goOn == nil {
			return nil, errors.New("it runs on")
		}
		st.goOn = func() { s.gone++ }
		return st, nil
	}
	return s
}

// TestFolderThatHides: what no count sees is missing on the disk, and is seen by one for
// which the box stands still.
func TestFolderThatHides(t *testing.T) {
	s := writeStill(t, Usage{16 << 20, 100})
	s.commands.Begin("e-1", func(*sandbox.Result) {})
	hidden := filepath.Join(t.TempDir(), "hidden")
	must(t, os.WriteFile(hidden, make([]byte, 30<<20), 0o600))
	s.still = func() stand { // now it is where it belongs
		must(t, os.Rename(hidden, filepath.Join(s.dir, "hidden")))
		return stand{kept: true}
	}
	must(t, s.look(t.Context()))
	if s.stops != 0 || s.killed != nil {
		t.Fatalf("control: nobody misses anything: %d, %q", s.stops, s.killed)
	}
	s.free -= 15
	if must(t, s.look(t.Context())); s.stops != 0 { // that may be in it
		t.Errorf("within its size: %d", s.stops)
	}
	s.free -= 15
	if s.counted = s.counted.Add(-time.Minute); !s.due() {
		t.Error("nobody looks when so much is gone")
	}
	must(t, s.look(t.Context()))
	if s.stops != 1 || s.gone != 1 || !slices.Equal(s.killed, []cofferdam.ExecID{"e-1"}) || s.Held() < 30<<20 {
		t.Errorf("stopped %d times, went on %d times, %q, holds %d", s.stops, s.gone, s.killed, s.Held())
	}
}

// TestOthersTakeTheDisk: a box that holds little is stopped once for what others have
// taken, and nothing of it is ended; the next time it is they take as much again.
func TestOthersTakeTheDisk(t *testing.T) {
	s := writeStill(t, Usage{16 << 20, 100})
	s.commands.Begin("e-1", func(*sandbox.Result) {})
	s.file(t, "a", 10)
	s.free -= 10
	for i, want := range []int{0, 1, 1, 2} {
		must(t, s.look(t.Context()), s.look(t.Context()))
		if s.stops != want || s.gone != want || s.killed != nil || s.Over() || s.Held() < 10<<20 {
			t.Errorf("%d: stopped %d times, went on %d times, %q", i, s.stops, s.gone, s.killed)
		}
		s.free -= []int64{7, 5, 2, 0}[i]
	}
	s.free += 500 // they remove something: what it takes then is seen as before
	must(t, s.look(t.Context()))
	s.free -= 7
	if must(t, s.look(t.Context())); s.stops != 3 {
		t.Errorf("after others made room: stopped %d times", s.stops)
	}
}

// TestNeighbourThatWrites: a box is stopped to be counted for a bounded part of the time,
// whatever others write. Who writes that much by itself, or who was not counted for it
// just now, is counted at once.
func TestNeighbourThatWrites(t *testing.T) {
	s := writeStill(t, Usage{64 << 20, 100})
	s.commands.Begin("e-1", func(*sandbox.Result) {})
	counted := func(others int64, want bool, what string) {
		t.Helper()
		s.counted, s.took = time.Now(), time.Hour // it took as long as that, and has just ended
		if s.free -= others; s.due() != want {
			t.Errorf("%s: counted at once %v, want %v", what, !want, want)
		}
	}
	must(t, s.look(t.Context()))
	counted(80, true, "others write, and it was not counted for that")
	must(t, s.look(t.Context()))
	if s.stops != 1 || s.killed != nil {
		t.Fatalf("stopped %d times, %q", s.stops, s.killed)
	}
	counted(80, false, "others write on")
	if s.counted = s.counted.Add(-folderShare * time.Hour); !s.due() {
		t.Error("nobody counts later")
	}
	s.file(t, "a", 40)
	must(t, s.look(t.Context()))
	counted(80, true, "it has written most of that itself")
	must(t, s.look(t.Context()))
	counted(80, false, "and now others have")
	s.still = func() stand { return stand{} }
	if err := s.look(t.Context()); !errors.Is(err, errUnsure) {
		t.Error(err)
	}
	counted(80, true, "it did not stand still")
}

// TestNobodyIsEndedByAGuess: a count that is too high, as of a folder that was moved
// while it was counted, ends nothing; nor does one that does not come to an end.
func TestNobodyIsEndedByAGuess(t *testing.T) {
	for name, add := range map[string]func(dir string) error{
		"bytes": func(dir string) error { return os.WriteFile(dir+"/x", make([]byte, 20<<20), 0o600) },
		"depth": func(dir string) error { return os.MkdirAll(dir+"/x"+strings.Repeat("/d", MaxDepth), 0o700) },
	} {
		s := writeStill(t, Usage{16 << 20, 1000})
		s.commands.Begin("e-1", func(*sandbox.Result) {})
		must(t, add(s.dir))
		s.still = func() stand { must(t, os.RemoveAll(s.dir+"/x")); return stand{kept: true} }
		must(t, s.look(t.Context()))
		if s.stops != 1 || s.gone != 1 || s.killed != nil || s.ended != "" || s.Over() {
			t.Errorf("%s: stopped %d times, went on %d times, %q, %q", name, s.stops, s.gone, s.killed, s.ended)
		}
	}
}

// TestWhatDoesNotStand: a box of which something runs while it is counted is counted
// again; one that never stands is ended once that was tried some times in a row, and not
// if it stands in between, or is within its size whatever it hides.
func TestWhatDoesNotStand(t *testing.T) {
	s := writeStill(t, Usage{16 << 20, 100})
	s.commands.Begin("e-1", func(*sandbox.Result) {})
	s.free -= 20
	s.still = func() stand { return stand{kept: s.stops%2 == 0, goOn: func() {}} }
	if must(t, s.look(t.Context())); s.stops != 2 || s.gone != 2 || s.unsure != 0 || s.killed != nil {
		t.Errorf("at the second try: stopped %d times, went on %d times, %q", s.stops, s.gone, s.killed)
	}
	for i := range 3 * stillTries {
		s.free -= 20
		s.still = func() stand { return stand{} } // it runs on
		if i%stillTries == stillTries-1 {
			s.still = nil
		}
		if err := s.look(t.Context()); (err != nil) != (s.still != nil) || err != nil && !errors.Is(err, errUnsure) || s.killed != nil {
			t.Errorf("%d: %v, %q", i, err, s.killed)
		}
	}
	before := s.gone
	s.still = func() stand { return stand{goOn: func() {}} } // it stands, and then runs
	for i := range stillTries {
		s.free -= 20
		if err := s.look(t.Context()); (err != nil) != (i < stillTries-1) || (s.killed != nil) != (i == stillTries-1) {
			t.Errorf("%d: %v, %q", i, err, s.killed)
		}
	}
	if s.gone-before < stillTries*stillTries {
		t.Errorf("went on %d times", s.gone-before)
	}
}

// TestBeginWaits: a command that begins while a box stands still runs afterwards.
func TestBeginWaits(t *testing.T) {
	s := writeStill(t, Usage{16 << 20, 100})
	began := make(chan struct{})
	s.free -= 20
	s.still = func() stand {
		go func() {
			defer close(began)
			s.commands.Begin("e-1", func(*sandbox.Result) {})
		}()
		return stand{kept: true}
	}
	s.Folder.box.Open = func(func(*os.File, []string) bool) { // while it is counted
		if s.commands.Count() != 0 {
			t.Error("a command began while the box stood still")
		}
	}
	must(t, s.look(t.Context()))
	<-began
	if s.commands.Count() != 1 {
		t.Error("it did not begin afterwards")
	}
}
