package process

import (
	"errors"
	"io"
	"testing"

	"golang.org/x/sys/unix"
)

// TestSignalAtTheEnd: what pid 1 said last is heard, though it ended without
// having read a signal; the kernel tells that first, as a connection reset.
func TestSignalAtTheEnd(t *testing.T) {
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	p := &pid1{talk: ends[0]}
	defer unix.Close(ends[0])
	if err := p.say(byte(unix.SIGCONT)); err != nil {
		t.Fatal(err)
	}
	if _, err := unix.Write(ends[1], []byte(`{"ended":true}`)); err != nil {
		t.Fatal(err)
	}
	unix.Close(ends[1])
	if r, _, err := p.hear(); err != nil || !r.Ended {
		t.Errorf("%+v, %v", r, err)
	}
	if _, _, err := p.hear(); !errors.Is(err, io.EOF) {
		t.Errorf("then %v", err)
	}
}
