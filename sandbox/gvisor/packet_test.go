package gvisor

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// holders are those of pids that have one of the packet sockets of a box's network.
func holders(t *testing.T, b *box, pids []int) (list []int) {
	t.Helper()
	var table []byte
	must(t, b.net.Inside(func() (err error) {
		table, err = os.ReadFile("/proc/thread-self/net/packet")
		return err
	}))
	var sockets []string
	for i, line := range strings.Split(strings.TrimSpace(string(table)), "\n") {
		if fields := strings.Fields(line); i > 0 {
			sockets = append(sockets, "socket:["+fields[len(fields)-1]+"]")
		}
	}
	for _, pid := range pids {
		files, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
		must(t, err)
		for _, f := range files {
			if to, err := os.Readlink(f); err == nil && slices.Contains(sockets, to) {
				list = append(list, pid)
			}
		}
	}
	return list
}

// TestPacketsAreTheBoxsOwn: of all programs that this process starts while a box
// starts, and while it is resumed, none has the socket by which the box reads its
// network: it could read it too, and a box that is suspended and resumed would get
// a part of its packets only, for as long as that program runs.
func TestPacketsAreTheBoxsOwn(t *testing.T) {
	d := newDriver(t)
	during := func(name string, do func() *box) int {
		var stop atomic.Bool
		started := make(chan []*exec.Cmd)
		go func() {
			var list []*exec.Cmd
			for !stop.Load() && len(list) < 2000 {
				if cmd := exec.Command("/bin/sleep", "600"); cmd.Start() == nil {
					list = append(list, cmd)
				}
				time.Sleep(time.Millisecond)
			}
			started <- list
		}()
		b := do()
		stop.Store(true)
		children := <-started
		var pids []int
		for _, c := range children {
			pids = append(pids, c.Process.Pid)
		}
		if got := holders(t, b, []int{b.container.SandboxPid()}); len(got) == 0 {
			t.Errorf("%s: control: the box itself has no packet socket", name)
		}
		if got := holders(t, b, pids); len(got) > 0 {
			t.Errorf("%s: %d of %d programs that were started meanwhile have the box's packet socket", name, len(got), len(pids))
		}
		for _, c := range children {
			must(t, c.Process.Kill())
			_ = c.Wait() // killed
		}
		return len(pids)
	}
	// A busy host starts few programs meanwhile: again, until there were some.
	var b *box
	for n := 0; n < 5; {
		n += during("start", func() *box { b = newBox(t, d).(*box); return b })
	}
	for n := 0; n < 5; {
		must(t, b.Suspend(t.Context()))
		n += during("resume", func() *box { must(t, b.Resume(t.Context())); return b })
	}
}

// TestPacketsOfOneReader: a box goes on only when nobody reads its network any more.
func TestPacketsOfOneReader(t *testing.T) {
	b := newBox(t, newDriver(t)).(*box)
	read := func() int {
		fd := -1
		must(t, b.net.Inside(func() (err error) {
			fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
			return err
		}))
		return fd
	}
	must(t, b.Suspend(t.Context()))
	fd, closed := read(), atomic.Bool{}
	go func() {
		time.Sleep(300 * time.Millisecond)
		closed.Store(true)
		_ = unix.Close(fd)
	}()
	err := b.Resume(t.Context())
	if err != nil || !closed.Load() {
		t.Fatalf("it goes on beside another reader: %v", err)
	}
	if got, _ := sh(t, b, "echo on"); got != "on" {
		t.Errorf("it says %q", got)
	}
	must(t, b.Suspend(t.Context()))
	defer unix.Close(read())
	if err := b.Resume(t.Context()); err == nil || !strings.Contains(err.Error(), "read the network") {
		t.Errorf("beside a reader that stays: %v", err)
	}
}
