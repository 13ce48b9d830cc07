package netns

import (
	"bytes"
	"encoding/binary"
	"errors"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// newNamespace makes a namespace, or skips the test and says why.
func newNamespace(t *testing.T) *Namespace {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root: network namespaces and TAP devices")
	}
	if _, err := os.Stat(tunPath); err != nil {
		t.Skip("needs TAP devices: " + err.Error())
	}
	n, err := New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
	return n
}

// inside runs fn in n.
func inside(t *testing.T, n *Namespace, fn func() error) {
	t.Helper()
	err := OnOwnThread(func() error {
		if err := control(n.ns, func(fd int) error { return unix.Setns(fd, unix.CLONE_NEWNET) }); err != nil {
			return err
		}
		return fn()
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestNamespaceHasOneDeviceAndOneWayOut(t *testing.T) {
	n := newNamespace(t)
	inside(t, n, func() error {
		links, err := netlink.LinkList()
		if err != nil {
			return err
		}
		for _, l := range links {
			a := l.Attrs()
			switch a.Name {
			case "lo":
				if a.Flags&net.FlagUp == 0 {
					t.Error("loopback is down")
				}
			case Device:
				if a.MTU != MTU || a.HardwareAddr.String() != BoxMAC || a.Flags&net.FlagUp == 0 {
					t.Errorf("device: mtu %d, address %s, flags %v", a.MTU, a.HardwareAddr, a.Flags)
				}
			default:
				if a.Flags&net.FlagUp != 0 { // a kernel may add tunnel devices, all down
					t.Errorf("unexpected device %s is up", a.Name)
				}
			}
		}
		addrs, err := netlink.AddrList(nil, netlink.FAMILY_V6)
		if err != nil {
			return err
		}
		if len(addrs) != 1 || addrs[0].IP.String() != "::1" {
			t.Errorf("IPv6 addresses: %v, want ::1 alone", addrs)
		}
		routes, err := netlink.RouteList(nil, netlink.FAMILY_V4)
		if err != nil {
			return err
		}
		var gateways []string
		for _, r := range routes {
			if r.Gw != nil {
				gateways = append(gateways, r.Gw.String())
			}
		}
		if got := strings.Join(gateways, " "); got != Gateway().String() {
			t.Errorf("gateways: %q", got)
		}
		return nil
	})
}

// ask sends one UDP datagram from inside n, so that an ARP question for the
// gateway appears on the attached queue.
func ask(t *testing.T, n *Namespace) {
	t.Helper()
	inside(t, n, func() error {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		return unix.Sendto(fd, []byte("x"), 0, &unix.SockaddrInet4{Port: 9, Addr: [4]byte{10, 99, 0, 1}})
	})
}

// hears says whether an ARP frame of the box arrives at queue within d.
func hears(t *testing.T, queue *os.File, d time.Duration) bool {
	t.Helper()
	if err := queue.SetReadDeadline(time.Now().Add(d)); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, MTU+64)
	for {
		k, err := queue.Read(buf)
		if err != nil {
			if !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Logf("reading queue: %v", err)
			}
			return false
		}
		mac, _ := net.ParseMAC(BoxMAC)
		if k > 14 && bytes.Equal(buf[6:12], mac) && binary.BigEndian.Uint16(buf[12:]) == 0x0806 {
			return true
		}
	}
}

func TestNewerQueueFencesOlder(t *testing.T) {
	n := newNamespace(t)
	first, err := n.Queue()
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	ask(t, n)
	if !hears(t, first, 5*time.Second) {
		t.Fatal("the only queue hears nothing: the test could not fail")
	}
	second, err := n.Queue()
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	for range 3 { // ARP asks once a second
		ask(t, n)
	}
	if !hears(t, second, 5*time.Second) {
		t.Error("the newer queue hears nothing")
	}
	if hears(t, first, 200*time.Millisecond) {
		t.Error("the older queue still hears the box")
	}
}

func TestDeviceOutlivesItsHolders(t *testing.T) {
	n := newNamespace(t)
	for range 5 {
		q, err := n.Queue()
		if err != nil {
			t.Fatal(err)
		}
		q.Close()
	}
	q, err := n.Queue()
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	ask(t, n)
	if !hears(t, q, 5*time.Second) {
		t.Error("nothing heard after earlier holders went away")
	}
}

func TestCloseIsFinalAndLeavesNothing(t *testing.T) {
	n := newNamespace(t)
	before := descriptors(t)
	m, err := New()
	if err != nil {
		t.Fatal(err)
	}
	q, err := m.Queue()
	if err != nil {
		t.Fatal(err)
	}
	q.Close()
	for range 2 {
		if err := m.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := m.Queue(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("queue of a closed namespace: %v", err)
	}
	if after := descriptors(t); after > before {
		t.Errorf("descriptors: %d before, %d after", before, after)
	}
	if n.Path() == "" {
		t.Error("open namespace has no path")
	}
}

func descriptors(t *testing.T) int {
	t.Helper()
	e, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(e)
}

func TestMainThreadIsNotUsedUp(t *testing.T) {
	want, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	for range 20 {
		n := newNamespace(t)
		if n.Path() == "" {
			t.Fatal("no path")
		}
	}
	got, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	if got != want {
		t.Errorf("process moved from %s to %s", want, got)
	}
}
