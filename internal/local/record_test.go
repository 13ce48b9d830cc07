package local

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"cofferdam"
	"cofferdam/proof"
	"cofferdam/sandbox"
)

// testState is one whose live records lie in it too.
func testState(dir string) state { return newState(dir, "none") }

// TestLiveRecords: they lie in memory if the user has a place there that is
// nobody else's, apart for each state; not where they would go with a login.
func TestLiveRecords(t *testing.T) {
	own, open := t.TempDir(), t.TempDir()
	if err := os.Chmod(open, 0o777); err != nil {
		t.Fatal(err)
	}
	a, b := newState("/a", own), newState("/b", own)
	if !within(a.live, own) || !within(b.live, own) || a.live == b.live {
		t.Errorf("live records of two states: %s, %s", a.live, b.live)
	}
	for _, dir := range []string{open, "relative", filepath.Join(own, "absent")} {
		if s := newState("/a", dir); s.live != "/a/live" {
			t.Errorf("%s: live records in %s", dir, s.live)
		}
	}
	login := fmt.Sprintf("/run/user/%d", os.Geteuid())
	if os.MkdirAll(login, 0o700) == nil {
		defer os.Remove(login) // unless it is in use
	}
	if s := newState("/a", login); within(s.live, logins) {
		t.Errorf("live records in %s, which goes when its user logs out", s.live)
	}
	for _, dir := range []string{own, filepath.Dir(a.live), a.live, filepath.Join(a.live, "x")} {
		if err := checkWorkspace(dir, "", a); err == nil {
			t.Errorf("a command may write %s, where the record of runs is that go on", dir)
		}
	}
}

// verify checks the export in file with the public key beside the state.
func verify(t *testing.T, s state, file string) (proof.Report, string) {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	key, err := os.ReadFile(s.path("keys", "trace.pub"))
	if err != nil {
		t.Fatal(err)
	}
	r, err := proof.Verify(f, strings.TrimSpace(string(key)))
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return r, string(text)
}

