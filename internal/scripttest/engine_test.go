package scripttest

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestServerEndsWithoutItsEngine takes the engine's program away and kills the
// engine: once twenty starts in a row have failed, which is some two and a half
// minutes, nothing could be worked on any more, and the server ends and says so.
func TestServerEndsWithoutItsEngine(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: server and keeper run as root in this version")
	}
	if testing.Short() {
		t.Skip("waits for twenty starts with their pauses: not with -short")
	}
	t.Parallel()
	bin, err := programs()
	if err != nil {
		t.Fatal(err)
	}
	state, err := os.MkdirTemp("", "cfe")
	if err != nil {
		t.Fatal(err)
	}
	b, mine := &bench{state: state, labs: map[string]*lab{}}, t.TempDir()
	t.Cleanup(func() {
		b.stopAll()
		os.RemoveAll(state)
	})
	all, err := filepath.Glob(filepath.Join(bin, "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range all {
		if err := os.Symlink(p, filepath.Join(mine, filepath.Base(p))); err != nil {
			t.Fatal(err)
		}
	}
	b.flags = []string{"--programs", mine}
	if err := b.serve(bin, append(os.Environ(), "HOME="+t.TempDir())); err != nil {
		t.Fatal(err)
	}
	pid, err := childOf(b.server.cmd.Process.Pid, "cofferdam-engine")
	if err != nil {
		t.Fatal(err)
	}
	engine := filepath.Join(mine, "cofferdam-engine")
	if err := os.Remove(engine); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(engine, []byte("#!/bin/sh\nexit 1\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	select {
	case <-b.server.done:
	case <-time.After(6 * time.Minute):
		t.Fatalf("the server goes on without an engine\n%s", tail([]byte(b.serverLog()), 4000))
	}
	log := b.serverLog()
	if code := b.server.cmd.ProcessState.ExitCode(); code == 0 || !strings.Contains(log, "did not start 20 times in a row") || !strings.Contains(log, "hint: ") {
		t.Errorf("it ended with %d and says\n%s", code, tail([]byte(log), 4000))
	}
	b.flags = nil // the next server finds all programs
	if err := b.serve(bin, append(os.Environ(), "HOME="+t.TempDir())); err != nil {
		t.Errorf("the next server: %v\n%s", err, tail([]byte(b.serverLog()), 4000))
	}
}
