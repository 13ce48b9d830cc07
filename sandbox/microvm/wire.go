package microvm

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"cofferdam/sandbox/microvm/vmm"
)

// wire carries Ethernet frames between a machine's monitor and whoever holds
// the wire, one packet of a socket pair for each. Frames that nobody takes are
// dropped, as on any network.
type wire struct {
	mu      sync.Mutex
	machine *os.File // the monitor's socket; nil while there is no machine
	peer    *os.File // our end of what was lent last; nil: nobody holds the wire
	closed  bool
}

// lend returns a fresh end of the wire and closes the one before: its holder
// reads the end of file, and what it writes goes nowhere.
func (w *wire) lend() (*os.File, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("making wire: %w", err)
	}
	ours, theirs := os.NewFile(uintptr(fds[0]), "wire"), os.NewFile(uintptr(fds[1]), "wire")
	w.mu.Lock()
	if w.closed {
		w.mu.Unlock()
		return nil, errors.Join(fmt.Errorf("lending wire: %w", os.ErrClosed), ours.Close(), theirs.Close())
	}
	old := w.peer
	w.peer = ours
	w.mu.Unlock()
	if old != nil {
		old.Close() // its reader ends
	}
	go w.fromPeer(ours)
	return theirs, nil
}

// fromPeer carries what the holder sends to the machine.
func (w *wire) fromPeer(peer *os.File) {
	b := make([]byte, 4+vmm.MaxFrame+1)
	for {
		n, err := peer.Read(b[4:])
		if err != nil || n == 0 {
			return
		}
		if n > vmm.MaxFrame {
			continue
		}
		binary.BigEndian.PutUint32(b, uint32(n))
		w.mu.Lock()
		to := w.machine
		if w.peer != peer {
			to = nil // fenced
		}
		w.mu.Unlock()
		if to == nil {
			continue
		}
		if _, err := to.Write(b[:4+n]); err != nil {
			continue // the machine ended; another may come
		}
	}
}

// attach serves the monitor behind end until it is gone.
func (w *wire) attach(end *os.File) {
	w.mu.Lock()
	w.machine = end
	w.mu.Unlock()
	go w.fromMachine(end)
}

// fromMachine carries what the machine sends to the holder.
func (w *wire) fromMachine(end *os.File) {
	defer w.detach(end)
	head, b := make([]byte, 4), make([]byte, vmm.MaxFrame)
	for {
		if _, err := io.ReadFull(end, head); err != nil {
			return
		}
		n := binary.BigEndian.Uint32(head)
		if n > vmm.MaxFrame {
			return // the monitor is broken, and with it the network
		}
		if _, err := io.ReadFull(end, b[:n]); err != nil {
			return
		}
		if metadata(b[:n]) {
			continue
		}
		w.mu.Lock()
		to := w.peer
		w.mu.Unlock()
		if to != nil {
			send(to, b[:n])
		}
	}
}

// metadata says whether a frame asks for the addresses at which clouds, and some
// monitors, tell a machine its secrets: 169.254.0.0/16. Nothing answers there in
// any case; a frame with a tag before its type is taken for one.
func metadata(frame []byte) bool {
	const header, ipv4, arp, tag, tags = 14, 0x0800, 0x0806, 0x8100, 0x88a8
	if len(frame) < header {
		return true // no frame at all
	}
	at := 0
	switch binary.BigEndian.Uint16(frame[12:]) {
	case ipv4:
		at = header + 16
	case arp:
		at = header + 24
	case tag, tags:
		return true
	default:
		return false
	}
	return len(frame) < at+4 || frame[at] == 169 && frame[at+1] == 254
}

// send is one try to hand a frame over: who does not read loses it, and holds
// up nobody.
func send(to *os.File, frame []byte) {
	raw, err := to.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Write(func(fd uintptr) bool {
		_, _ = unix.SendmsgN(int(fd), frame, nil, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
		return true
	})
}

// detach forgets a monitor that is gone.
func (w *wire) detach(end *os.File) {
	w.mu.Lock()
	if w.machine == end {
		w.machine = nil
	}
	w.mu.Unlock()
	end.Close()
}

// close ends the wire for good.
func (w *wire) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	if w.peer != nil {
		w.peer.Close()
		w.peer = nil
	}
}
