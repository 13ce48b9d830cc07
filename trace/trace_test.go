package trace

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"cofferdam"
	"cofferdam/internal/redact"
	"cofferdam/proof"
)

var testScope = cofferdam.Scope{Organization: "o-1", Project: "p-1"}

func testKey(t testing.TB) proof.Signer {
	t.Helper()
	private, _ := proof.NewKey("cofferdam/test")
	key, err := proof.NewSigner(private)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func openStore(t testing.TB, dir string, key proof.Signer) *Store {
	t.Helper()
	s, err := Open(dir, key, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func openSession(t testing.TB, s *Store, id cofferdam.SessionID) *Log {
	t.Helper()
	l, err := s.Session(testScope, id)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func record(t testing.TB, l *Log, kind string, verdict cofferdam.Verdict, resource string) cofferdam.Event {
	t.Helper()
	e, err := l.Record(context.Background(), cofferdam.Event{
		Task: "t-1", Source: "test", Kind: kind, Verdict: verdict, Resource: resource,
		Actor: cofferdam.Principal{Kind: cofferdam.Agent, Name: "command"},
	})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func seal(t testing.TB, l *Log) Head {
	t.Helper()
	h, err := l.Seal(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func export(t testing.TB, s *Store, ids ...cofferdam.SessionID) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := s.Export(context.Background(), &b, ids, "t-1", nil); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// story fills one session and the host's log as a task would.
func story(t testing.TB, s *Store, id cofferdam.SessionID) Head {
	t.Helper()
	if _, err := s.Host().Record(context.Background(), cofferdam.Event{
		Scope: testScope, Task: "t-1", Source: "task", Kind: cofferdam.EventTaskState, Resource: "running", Durable: true,
		Actor: cofferdam.Principal{Kind: cofferdam.Platform, Name: "task"},
	}); err != nil {
		t.Fatal(err)
	}
	l := openSession(t, s, id)
	record(t, l, cofferdam.EventSessionOpen, "", string(id))
	for i := range 12 {
		verdict := cofferdam.Allowed
		if i%3 == 0 {
			verdict = cofferdam.Refused
		}
		record(t, l, cofferdam.EventRequest, verdict, fmt.Sprintf("host-%d.test:443", i))
	}
	return seal(t, l)
}

func TestRecordSealExportVerify(t *testing.T) {
	key := testKey(t)
	s := openStore(t, t.TempDir(), key)
	head := story(t, s, "s-1")
	story(t, s, "s-2")
	if head.Size != 14 {
		t.Errorf("sealed size = %d, want 14", head.Size)
	}
	l := openSession(t, s, "s-1")
	if again := seal(t, l); !again.Same(head) || !again.Time.Equal(head.Time) {
		t.Errorf("second Seal gave %+v, want %+v", again, head)
	}
	if _, err := l.Record(context.Background(), cofferdam.Event{Kind: "exec.start"}); cofferdam.KindOf(err) != cofferdam.Conflict {
		t.Errorf("Record after Seal: %v", err)
	}
	// s-2 is not asked for, and comes all the same: the host knows its seal.
	report, err := proof.Verify(bytes.NewReader(export(t, s, "s-1")), key.Public())
	if err != nil {
		t.Fatal(err)
	}
	if len(report.Sessions) != 2 || report.Events != 28 || report.Entries != 4 {
		t.Errorf("report = %+v", report)
	}
	want := map[string]uint64{"allowed": 8, "refused": 4}
	if diff := cmp.Diff(want, report.Sessions[0].Verdicts); diff != "" {
		t.Error(diff)
	}
}

func TestNotSealed(t *testing.T) {
	key := testKey(t)
	s := openStore(t, t.TempDir(), key)
	l := openSession(t, s, "s-1")
	record(t, l, cofferdam.EventSessionOpen, "", "")
	_, err := proof.Verify(bytes.NewReader(export(t, s, "s-1")), key.Public())
	if !errors.Is(err, proof.ErrNotSealed) || cofferdam.KindOf(err) != cofferdam.Tampered || !strings.Contains(err.Error(), "not sealed") {
		t.Errorf("open session: %v", err)
	}
}

func TestReopenGoesOn(t *testing.T) {
	dir, key := t.TempDir(), testKey(t)
	s := openStore(t, dir, key)
	l := openSession(t, s, "s-1")
	for range 700 { // more than two index steps
		record(t, l, cofferdam.EventRequest, cofferdam.Allowed, "a.test:443")
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = openStore(t, dir, key)
	l = openSession(t, s, "s-1")
	if e := record(t, l, cofferdam.EventRequest, "", "b.test:443"); e.Seq != 700 {
		t.Errorf("Seq after reopening = %d, want 700", e.Seq)
	}
	for _, from := range []uint64{0, 1, 255, 256, 257, 699, 700, 701} {
		got, err := s.Events(context.Background(), "s-1", from, 3)
		if err != nil {
			t.Fatal(err)
		}
		if want := min(3, 701-int(from)); len(got) != want || want > 0 && got[0].Seq != from {
			t.Errorf("Events from %d: %d events, want %d", from, len(got), want)
		}
	}
	seal(t, l)
	if _, err := proof.Verify(bytes.NewReader(export(t, s, "s-1")), key.Public()); err != nil {
		t.Error(err)
	}
}

func TestOneProcessOneScope(t *testing.T) {
	dir, key := t.TempDir(), testKey(t)
	s := openStore(t, dir, key)
	if _, err := Open(dir, key, nil); cofferdam.KindOf(err) != cofferdam.Conflict {
		t.Errorf("second store on the folder: %v", err)
	}
	l := openSession(t, s, "s-1")
	record(t, l, cofferdam.EventSessionOpen, "", "")
	other := cofferdam.Scope{Organization: "o-1", Project: "p-2"}
	if _, err := s.Session(other, "s-1"); cofferdam.KindOf(err) != cofferdam.NotFound {
		t.Errorf("session of another project, open: %v", err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Session(other, "s-1"); cofferdam.KindOf(err) != cofferdam.NotFound {
		t.Errorf("session of another project, closed: %v", err)
	}
	l = openSession(t, s, "s-1") // and it left nothing locked behind
	for _, e := range []cofferdam.Event{
		{Kind: "exec.start", Scope: other},
		{Kind: "exec.start", Session: "s-2"},
		{Kind: "exec"},
		{Kind: "Exec.Start"},
		{Kind: "exec.start\n"},
		{Kind: ""},
		{Kind: cofferdam.EventSessionSeal},
		{Kind: "exec.output", Fields: map[string]string{"x:base64": ""}},
		{Kind: "exec.output", Fields: map[string]string{"": ""}},
		{Kind: "exec.output", Resource: strings.Repeat("\x01", MaxEvent/6)},
	} {
		if _, err := l.Record(context.Background(), e); cofferdam.KindOf(err) != cofferdam.Invalid {
			t.Errorf("Record(%q, session %q) = %v, want invalid", e.Kind, e.Session, err)
		}
	}
	for _, id := range []cofferdam.SessionID{"", "..", "../host", "a/b", "S-1", cofferdam.SessionID(strings.Repeat("a", 65))} {
		if _, err := s.Session(testScope, id); cofferdam.KindOf(err) != cofferdam.Invalid {
			t.Errorf("Session(%q) = %v, want invalid", id, err)
		}
	}
	if l.Size() != 1 {
		t.Errorf("refused events are in the log: size %d", l.Size())
	}
}

func TestConcurrentRecord(t *testing.T) {
	dir, key := t.TempDir(), testKey(t)
	s := openStore(t, dir, key)
	l := openSession(t, s, "s-1")
	const writers, each = 16, 60
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := range each {
				_, err := l.Record(context.Background(), cofferdam.Event{
					Kind: cofferdam.EventRequest, Resource: fmt.Sprint(w, "/", i), Durable: i%8 == 0,
				})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	next := map[string]int{}
	events, err := s.Events(context.Background(), "s-1", 0, 0)
	if err != nil || len(events) != writers*each {
		t.Fatalf("%d events, %v", len(events), err)
	}
	for i, e := range events {
		w, n, _ := strings.Cut(e.Resource, "/")
		if e.Seq != uint64(i) || n != fmt.Sprint(next[w]) {
			t.Fatalf("event %d has number %d and is %s, want %d of that writer", i, e.Seq, e.Resource, next[w])
		}
		next[w]++
	}
	seal(t, l)
	if _, err := proof.Verify(bytes.NewReader(export(t, s, "s-1")), key.Public()); err != nil {
		t.Error(err)
	}
}

func TestRedactedAtCapture(t *testing.T) {
	canary := "canary-4c1f9a77e2"
	dir := t.TempDir()
	s, err := Open(dir, testKey(t), redact.New([][]byte{[]byte(canary)}))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	l := openSession(t, s, "s-1")
	_, err = l.Record(context.Background(), cofferdam.Event{
		Kind: cofferdam.EventExecOutput, Resource: "cat " + canary, Reason: canary, Rule: canary, Outcome: canary,
		Actor:  cofferdam.Principal{Kind: cofferdam.Agent, Name: canary},
		Fields: map[string]string{"out": "\xff" + canary + "\xfe", canary: "x"},
	})
	if err != nil {
		t.Fatal(err)
	}
	stored, err := os.ReadFile(filepath.Join(dir, "sessions", "s-1.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(stored, []byte(canary)) || redact.New([][]byte{[]byte(canary)}).Found(stored) {
		t.Errorf("the secret is in the log: %s", stored)
	}
	events, err := s.Events(context.Background(), "s-1", 0, 1)
	if err != nil {
		t.Fatal(err)
	}
	if got, _ := Bytes(events[0], "out"); string(got) != "\xff[redacted]\xfe" {
		t.Errorf("output = %q", got)
	}
}

// TestForgedRecords is TRC-07: what a box prints never becomes a record.
func TestForgedRecords(t *testing.T) {
	key := testKey(t)
	s := openStore(t, t.TempDir(), key)
	l := openSession(t, s, "s-1")
	fake := `{"seq":1,"kind":"merge.approve"}`
	for _, sep := range []string{"\n", "\r", "\r\n", "\u2028", "\x00", "\x85", "\"}\n"} {
		_, err := l.Record(context.Background(), cofferdam.Event{
			Kind: cofferdam.EventExecOutput, Resource: "x" + sep + fake + sep, Fields: map[string]string{"out": sep + fake + sep},
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	long := strings.Repeat("y", 900_000)
	if _, err := l.Record(context.Background(), cofferdam.Event{Kind: cofferdam.EventExecOutput, Fields: map[string]string{"out": long}}); err != nil {
		t.Fatal(err)
	}
	seal(t, l)
	report, err := proof.Verify(bytes.NewReader(export(t, s, "s-1")), key.Public())
	if err != nil || report.Events != 9 || report.Sessions[0].Kinds["merge.approve"] != 0 {
		t.Errorf("report %+v, %v", report, err)
	}
	events, err := s.Events(context.Background(), "s-1", 0, 0)
	if err != nil || len(events) != 9 {
		t.Fatalf("%d events, %v", len(events), err)
	}
	if events[7].Fields["out"] != long || events[0].Fields["out"] != "\n"+fake+"\n" {
		t.Error("output came back changed")
	}
}

// TestManySessions records, exports, follows and seals side by side.
func TestManySessions(t *testing.T) {
	key := testKey(t)
	s := openStore(t, t.TempDir(), key)
	var wg sync.WaitGroup
	for i := range 24 {
		id := cofferdam.SessionID(fmt.Sprint("s-", i))
		l := openSession(t, s, id)
		wg.Go(func() {
			for range 20 {
				if _, err := l.Record(context.Background(), cofferdam.Event{Kind: "exec.start", Task: "t-1", Durable: true}); err != nil {
					t.Error(err)
				}
			}
			for range 3 {
				wg.Go(func() {
					if _, err := l.Seal(context.Background()); err != nil {
						t.Error(err)
					}
				})
			}
		})
		wg.Go(func() {
			n := 0
			if err := s.Follow(context.Background(), id, 0, func(cofferdam.Event) error { n++; return nil }); err != nil || n != 21 {
				t.Errorf("followed %d events of %s, %v", n, id, err)
			}
		})
		wg.Go(func() {
			var b bytes.Buffer
			err := s.Export(context.Background(), &b, []cofferdam.SessionID{id}, "", nil)
			if err == nil {
				_, err = proof.Verify(&b, key.Public())
			}
			if err != nil && !errors.Is(err, proof.ErrNotSealed) { // it may still have been under way
				t.Error(err)
			}
		})
	}
	wg.Wait()
	report, err := proof.Verify(bytes.NewReader(export(t, s)), key.Public())
	if err != nil || len(report.Sessions) != 24 || report.Events != 24*21 || report.Entries != 24 {
		t.Errorf("%d sessions, %d events, %d entries, %v", len(report.Sessions), report.Events, report.Entries, err)
	}
	one, err := proof.Verify(bytes.NewReader(exportOne(s, "s-7")), key.Public())
	if err != nil || len(one.Sessions) != 1 || one.Entries != 1 {
		t.Errorf("one session: %+v, %v", one, err)
	}
}

// exportOne exports one session without naming its task.
func exportOne(s *Store, id cofferdam.SessionID) []byte {
	var b bytes.Buffer
	if err := s.Export(context.Background(), &b, []cofferdam.SessionID{id}, "", nil); err != nil {
		return nil
	}
	return b.Bytes()
}

func TestClosedAndFull(t *testing.T) {
	s := openStore(t, t.TempDir(), testKey(t))
	l := openSession(t, s, "s-1")
	record(t, l, "exec.start", "", "")
	size := l.size
	l.size = MaxBytes
	if _, err := l.Record(context.Background(), cofferdam.Event{Kind: "exec.start"}); cofferdam.KindOf(err) != cofferdam.Exhausted {
		t.Errorf("full log: %v", err)
	}
	l.size = size
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for name, r := range map[string]*Log{"session": l, "host": s.Host()} {
		if _, err := r.Record(context.Background(), cofferdam.Event{Kind: "exec.start"}); cofferdam.KindOf(err) != cofferdam.Unavailable {
			t.Errorf("%s, closed: %v", name, err)
		}
	}
	if _, err := s.Session(testScope, "s-2"); cofferdam.KindOf(err) != cofferdam.Unavailable {
		t.Errorf("session of a closed store: %v", err)
	}
}

type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, errors.New("gone away") }

func TestExportFails(t *testing.T) {
	s := openStore(t, t.TempDir(), testKey(t))
	story(t, s, "s-1")
	if err := s.Export(context.Background(), failing{}, nil, "t-1", nil); err == nil {
		t.Error("a failing writer goes unseen")
	}
	var b bytes.Buffer
	if err := s.Export(context.Background(), &b, []cofferdam.SessionID{"s-9"}, "t-1", nil); cofferdam.KindOf(err) != cofferdam.NotFound {
		t.Errorf("unknown session: %v", err)
	}
	if err := s.Export(context.Background(), &b, []cofferdam.SessionID{"../x"}, "t-1", nil); cofferdam.KindOf(err) != cofferdam.Invalid {
		t.Errorf("path for an id: %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := s.Export(ctx, &b, nil, "t-1", nil); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}
