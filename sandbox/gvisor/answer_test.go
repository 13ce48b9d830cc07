package gvisor

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"cofferdam/sandbox"
)

// answer is the other end of a wire that echoes what is sent to its port 53.
type answer struct{ arp, udp, other atomic.Int64 }

func (a *answer) serve(q *os.File) {
	b := make([]byte, 1<<16)
	for {
		n, err := q.Read(b)
		if err != nil {
			return
		}
		f := b[:n]
		us := []byte{2, 0, 0, 0, 0, 1}
		switch binary.BigEndian.Uint16(f[12:]) {
		case 0x0806:
			a.arp.Add(1)
			r := append([]byte{}, f[:42]...)
			copy(r[0:], f[6:12])
			copy(r[6:], us)
			r[21] = 2
			copy(r[22:], us)
			copy(r[28:], f[38:42])
			copy(r[32:], f[22:28])
			copy(r[38:], f[28:32])
			q.Write(r)
		case 0x0800:
			if f[23] != 17 {
				a.other.Add(1)
				continue
			}
			a.udp.Add(1)
			r := append([]byte{}, f...)
			copy(r[0:], f[6:12])
			copy(r[6:], us)
			copy(r[26:], f[30:34])
			copy(r[30:], f[26:30])
			copy(r[34:], f[36:38])
			copy(r[36:], f[34:36])
			r[40], r[41] = 0, 0 // no checksum
			q.Write(r)
		default:
			a.other.Add(1)
		}
	}
}

const askWire = `python3 -c "
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(3)
for i in range(3):
    s.sendto(b'x', ('10.99.0.1', 53))
    try: print(s.recvfrom(9)); break
    except Exception as e: print(e)
"`

// TestResumedBoxIsAnswered: what a resumed box sends is answered, by whoever
// holds its new queue.
func TestResumedBoxIsAnswered(t *testing.T) {
	ctx := context.Background()
	d := newDriver(t)
	b := newBox(t, d)
	for cycle := range 5 {
		q, err := b.Wire(ctx)
		must(t, err)
		a := &answer{}
		go a.serve(q)
		out, _ := sh(t, b, askWire)
		if a.udp.Load() == 0 || !strings.Contains(out, "10.99.0.1") {
			t.Fatalf("cycle %d: %q; arrived: arp %d udp %d other %d", cycle, out, a.arp.Load(), a.udp.Load(), a.other.Load())
		}
		if list, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", b.(*box).container.SandboxPid())); err != nil || packets(t, b, list) != 1 {
			t.Errorf("the sandbox has %d packet sockets, %v", packets(t, b, list), err)
		}
		must(t, q.Close())
		must(t, b.Suspend(ctx), b.Resume(ctx))
	}
}

// packets counts the packet sockets of a box's namespace that its sandbox has.
func packets(t *testing.T, b sandbox.Box, fds []string) (n int) {
	t.Helper()
	table, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/packet", b.(*box).container.SandboxPid()))
	must(t, err)
	for _, fd := range fds {
		to, _ := os.Readlink(fd)
		inode, found := strings.CutPrefix(to, "socket:[")
		if found && strings.Contains(string(table), " "+strings.TrimSuffix(inode, "]")+"\n") {
			n++
		}
	}
	return n
}
