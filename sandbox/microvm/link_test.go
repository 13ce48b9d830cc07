package microvm

import (
	"errors"
	"io"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"cofferdam/sandbox/cage"
	"cofferdam/sandbox/microvm/vmm"
)

// TestLinkChangesLines has a machine's line end and another one come, as with a
// monitor whose lines do not outlive being saved: the host's end stays. A line that
// ends when none is to come is the machine's end.
func TestLinkChangesLines(t *testing.T) {
	l, w, r, err := newLink()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	defer r.Close()
	line := func() (ours, theirs *os.File) {
		t.Helper()
		ours, raw, err := vmm.SocketPair()
		if err != nil {
			t.Fatal(err)
		}
		defer raw.Close()
		if theirs, err = vmm.Duplicate(raw); err != nil {
			t.Fatal(err)
		}
		if err := theirs.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
			t.Fatal(err)
		}
		return ours, theirs
	}
	if err := r.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	carries := func(machine *os.File) {
		t.Helper()
		got := make([]byte, 4)
		if _, err := w.WriteString("ping"); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(machine, got); err != nil || string(got) != "ping" {
			t.Fatalf("the machine hears %q, %v", got, err)
		}
		if _, err := machine.WriteString("pong"); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(r, got); err != nil || string(got) != "pong" {
			t.Fatalf("the host hears %q, %v", got, err)
		}
	}
	ours, machine := line()
	ended := l.attach(ours)
	carries(machine)
	l.part()
	machine.Close()
	<-ended
	ours, machine = line() // one that the guest's kernel resets
	ended = l.attach(ours)
	machine.Close()
	<-ended
	ours, machine = line() // one that is replaced before its end is seen
	ended = l.attach(ours)
	ours, again := line()
	l.attach(ours)
	<-ended
	machine.Close()
	carries(again)
	l.keep()
	carries(again)
	again.Close()
	if n, err := r.Read(make([]byte, 1)); n > 0 || err == nil || os.IsTimeout(err) {
		t.Errorf("the machine's end is %d, %v to the host", n, err)
	}
	l.close()
}

// endingMachine has only its end, which begins once it is asked for.
type endingMachine struct {
	vmm.Running
	p   *cage.Process
	end func()
}

func (m *endingMachine) Process() *cage.Process {
	m.end()
	return m.p
}

// TestLastWordsAreWaitedFor has a monitor end, and its kernel's last line come, only
// after the line to its pid 1 has ended: what is said of it names both.
func TestLastWordsAreWaitedFor(t *testing.T) {
	ours, theirs, err := vmm.SocketPair()
	if err != nil {
		t.Fatal(err)
	}
	p := &cage.Process{Name: "qemu", Ended: make(chan struct{})}
	m := &endingMachine{p: p, end: sync.OnceFunc(func() {
		go func() {
			time.Sleep(50 * time.Millisecond) // later than one that does not wait has looked
			_, _ = p.Write([]byte("it ran out\n"))
			p.Err = errors.New("signal: killed")
			close(p.Ended)
			time.Sleep(50 * time.Millisecond)
			_, _ = theirs.WriteString("Kernel panic\n")
			theirs.Close()
		}()
	})}
	c := newConsole()
	c.follow(ours)
	const want = "its console: Kernel panic; qemu ended (signal: killed): it ran out"
	if got := lastWords(t.Context(), c, m, time.Minute); got == nil || !strings.Contains(got.Error(), want) {
		t.Errorf("%v, want %s", got, want)
	}
}
