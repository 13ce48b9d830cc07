package trace

import (
	"bytes"
	"context"
	"os"
	"testing"

	"cofferdam"
	"cofferdam/proof"
)

// TestBriefStore: a record that is not synced is the same record. It is on file
// when Record returns, it can be opened again, and its export verifies.
func TestBriefStore(t *testing.T) {
	dir, key := t.TempDir(), testKey(t)
	s, err := OpenBrief(dir, key, nil)
	if err != nil {
		t.Fatal(err)
	}
	l := openSession(t, s, "s-1")
	if _, err := l.Record(context.Background(), cofferdam.Event{Task: "t-1", Source: "test", Kind: "exec.start", Durable: true}); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(l.path); err != nil || !bytes.Contains(text, []byte(`"kind":"exec.start"`)) {
		t.Fatalf("on file is %q: %v", text, err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if s, err = OpenBrief(dir, key, nil); err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	head := seal(t, openSession(t, s, "s-1"))
	report, err := proof.Verify(bytes.NewReader(export(t, s, "s-1")), key.Public())
	if err != nil || head.Size != 2 || report.Events != 2 {
		t.Errorf("sealed %d events, verified %d: %v", head.Size, report.Events, err)
	}
}
