package vmmtest

import (
	"os"
	"syscall"
	"testing"
)

// Script makes a program that prints text, whatever it is asked. No process that
// is started meanwhile holds it open.
func Script(t testing.TB, path, text string) string {
	t.Helper()
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	if err := os.WriteFile(path, []byte("#!/bin/sh\ncat <<'X'\n"+text+"\nX\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}
