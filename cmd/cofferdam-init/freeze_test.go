package main

import (
	"os"
	"os/exec"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// freezer makes this test pid 1 of a namespace of its own.
const freezer = "COFFERDAM_TEST_FREEZER"

// TestFreezesAtOnce has several kills freeze everything at the same time: what none
// of them meant goes on.
func TestFreezesAtOnce(t *testing.T) {
	if os.Getenv(freezer) != "" {
		freezeAtOnce(t)
		return
	}
	if os.Getuid() != 0 {
		t.Skip("not run here: needs root")
	}
	cmd := exec.Command("/proc/self/exe", "-test.run=^TestFreezesAtOnce$", "-test.count=1")
	cmd.Env = append(os.Environ(), freezer+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

func freezeAtOnce(t *testing.T) {
	for _, m := range []func() error{
		func() error { return unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "") }, func() error { return unix.Mount("proc", "/proc", "proc", 0, "") },
	} {
		if err := m(); err != nil {
			t.Fatal(err)
		}
	}
	for range 4 {
		cmd := exec.Command("sleep", "1000")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
	}
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 100 {
				freeze(func(process) bool { return false })
			}
		})
	}
	all.Wait()
	if stopped := scan(func(p process) bool { return p.stop }); len(stopped) > 0 {
		t.Errorf("%d of 4 processes were never let go on", len(stopped))
	}
}
