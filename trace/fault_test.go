package trace

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"cofferdam"
	"cofferdam/proof"
)

// mountTmpfs gives dir a file system of its own that is size bytes small.
func mountTmpfs(t *testing.T, dir string, size int) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root: mounts a small tmpfs")
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "mode=0700,size="+strconv.Itoa(size)); err != nil {
		t.Skip("needs mount: ", err)
	}
	t.Cleanup(func() { unix.Unmount(dir, unix.MNT_DETACH) })
}

func verified(t *testing.T, s *Store, key proof.Signer, ids ...cofferdam.SessionID) proof.Report {
	t.Helper()
	report, err := proof.Verify(bytes.NewReader(export(t, s, ids...)), key.Public())
	if err != nil {
		t.Fatal(err)
	}
	return report
}

// TestFullDisk: on a full disk nothing is recorded and the caller is told; with
// space again the log goes on, and says what was missed.
func TestFullDisk(t *testing.T) {
	dir, key := t.TempDir(), testKey(t)
	mountTmpfs(t, dir, 256<<10)
	s := openStore(t, dir, key)
	l := openSession(t, s, "s-1")
	ballast := filepath.Join(dir, "ballast")
	if err := os.WriteFile(ballast, make([]byte, 100<<10), 0o600); err != nil {
		t.Fatal(err)
	}
	big := cofferdam.Event{Kind: cofferdam.EventExecOutput, Task: "t-1", Durable: true, Fields: map[string]string{"out": strings.Repeat("x", 10_000)}}
	var kept uint64
	var err error
	for range 100 {
		if _, err = l.Record(context.Background(), big); err != nil {
			break
		}
		kept++
	}
	if cofferdam.KindOf(err) != cofferdam.Exhausted || !errors.Is(err, unix.ENOSPC) {
		t.Fatalf("after %d events: %v, want exhausted", kept, err)
	}
	if _, err := l.Record(context.Background(), big); err == nil {
		t.Fatal("recorded on a full disk")
	}
	if l.Size() != kept {
		t.Errorf("size %d, want %d", l.Size(), kept)
	}
	if events, err := s.Events(context.Background(), "s-1", 0, 0); err != nil || uint64(len(events)) != kept {
		t.Errorf("%d events are readable, %v, want %d", len(events), err, kept)
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	e, err := l.Record(context.Background(), big)
	if err != nil || e.Seq != kept+1 {
		t.Fatalf("with space again: event %d, %v, want %d", e.Seq, err, kept+1)
	}
	events, err := s.Events(context.Background(), "s-1", kept, 1)
	if err != nil || events[0].Kind != cofferdam.EventGap || events[0].Fields["events"] != "2" {
		t.Errorf("gap = %+v, %v", events, err)
	}
	seal(t, l)
	verified(t, s, key, "s-1")
}

// TestReadOnlyFolder: a state folder that cannot be written is refused at Open.
func TestReadOnlyFolder(t *testing.T) {
	dir, key := t.TempDir(), testKey(t)
	mountTmpfs(t, dir, 1<<20)
	s := openStore(t, dir, key)
	story(t, s, "s-1")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	_, err := Open(dir, key, nil)
	if cofferdam.KindOf(err) != cofferdam.Unavailable || !strings.Contains(err.Error(), "cannot be written") {
		t.Errorf("Open in a read-only folder: %v", err)
	}
}

// faulty is a file that fails as it is told.
type faulty struct {
	file
	write, truncate, sync error
	part                  int // bytes of a failing write that get through
}

func (f *faulty) Write(p []byte) (int, error) {
	if f.write != nil {
		n, _ := f.file.Write(p[:min(f.part, len(p))])
		return n, f.write
	}
	return f.file.Write(p)
}

func (f *faulty) Truncate(size int64) error {
	if f.truncate != nil {
		return f.truncate
	}
	return f.file.Truncate(size)
}

func (f *faulty) Sync() error {
	if f.sync != nil {
		return f.sync
	}
	return f.file.Sync()
}

func TestFaultyFile(t *testing.T) {
	key := testKey(t)
	for name, break_ := range map[string]func(f *faulty){
		"write":                     func(f *faulty) { f.write = unix.EIO },
		"half a write":              func(f *faulty) { f.write, f.part = unix.EIO, 30 },
		"half a write, no truncate": func(f *faulty) { f.write, f.part, f.truncate = unix.EIO, 30, unix.EIO },
		"sync":                      func(f *faulty) { f.sync = unix.EIO },
	} {
		t.Run(name, func(t *testing.T) {
			s := openStore(t, t.TempDir(), key)
			l := openSession(t, s, "s-1")
			record(t, l, cofferdam.EventSessionOpen, "", "")
			record(t, l, cofferdam.EventRequest, cofferdam.Allowed, "not durable")
			f := &faulty{file: l.file}
			l.file = f
			break_(f)
			for range 3 {
				_, err := l.Record(context.Background(), cofferdam.Event{Kind: cofferdam.EventPush, Durable: true})
				if cofferdam.KindOf(err) != cofferdam.Unavailable {
					t.Fatalf("Record = %v, want unavailable", err)
				}
			}
			*f = faulty{file: f.file}
			if e, err := l.Record(context.Background(), cofferdam.Event{Kind: cofferdam.EventPush, Durable: true}); err != nil {
				t.Fatalf("after repair: event %d, %v", e.Seq, err)
			}
			events, err := s.Events(context.Background(), "s-1", 0, 0)
			if err != nil {
				t.Fatal(err)
			}
			gaps := 0
			for _, e := range events {
				if e.Kind == cofferdam.EventGap {
					gaps++
				}
			}
			if gaps == 0 {
				t.Error("the gap is not on record")
			}
			seal(t, l)
			if r := verified(t, s, key, "s-1"); r.Events != uint64(len(events))+1 {
				t.Errorf("%d events verified, want %d", r.Events, len(events)+1)
			}
		})
	}
}

func TestTornRecord(t *testing.T) {
	key := testKey(t)
	for name, tail := range map[string]string{
		"half an event":    `{"seq":2,"time":"2026-`,
		"zeros":            strings.Repeat("\x00", 3000),
		"zeros, then end":  strings.Repeat("\x00", 3000) + `"}` + "\n",
		"lines of garbage": "x\ny\nz",
		"no newline":       `{"seq":2,"kind":"exec.start"}`,
		"very long":        strings.Repeat("z", 3*MaxEvent),
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			s := openStore(t, dir, key)
			l := openSession(t, s, "s-1")
			record(t, l, cofferdam.EventSessionOpen, "", "")
			record(t, l, cofferdam.EventRequest, cofferdam.Allowed, "a.test:443")
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			appendTo(t, filepath.Join(dir, "sessions", "s-1.jsonl"), tail)
			s = openStore(t, dir, key)
			if got, err := s.Events(context.Background(), "s-1", 0, 0); err != nil || len(got) != 2 {
				t.Errorf("before it is cut: %d events, %v", len(got), err)
			}
			l = openSession(t, s, "s-1")
			e := record(t, l, cofferdam.EventRequest, cofferdam.Allowed, "b.test:443")
			if e.Seq != 3 {
				t.Errorf("next event is %d, want 3 after the gap", e.Seq)
			}
			seal(t, l)
			if r := verified(t, s, key, "s-1"); r.Sessions[0].Kinds[cofferdam.EventGap] != 1 {
				t.Errorf("kinds = %v, want one gap", r.Sessions[0].Kinds)
			}
		})
	}
}

