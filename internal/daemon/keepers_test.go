package daemon

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"cofferdam"
	"cofferdam/internal/config"
	"cofferdam/sandbox/keeper"
)

func script(t *testing.T, path, text string) {
	t.Helper()
	syscall.ForkLock.RLock() // a forked process would hold it open for writing
	defer syscall.ForkLock.RUnlock()
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text), 0o755); err != nil {
		t.Fatal(err)
	}
}

// fakePrograms are sisters that do nothing, but for a keeper that finds what it
// is told to.
func fakePrograms(t *testing.T, keeperScript string) string {
	t.Helper()
	dir := t.TempDir()
	for _, p := range []string{"cofferdam-server", "cofferdam-runsc", "cofferdam-init", "cofferdam-engine"} {
		script(t, filepath.Join(dir, p), "exit 0")
	}
	script(t, filepath.Join(dir, keeper.Program), keeperScript)
	return dir
}

// What is missing on a host is named with its fix, and nothing is started.
func TestMissingLayerStartsNoKeeper(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: without it the refusal is another")
	}
	programs := fakePrograms(t, `case "$1" in --check) echo '{"schema":"cofferdam/tiers/v1","tiers":[{"tier":"gvisor","findings":[{"name":"gvisor-systrap","level":"fail","detail":"it does not run","fix":"mend it"}]}]}'; exit 1;; esac; touch $(dirname $0)/started`)
	run := func() error {
		c, err := config.FromArgs([]string{"--state=" + filepath.Join(t.TempDir(), "s"), "--listen=off", "--programs=" + programs}, func(string) string { return "" })
		if err != nil {
			t.Fatal(err)
		}
		return Run(t.Context(), c, "")
	}
	if err := run(); err == nil || !strings.Contains(err.Error(), "gvisor-systrap: it does not run") || cofferdam.HintOf(err) != "mend it" {
		t.Errorf("%v (%s)", err, cofferdam.HintOf(err))
	}
	if err := os.Remove(filepath.Join(programs, "cofferdam-runsc")); err != nil {
		t.Fatal(err)
	}
	if err := run(); err == nil || !strings.Contains(err.Error(), "cofferdam-runsc") {
		t.Errorf("%v", err)
	}
	if _, err := os.Stat(filepath.Join(programs, "started")); err == nil {
		t.Error("a keeper was started although a check failed")
	}
}

// A keeper is started with the flags of the one before, and what it says is the
// server's reason.
func TestKeeperThatCannotStart(t *testing.T) {
	programs := fakePrograms(t, `echo "$@" > $(dirname $0)/args; echo "cofferdam-keeper: no TUN device: /dev/net/tun" >&2; echo "hint: modprobe tun" >&2; exit 1`)
	s := &server{Config: config.Config{Programs: programs, KeeperState: "/k"}, log: slog.New(slog.DiscardHandler)}
	dir := t.TempDir()
	slot := keeper.Slot{Socket: filepath.Join(dir, "run", "k.sock"), State: filepath.Join(dir, "k")}
	err := s.startKeeper(context.Background(), slot, []string{"--limits", "watched"})
	if err == nil || err.Error() != "starting cofferdam-keeper: no TUN device: /dev/net/tun" || cofferdam.HintOf(err) != "modprobe tun" {
		t.Errorf("%v (%s)", err, cofferdam.HintOf(err))
	}
	args, err := os.ReadFile(filepath.Join(programs, "args"))
	if want := "--socket " + slot.Socket + " --state " + slot.State + " --kept /k --detach --limits watched\n"; err != nil || string(args) != want {
		t.Errorf("keeper was called with %q (%v), want %q", args, err, want)
	}
	script(t, filepath.Join(programs, keeper.Program), "exit 3")
	if err := s.startKeeper(context.Background(), slot, nil); err == nil || !strings.Contains(err.Error(), "exit status 3") || cofferdam.HintOf(err) == "" {
		t.Errorf("one without a word: %v", err)
	}
	script(t, filepath.Join(programs, keeper.Program), "exec sleep 1000")
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	if err := s.startKeeper(ctx, slot, nil); err == nil || !strings.Contains(err.Error(), "does not come to serving") || !strings.Contains(err.Error(), "keeper.log") {
		t.Errorf("one that hangs: %v", err)
	}
}
