package wall

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The network of a box. A test of sandbox/netns holds its own names against them.
var (
	Device  = "eth0"
	MAC     = [6]byte{2, 0, 0, 0, 0, 2}
	Address = [4]byte{10, 99, 0, 2}
	Mask    = [4]byte{255, 255, 255, 0}
	Gateway = [4]byte{10, 99, 0, 1}
	MTU     = uint32(65520)
)

const tunPath = "/dev/net/tun"

// OpenTAP makes the network device of this namespace and returns a queue of it:
// while that is open, the device is there. Only a device that is lent again
// needs more queues than one, and room for 256 takes the kernel a while.
func OpenTAP(again bool) (int, error) {
	// So the device has no IPv6 from its first moment. To turn it off later waits, at
	// work, for whoever else changes any network of the host.
	_ = closeIPv6("/proc", "default") // where that cannot be written, what follows sees to it
	fd, err := unix.Open(tunPath, unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return -1, &Error{LayerTAP, fmt.Errorf("open %s: %w", tunPath, err)}
	}
	req, err := unix.NewIfreq(Device)
	if err == nil {
		flags := uint16(unix.IFF_TAP | unix.IFF_NO_PI)
		if again {
			flags |= unix.IFF_MULTI_QUEUE
		}
		req.SetUint16(flags)
		err = unix.IoctlIfreq(fd, unix.TUNSETIFF, req)
	}
	if err == nil {
		// The device ends with its namespace, by a thread of the kernel. Otherwise
		// whoever closes the last queue waits for it, some 20 ms.
		err = unix.IoctlSetInt(fd, unix.TUNSETPERSIST, 1)
	}
	if err != nil {
		unix.Close(fd)
		return -1, &Error{LayerTAP, fmt.Errorf("make device: %w", err)}
	}
	return fd, nil
}

// Raise raises loopback and, if tap, the network device with its address and
// the only route.
func Raise(tap bool) error {
	if err := raise(tap); err != nil {
		return &Error{LayerNetwork, err}
	}
	return nil
}

func raise(tap bool) error {
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(s)
	if err := setUp(s, "lo"); err != nil {
		return fmt.Errorf("raise loopback: %w", err)
	}
	if !tap {
		return nil
	}
	hardware := func(b []byte) { b[0], b[1] = unix.ARPHRD_ETHER, 0; copy(b[2:], MAC[:]) }
	mtu := func(b []byte) { *(*uint32)(unsafe.Pointer(&b[0])) = MTU }
	for _, step := range []struct {
		name string
		call uintptr
		fill func([]byte)
	}{
		{"set address of link", unix.SIOCSIFHWADDR, hardware},
		{"set mtu", unix.SIOCSIFMTU, mtu},
		{"set address", unix.SIOCSIFADDR, inet(Address)},
		{"set mask", unix.SIOCSIFNETMASK, inet(Mask)},
	} {
		var req ifreq
		copy(req.name[:], Device)
		step.fill(req.data[:])
		if err := ioctl(s, step.call, unsafe.Pointer(&req)); err != nil {
			return fmt.Errorf("%s: %w", step.name, err)
		}
	}
	// Before the device can say a word of it; where the host's /proc cannot be
	// written, Build does it on the box's own.
	_ = closeIPv6("/proc", Device)
	if err := setUp(s, Device); err != nil {
		return fmt.Errorf("raise %s: %w", Device, err)
	}
	var route rtentry
	inet([4]byte{})(route.to[:])
	inet([4]byte{})(route.mask[:])
	inet(Gateway)(route.gateway[:])
	route.flags = unix.RTF_UP | unix.RTF_GATEWAY
	if err := ioctl(s, unix.SIOCADDRT, unsafe.Pointer(&route)); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("set default route: %w", err)
	}
	return nil
}

// closeIPv6 turns IPv6 off, unless it is, on the network device of this namespace,
// or by default on those that are made from now on. Loopback keeps it: servers bind
// there in either family.
func closeIPv6(proc, device string) error {
	path := proc + "/sys/net/ipv6/conf/" + device + "/disable_ipv6"
	if is, err := os.ReadFile(path); err != nil || string(is) == "1\n" {
		return err
	}
	return os.WriteFile(path, []byte("1"), 0)
}

// ifreq and rtentry are the kernel's, on 64 bits.
type ifreq struct {
	name [unix.IFNAMSIZ]byte
	data [24]byte
}

type rtentry struct {
	_                 uint64
	to, gateway, mask [16]byte
	flags             uint16
	_                 int16
	_                 uint64
	_                 uint64
	_                 int16
	_                 uint64
	_, _              uint64
	_                 uint16
}

// inet fills in a socket address.
func inet(a [4]byte) func([]byte) {
	return func(b []byte) {
		*(*uint16)(unsafe.Pointer(&b[0])) = unix.AF_INET
		copy(b[4:], a[:])
	}
}

func setUp(s int, name string) error {
	req, err := unix.NewIfreq(name)
	if err != nil {
		return err
	}
	req.SetUint16(unix.IFF_UP)
	return unix.IoctlIfreq(s, unix.SIOCSIFFLAGS, req)
}

func ioctl(fd int, call uintptr, arg unsafe.Pointer) error {
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), call, uintptr(arg))
	runtime.KeepAlive(arg)
	if errno != 0 {
		return errno
	}
	return nil
}