func appendTo(t *testing.T, path, text string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString(text); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestKill is TRC-02: whatever a recorder that was killed had acknowledged is on
// record, in order, and the log goes on.
func TestKill(t *testing.T) {
	if dir := os.Getenv("COFFERDAM_TEST_RECORDER"); dir != "" {
		recordForEver(dir)
	}
	dir := t.TempDir()
	acknowledged := map[string]bool{}
	rounds := 50
	if testing.Short() {
		rounds = 3
	}
	for round := range rounds {
		for _, id := range killedRecorder(t, dir, fmt.Sprint(round), 40+7*round) {
			acknowledged[id] = true
		}
	}
	s := openStore(t, filepath.Join(dir, "trace"), childKey(t, dir))
	l := openSession(t, s, "s-1")
	var next uint64
	for {
		events, err := s.Events(context.Background(), "s-1", next, 0)
		if err != nil {
			t.Fatal(err)
		}
		if len(events) == 0 {
			break
		}
		for _, e := range events {
			if e.Seq != next {
				t.Fatalf("event %d follows event %d", e.Seq, next)
			}
			next++
			delete(acknowledged, e.Resource)
		}
	}
	if len(acknowledged) > 0 {
		t.Errorf("%d acknowledged events are gone", len(acknowledged))
	}
	t.Logf("%d events", next)
	seal(t, l)
	verified(t, s, childKey(t, dir), "s-1")
}

func childKey(t *testing.T, dir string) proof.Signer {
	t.Helper()
	key, err := OpenKey(filepath.Join(dir, "key"), "cofferdam/test")
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// killedRecorder runs recordForEver in a process of its own, kills it after a
// number of acknowledgements, and returns them.
func killedRecorder(t *testing.T, dir, prefix string, after int) []string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, "-test.run=^TestKill$")
	cmd.Env = append(os.Environ(), "COFFERDAM_TEST_RECORDER="+dir, "COFFERDAM_TEST_PREFIX="+prefix)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var ids []string
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if ids = append(ids, lines.Text()); len(ids) == after {
			cmd.Process.Signal(syscall.SIGKILL)
		}
	}
	cmd.Wait()
	if len(ids) < after {
		t.Fatalf("the recorder ended by itself after %d events", len(ids))
	}
	return ids
}

