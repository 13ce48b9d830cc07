package vmm

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"os/exec"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"cofferdam/sandbox/netns"
)

// testUser is no user of any system.
const testUser = 0x5D000000

// takeTAP is what a monitor does with a device that it is told by name, in the
// namespace that it was put in, as its user: with a header before each frame.
func takeTAP(t *testing.T, n *Network) *os.File {
	t.Helper()
	var f *os.File
	err := netns.OnOwnThread(func() error {
		if err := unix.Setns(int(n.Namespace.Fd()), unix.CLONE_NEWNET); err != nil {
			return err
		}
		i, err := unix.NewIfreq(TAP)
		if err != nil {
			return err
		}
		if f, err = os.OpenFile("/dev/net/tun", os.O_RDWR|unix.O_NONBLOCK, 0); err != nil {
			return err
		}
		i.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI | unix.IFF_VNET_HDR)
		return unix.IoctlIfreq(int(f.Fd()), unix.TUNSETIFF, i)
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.SetNonblock(int(f.Fd()), true); err != nil {
		t.Fatal(err)
	}
	again, err := Duplicate(f)
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	return again
}

// vnetHeader is what Linux puts before a frame for IFF_VNET_HDR: nothing to do.
var vnetHeader = make([]byte, 10)

// testNetwork is a monitor's network, and the driver's end of it.
func testNetwork(t *testing.T) (n *Network, ours *os.File) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("not run here: needs root")
	}
	if _, err := os.Stat("/dev/net/tun"); err != nil {
		t.Skip("not run here: " + err.Error())
	}
	ours, theirs, err := SocketPair()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ours.Close() })
	n, err = NewNetwork(testUser, theirs)
	theirs.Close()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.Close() })
	return n, ours
}

// TestNetworkCarriesFrames sends frames both ways between a monitor's device and
// the driver's socket, the largest there are too, and wants nothing else there:
// the host's own stack has no address in that network and says nothing.
func TestNetworkCarriesFrames(t *testing.T) {
	n, ours := testNetwork(t)
	for range 2 { // a monitor goes, and the next one takes the device
		tap := takeTAP(t, n)
		for _, size := range []int{60, 1514, MaxFrame} {
			frame := bytes.Repeat([]byte{byte(size)}, size)
			copy(frame, "\x02\x00\x00\x00\x00\x01\x02\x00\x00\x00\x00\x02\x08\x00")
			if err := ours.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
				t.Fatal(err)
			}
			if _, err := tap.Write(append(bytes.Clone(vnetHeader), frame...)); err != nil {
				t.Fatal(err)
			}
			head := make([]byte, 4)
			if _, err := io.ReadFull(ours, head); err != nil {
				t.Fatal(err)
			}
			got := make([]byte, binary.BigEndian.Uint32(head))
			if _, err := io.ReadFull(ours, got); err != nil || !bytes.Equal(got, frame) {
				t.Fatalf("a frame of %d bytes arrives as %d, %v: % x", size, len(got), err, got[:min(20, len(got))])
			}
			back := make([]byte, len(vnetHeader)+MaxFrame)
			k, err := 0, os.ErrDeadlineExceeded
			// The kernel sends nothing before it has seen that somebody took the device.
			for end := time.Now().Add(20 * time.Second); errors.Is(err, os.ErrDeadlineExceeded) && time.Now().Before(end); {
				if _, err := ours.Write(append(binary.BigEndian.AppendUint32(nil, uint32(size)), frame...)); err != nil {
					t.Fatal(err)
				}
				if err := tap.SetReadDeadline(time.Now().Add(50 * time.Millisecond)); err != nil {
					t.Fatal(err)
				}
				for k, err = tap.Read(back); err == nil && k != len(vnetHeader)+size; { // one that was sent again before
					k, err = tap.Read(back)
				}
			}
			if err != nil || !bytes.Equal(back[len(vnetHeader):k], frame) {
				t.Fatalf("a frame of %d bytes comes back as %d, %v", size, k-len(vnetHeader), err)
			}
		}
		tap.Close()
	}
}

// TestNetworkIsAlone looks into the namespace: one device, no address, no route.
func TestNetworkIsAlone(t *testing.T) {
	n, _ := testNetwork(t)
	var text []byte
	err := netns.OnOwnThread(func() (err error) {
		if err = unix.Setns(int(n.Namespace.Fd()), unix.CLONE_NEWNET); err == nil {
			text, err = exec.Command("/bin/sh", "-c", "cat /proc/net/fib_trie /proc/net/route /proc/net/if_inet6; grep -c : /proc/net/dev").CombinedOutput()
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(text, []byte("10.99")) || bytes.Contains(text, []byte(TAP+"\t")) || bytes.Contains(text, []byte("fe80")) {
		t.Errorf("the monitor's network has an address or a route:\n%s", text)
	}
	if !bytes.HasSuffix(bytes.TrimSpace(text), []byte("2")) {
		t.Errorf("control: %s", text)
	}
}
