package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"cofferdam/sandbox/keeper"
)

// TestLockOfAKilledKeeper: the lock of a keeper that was killed is waited for while a
// program that it was starting has it too; that of a live one is not.
func TestLockOfAKilledKeeper(t *testing.T) {
	p := newPlace(t)
	gone := exec.Command("true")
	if err := gone.Run(); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(p.state, 0o700); err != nil {
		t.Fatal(err)
	}
	lock, err := os.OpenFile(filepath.Join(p.state, keeper.LockFile), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	says := func(process int) {
		t.Helper()
		text := fmt.Appendf(nil, "process %d\nserves %s\n", process, p.socket)
		if _, err := lock.WriteAt(text, 0); err != nil {
			t.Fatal(err)
		}
		if err := lock.Truncate(int64(len(text))); err != nil {
			t.Fatal(err)
		}
	}
	says(os.Getpid())
	if out, err := p.command("--detach").CombinedOutput(); err == nil {
		t.Errorf("control: it starts beside a live one: %s", out)
	}
	says(gone.Process.Pid)
	time.AfterFunc(4*lockTime, func() { lock.Close() })
	p.start(t)
}