// TestRecordOfARun: what was recorded is exported sealed, verifies with the key
// beside it, and nothing is left of the live record. Many first runs at a time
// share one key.
func TestRecordOfARun(t *testing.T) {
	s := testState(filepath.Join(t.TempDir(), "cofferdam"))
	var wg sync.WaitGroup
	files := make([]string, 8)
	for i := range files {
		wg.Go(func() {
			r, err := s.open(cofferdam.SessionID(cofferdam.NewID("s")))
			if err != nil {
				t.Error(err)
				return
			}
			// Its network took its time to end, which is none of the command's.
			if err := r.ended(sandbox.Result{Exit: 137, Signal: 9, Exhausted: []sandbox.Exhaustion{sandbox.ExhaustedMemory}, Ended: r.since.Add(90 * time.Second)}, nil); err != nil {
				t.Error(err)
			}
			if files[i], err = r.finish("", nil); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if t.Failed() {
		return
	}
	for _, f := range files {
		r, text := verify(t, s, f)
		if r.Events != 2 || !strings.Contains(text, `"exit":"137"`) || !strings.Contains(text, `"exhausted":"memory"`) || !strings.Contains(text, `"seconds":"90.000"`) {
			t.Errorf("%d events: %s", r.Events, text)
		}
	}
	if left := list(s.live); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}

// TestKilledRunIsFinished: the record of a run whose process was killed is
// sealed and exported by a later run, and one that goes on is left alone.
func TestKilledRunIsFinished(t *testing.T) {
	s := testState(filepath.Join(t.TempDir(), "cofferdam"))
	for _, id := range []cofferdam.SessionID{"s-killed", "s-running"} {
		r, err := s.open(id)
		if err != nil {
			t.Fatal(err)
		}
		if err := r.put(cofferdam.Event{Kind: cofferdam.EventExecStart, Resource: "command"}); err != nil {
			t.Fatal(err)
		}
		if id == "s-killed" { // as the kernel does at the end of a process
			r.store.Close()
		} else {
			defer r.store.Close()
		}
	}
	s.tidy("s-me")
	if n := len(list(s.path("traces"))); n != 0 {
		t.Fatalf("%d records were taken from runs that may just have begun", n)
	}
	old := time.Now().Add(-time.Hour)
	for _, id := range []string{"s-killed", "s-running"} {
		if err := os.Chtimes(filepath.Join(s.live, id), old, old); err != nil {
			t.Fatal(err)
		}
	}
	s.tidy("s-me")
	traces := list(s.path("traces"))
	if len(traces) != 1 || len(list(s.live)) != 1 {
		t.Fatalf("traces %v, live %v", traces, list(s.live))
	}
	if _, text := verify(t, s, s.path("traces", traces[0].Name())); !strings.Contains(text, "was killed, or its record found no space") || !strings.Contains(text, "s-killed") {
		t.Errorf("the trace: %s", text)
	}
}

// TestTracesAreBounded: the oldest go.
func TestTracesAreBounded(t *testing.T) {
	s := testState(t.TempDir())
	if err := s.prepare(); err != nil {
		t.Fatal(err)
	}
	for i := range keptTraces + 3 {
		name := time.Unix(int64(i)*60, 0).UTC().Format("20060102T150405.000Z") + "-s.jsonl"
		if err := os.WriteFile(s.path("traces", name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s.tidy("")
	left := list(s.path("traces"))
	if len(left) != keptTraces || !strings.HasPrefix(left[0].Name(), "19700101T000300") {
		t.Errorf("%d left, from %s", len(left), left[0].Name())
	}
}

// TestNoRecordNoRun: a state folder that cannot be written refuses the run.
func TestNoRecordNoRun(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := testState(filepath.Join(file, "cofferdam")).open("s-1"); cofferdam.KindOf(err) != cofferdam.Unavailable || !strings.Contains(cofferdam.HintOf(err), "XDG_STATE_HOME") {
		t.Errorf("opened a record in a file: %v", err)
	}
	for _, env := range []map[string]string{{}, {"HOME": "here"}, {"XDG_STATE_HOME": "here", "HOME": "/x"}} {
		if s, err := findState(func(n string) string { return env[n] }); err == nil {
			t.Errorf("%v: %v", env, s)
		}
	}
}

// TestSwappedTraceFolder: a trace is written into the folder that had its name
// before the command ran, not where the command has put a link.
func TestSwappedTraceFolder(t *testing.T) {
	dir, s := real(t), testState(real(t))
	shell(t, dir, "mkdir sub victim")
	place, err := os.OpenRoot(filepath.Join(dir, "sub"))
	if err != nil {
		t.Fatal(err)
	}
	defer place.Close()
	r, err := s.open("s-swapped")
	if err != nil {
		t.Fatal(err)
	}
	if err := r.put(cofferdam.Event{Kind: cofferdam.EventSessionOpen, Resource: "run"}); err != nil {
		t.Fatal(err)
	}
	shell(t, dir, "mv sub old; ln -s victim sub")
	if _, err := r.finish(filepath.Join(dir, "sub", "run.jsonl"), place); err != nil {
		t.Fatal(err)
	}
	if out := shell(t, dir, "ls -A victim; echo --; ls -A old"); out != "--\nrun.jsonl\n" {
		t.Errorf("the folders hold %q", out)
	}
}

// TestBegunTraces: the file of a trace is made before it is written, and is none of
// the traces until it is; what was begun by a run that never came to its record is
// removed by a later one, and nothing else is.
func TestBegunTraces(t *testing.T) {
	s := testState(filepath.Join(t.TempDir(), "cofferdam"))
	r, err := s.open("s-now")
	if err != nil {
		t.Fatal(err)
	}
	at := func(id string) string { return s.path("traces", begunTrace(cofferdam.SessionID(id))) }
	old := time.Now().Add(-2 * settled)
	for _, id := range []string{"s-now", "s-young", "s-lost", "s-live", "s-half"} {
		s.beginTrace(cofferdam.SessionID(id))
		if id == "s-half" {
			if err := os.WriteFile(at(id), []byte("half"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if id != "s-young" && os.Chtimes(at(id), old, old) != nil {
			t.Fatal(id)
		}
	}
	if err := os.Mkdir(filepath.Join(s.live, "s-live"), 0o700); err != nil {
		t.Fatal(err)
	}
	if n := len(list(s.path("traces"))); n != 0 {
		t.Errorf("%d traces before there is one", n)
	}
	s.dropTraces()
	for id, stays := range map[string]bool{"s-now": true, "s-young": true, "s-lost": false, "s-live": true, "s-half": true} {
		if there(at(id)) != stays {
			t.Errorf("%s: there %v", id, !stays)
		}
	}
	if err := r.ended(sandbox.Result{}, nil); err != nil {
		t.Fatal(err)
	}
	file, err := r.finish("", nil)
	if err != nil {
		t.Fatal(err)
	}
	if verify(t, s, file); there(at("s-now")) || len(list(s.path("traces"))) != 1 {
		t.Error("what was begun is still there beside the trace")
	}
	if r, err = s.open("s-never"); err != nil {
		t.Fatal(err)
	}
	s.beginTrace("s-never")
	if err := r.drop(); err != nil || there(at("s-never")) {
		t.Errorf("of a run that never was: %v", err)
	}
}
