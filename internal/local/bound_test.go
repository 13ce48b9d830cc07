package local

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"cofferdam"
	"cofferdam/internal/local/network"
	"cofferdam/sandbox"
)

// TestRecordIsBounded: what a command does goes on record up to a number of events
// and of bytes; what comes then is refused, in a way that ends the network; and how
// the run ended is on record all the same.
func TestRecordIsBounded(t *testing.T) {
	event := cofferdam.Event{Kind: cofferdam.EventConnect, Source: "egress", Resource: "good.test:443", Verdict: cofferdam.Allowed}
	for name, b := range map[string]bounded{
		"events": {events: 5, bytes: maxRecord}, "bytes": {events: maxEvents, bytes: 1000},
	} {
		t.Run(name, func(t *testing.T) {
			r := &run{id: "s-bound", state: testState(filepath.Join(t.TempDir(), "cofferdam"))}
			var err error
			if r.record, err = r.state.open(r.id); err != nil {
				t.Fatal(err)
			}
			b.log = r.record.log
			passed := 0
			for {
				if _, err = b.Record(t.Context(), event); err != nil {
					break
				}
				if passed++; passed > 100 {
					t.Fatal("there is no bound")
				}
			}
			if cofferdam.KindOf(err) != cofferdam.Exhausted || !errors.Is(err, network.ErrFull) || !strings.Contains(err.Error(), "its record is full: ") {
				t.Errorf("after %d: %v", passed, err)
			}
			if name == "events" && passed != 5 || r.record.log.Size() != uint64(passed) {
				t.Errorf("%d of 5 passed, %d are on record", passed, r.record.log.Size())
			}
			r.lost(err)
			if r.noNetwork == nil || !strings.Contains(r.noNetwork.Reason, "its record is full") || r.noNetwork.Hint == "" || r.noNetwork.After <= 0 {
				t.Errorf("lost: %+v", r.noNetwork)
			}
			if err := r.record.ended(sandbox.Result{Exit: 7}, nil); err != nil {
				t.Fatal(err)
			}
			file, err := r.record.finish("", nil)
			if err != nil {
				t.Fatal(err)
			}
			_, text := verify(t, r.state, file)
			if !strings.Contains(text, `"outcome":"lost"`) || !strings.Contains(text, `"exit":"7"`) {
				t.Errorf("on record: %s", text)
			}
		})
	}
}

// TestFullDiskIsNamed: a record that found no space says where it lies and how much
// there is; other errors are as they were.
func TestFullDiskIsNamed(t *testing.T) {
	dir := t.TempDir()
	for _, cause := range []error{unix.ENOSPC, unix.EDQUOT} {
		err := placed(dir, "free some there", &cofferdam.Error{Kind: cofferdam.Exhausted, Reason: "no words of a place", Err: cause})
		if cofferdam.KindOf(err) != cofferdam.Unavailable || !strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), " MiB are free") || cofferdam.HintOf(err) != "free some there" {
			t.Errorf("%v", err)
		}
	}
	if err := placed(dir, "", unix.EIO); err != unix.EIO {
		t.Errorf("%v", err)
	}
	if placed(dir, "", nil) != nil {
		t.Error("an error of nothing")
	}
	if s := room(dir + "/absent/deeper"); !strings.HasSuffix(s, " MiB are free to you") {
		t.Errorf("%s", s)
	}
	if s := room(dir + "/\x00"); !strings.Contains(s, "cannot be seen") {
		t.Errorf("%s", s)
	}
	s := testState(dir)
	err := s.unusable(&os.PathError{Op: "mkdir", Path: "/run/elsewhere", Err: unix.ENOSPC})
	if !strings.Contains(err.Error(), "/run/elsewhere") {
		t.Errorf("not where the space is missing: %v", err)
	}
	if err := s.unusable(unix.EROFS); !strings.Contains(err.Error(), "state folder "+dir) {
		t.Errorf("%v", err)
	}
}
