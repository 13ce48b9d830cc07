package vmm

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"cofferdam/sandbox/netns"
)

// TAP is the name of the network device of a monitor that takes one by name.
const TAP = "vm0"

// Network is a network namespace with one TAP device for a monitor, and carries
// Ethernet frames between that device and a socket. It has no address and no
// route: of what a guest sends, a packet socket reads it and nobody else.
type Network struct {
	Namespace *os.File
	packets   *os.File // what is sent to and from the device
	stream    *os.File // frames after their length, u32 big endian
}

// NewNetwork makes one; the device is the user's. stream is the driver's: a
// duplicate of it is used.
func NewNetwork(uid int, stream *os.File) (*Network, error) {
	n := new(Network)
	err := netns.OnOwnThread(func() error { return n.make(uid) })
	if err == nil {
		n.stream, err = Duplicate(stream)
	}
	if err != nil {
		n.Close()
		return nil, fmt.Errorf("making the monitor's network: %w", err)
	}
	go n.toGuest()
	go n.fromGuest()
	return n, nil
}

// make enters a new namespace with the calling thread.
func (n *Network) make(uid int) (err error) {
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return err
	}
	if n.Namespace, err = os.Open(fmt.Sprintf("/proc/self/task/%d/ns/net", unix.Gettid())); err != nil {
		return err
	}
	for _, link := range []string{"all", "default"} {
		err := os.WriteFile("/proc/sys/net/ipv6/conf/"+link+"/disable_ipv6", []byte("1"), 0)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	if err := makeTAP(uid); err != nil {
		return err
	}
	index, err := raise()
	if err != nil {
		return err
	}
	n.packets, err = listenPackets(index)
	return err
}

// makeTAP makes a device that stays until its namespace is gone, and that the
// user may take by its name.
func makeTAP(uid int) error {
	f, err := os.OpenFile("/dev/net/tun", os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	r, err := unix.NewIfreq(TAP)
	if err != nil {
		return err
	}
	r.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI)
	fd := int(f.Fd())
	return errors.Join(
		unix.IoctlIfreq(fd, unix.TUNSETIFF, r),
		unix.IoctlSetInt(fd, unix.TUNSETOWNER, uid),
		unix.IoctlSetInt(fd, unix.TUNSETGROUP, uid),
		unix.IoctlSetInt(fd, unix.TUNSETPERSIST, 1),
	)
}

// raise sets the device up and returns its number.
func raise() (index uint32, err error) {
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	defer unix.Close(s)
	for _, step := range []struct {
		call uint
		set  func(*unix.Ifreq)
	}{
		{unix.SIOCSIFMTU, func(r *unix.Ifreq) { r.SetUint32(netns.MTU) }},
		{unix.SIOCSIFFLAGS, func(r *unix.Ifreq) { r.SetUint16(unix.IFF_UP | unix.IFF_RUNNING) }},
		{unix.SIOCGIFINDEX, func(*unix.Ifreq) {}},
	} {
		r, err := unix.NewIfreq(TAP)
		if err != nil {
			return 0, err
		}
		step.set(r)
		if err := unix.IoctlIfreq(s, step.call, r); err != nil {
			return 0, fmt.Errorf("setting up %s: %w", TAP, err)
		}
		index = r.Uint32()
	}
	return index, nil
}

// listenPackets opens a socket for all that passes the device, but for what it
// sends itself.
func listenPackets(index uint32) (*os.File, error) {
	protocol := binary.BigEndian.Uint16(binary.NativeEndian.AppendUint16(nil, unix.ETH_P_ALL)) // in network order
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("opening packet socket: %w", err)
	}
	const packetIgnoreOutgoing = 23 // PACKET_IGNORE_OUTGOING, Linux 4.20
	err = errors.Join(
		unix.SetsockoptInt(fd, unix.SOL_PACKET, packetIgnoreOutgoing, 1),
		unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: protocol, Ifindex: int(index)}),
	)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("opening packet socket: %w", err), unix.Close(fd))
	}
	return os.NewFile(uintptr(fd), "packets"), nil
}

// MaxFrame is the largest Ethernet frame of a box: its header and a packet.
const MaxFrame = 14 + netns.MTU

// fromGuest carries what the device hears to the stream. A frame that is larger
// than any may be is dropped, and so is what the driver does not take in time.
func (n *Network) fromGuest() {
	b := make([]byte, 4+MaxFrame+1)
	for {
		k, err := n.packets.Read(b[4:])
		if errors.Is(err, unix.ENETDOWN) {
			continue // the monitor let the device go; it comes back, or this is closed
		}
		if err != nil {
			return
		}
		if k == 0 || k > MaxFrame {
			continue
		}
		binary.BigEndian.PutUint32(b, uint32(k))
		if _, err := n.stream.Write(b[:4+k]); err != nil {
			return
		}
	}
}

// toGuest carries what the stream has to the device. While the monitor has not
// taken the device, what is sent is lost, as on a cable that is not plugged in.
func (n *Network) toGuest() {
	head, b := make([]byte, 4), make([]byte, MaxFrame)
	for {
		if _, err := io.ReadFull(n.stream, head); err != nil {
			return
		}
		k := binary.BigEndian.Uint32(head)
		if k > MaxFrame {
			return // the driver sends none of these
		}
		if _, err := io.ReadFull(n.stream, b[:k]); err != nil {
			return
		}
		_, _ = n.packets.Write(b[:k]) // refused while nobody has the device
	}
}

// Close ends both directions; the namespace goes with the last who is in it.
func (n *Network) Close() {
	for _, f := range []*os.File{n.Namespace, n.packets, n.stream} {
		if f != nil {
			f.Close()
		}
	}
}