// recordForEver records from 16 goroutines and prints the name of each event
// once it is on record.
func recordForEver(dir string) {
	key, err := OpenKey(filepath.Join(dir, "key"), "cofferdam/test")
	if err != nil {
		panic(err)
	}
	s, err := Open(filepath.Join(dir, "trace"), key, nil)
	if err != nil {
		panic(err)
	}
	l, err := s.Session(testScope, "s-1")
	if err != nil {
		panic(err)
	}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for g := range 16 {
		wg.Go(func() {
			for i := 0; ; i++ {
				id := fmt.Sprintf("%s/%d/%d", os.Getenv("COFFERDAM_TEST_PREFIX"), g, i)
				_, err := l.Record(context.Background(), cofferdam.Event{
					Kind: cofferdam.EventRequest, Task: "t-1", Resource: id, Durable: i%16 == 0,
					Fields: map[string]string{"pad": strings.Repeat("p", i%4000)},
				})
				if err != nil {
					panic(err)
				}
				mu.Lock()
				fmt.Println(id)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
}

// TestSealAfterGap seals a log right after a failure: the gap comes before the
// seal, and the seal counts it.
func TestSealAfterGap(t *testing.T) {
	key := testKey(t)
	s := openStore(t, t.TempDir(), key)
	l := openSession(t, s, "s-1")
	record(t, l, cofferdam.EventSessionOpen, "", "")
	f := &faulty{file: l.file, write: unix.ENOSPC, part: 10}
	l.file = f
	if _, err := l.Record(context.Background(), cofferdam.Event{Kind: "exec.start"}); cofferdam.KindOf(err) != cofferdam.Exhausted {
		t.Fatalf("Record = %v", err)
	}
	if _, err := l.Seal(context.Background()); cofferdam.KindOf(err) != cofferdam.Exhausted {
		t.Fatalf("Seal on a full disk = %v", err)
	}
	f.write = nil
	if head := seal(t, l); head.Size != 3 {
		t.Errorf("sealed %d events, want open, gap and seal", head.Size)
	}
	verified(t, s, key, "s-1")
}

// TestSealAfterCrash goes on from every point at which Seal can be cut.
func TestSealAfterCrash(t *testing.T) {
	key := testKey(t)
	for name, undo := range map[string]func(t *testing.T, dir string){
		"before the head was written": func(t *testing.T, dir string) { remove(t, filepath.Join(dir, "sessions", "s-1.seal")) },
		"before the host was told": func(t *testing.T, dir string) {
			remove(t, filepath.Join(dir, "sessions", "s-1.seal"))
			remove(t, filepath.Join(dir, "host.jsonl"))
			remove(t, filepath.Join(dir, "host.head"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			s := openStore(t, dir, key)
			head := story(t, s, "s-1")
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			undo(t, dir)
			s = openStore(t, dir, key)
			l := openSession(t, s, "s-1")
			if _, err := l.Record(context.Background(), cofferdam.Event{Kind: "exec.start"}); cofferdam.KindOf(err) != cofferdam.Conflict {
				t.Errorf("Record after the closing event: %v", err)
			}
			if again := seal(t, l); !again.Same(head) || !again.Time.Equal(head.Time) {
				t.Errorf("Seal = %+v, want %+v", again, head)
			}
			verified(t, s, key, "s-1")
		})
	}
}

func remove(t *testing.T, path string) {
	t.Helper()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
}
