package local

import (
	"os"
	"strings"
	"testing"

	"cofferdam/trace"
)

// TestKeyOfTheFirstRun: a run that comes before the first server makes the key that
// this one will sign with, and names it as it would.
func TestKeyOfTheFirstRun(t *testing.T) {
	s := newState(t.TempDir(), "")
	if err := os.MkdirAll(s.path("keys"), 0o700); err != nil {
		t.Fatal(err)
	}
	first, err := s.key()
	if err != nil || !strings.HasPrefix(first.Public(), "cofferdam+") {
		t.Fatalf("%s, %v", first.Public(), err)
	}
	server, err := trace.OpenKey(s.path("keys", "trace"), "cofferdam")
	if err != nil || server.Public() != first.Public() {
		t.Errorf("the server's is %s, %v; the run's %s", server.Public(), err, first.Public())
	}
}
