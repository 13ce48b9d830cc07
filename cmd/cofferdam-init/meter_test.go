package main

import (
	"os"
	"testing"

	"cofferdam/sandbox/guest"
)

// TestLookBlamesNoOneLater looks at a limit that is met: a command that begins
// while the look goes on, which takes a second under a fork bomb, has not met it.
func TestLookBlamesNoOneLater(t *testing.T) {
	b := &box{config: guest.Config{UID: os.Getuid(), PIDs: 2}}
	b.sample()
	m := &b.meter
	if got := m.since(m.looked.Add(-1)); len(got) != 1 {
		t.Fatalf("a command that began before the look met %q, want one limit", got)
	}
	if got := m.since(m.looked); len(got) != 0 {
		t.Errorf("a command that began during the look met %q", got)
	}
}
