package microvm

import (
	"io"
	"os"
	"testing"
	"time"

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
