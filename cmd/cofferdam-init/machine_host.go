package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"cofferdam/sandbox"
)

// The network of every box; sandbox/netns has the same for the other tiers.
const machineDevice = "eth0"

var (
	machineAddress = [4]byte{10, 99, 0, 2}
	machineMask    = [4]byte{255, 255, 255, 0}
	machineGateway = [4]byte{10, 99, 0, 1}
)

// place writes a file of the host's into the new root. A link or file of the
// image in the place of a folder above it goes: followed, it would lead elsewhere.
func place(f sandbox.File) error {
	path := newRoot
	for name := range strings.SplitSeq(strings.Trim(filepath.Dir(f.Path), "/"), "/") {
		if name == "" {
			continue
		}
		path = filepath.Join(path, name)
		if info, err := os.Lstat(path); err == nil && info.IsDir() {
			continue
		}
		_ = os.Remove(path) // what is still there makes the following call fail
		if err := os.Mkdir(path, 0o755); err != nil {
			return err
		}
	}
	path = filepath.Join(path, filepath.Base(f.Path))
	if err := os.RemoveAll(path); err != nil {
		return err
	}
	if f.Link != "" {
		return os.Symlink(f.Link, path)
	}
	mode := f.Mode.Perm()
	if mode == 0 {
		mode = 0o444
	}
	return errors.Join(os.WriteFile(path, f.Data, mode), os.Chmod(path, mode))
}

// setClock sets the machine's clock to the host's; zero leaves it.
func setClock(t time.Time) error {
	if t.IsZero() {
		return nil
	}
	ts := unix.NsecToTimespec(t.UnixNano())
	if err := unix.ClockSettime(unix.CLOCK_REALTIME, &ts); err != nil {
		return fmt.Errorf("set clock: %w", err)
	}
	return nil
}

// reseed mixes the host's randomness into the kernel's and makes it count at
// once: without it two machines of one snapshot would draw the same numbers.
func reseed(seed []byte) error {
	if len(seed) == 0 {
		return nil
	}
	f, err := os.OpenFile("/dev/urandom", os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("reseed: %w", err)
	}
	defer f.Close()
	const (
		addEntropy = 0x40085203 // RNDADDENTROPY: int bits, int bytes, the bytes
		reseedNow  = 0x5207     // RNDRESEEDCRNG
	)
	info := binary.NativeEndian.AppendUint32(nil, uint32(8*len(seed)))
	info = binary.NativeEndian.AppendUint32(info, uint32(len(seed)))
	info = append(info, seed...)
	if _, _, e := unix.Syscall(unix.SYS_IOCTL, f.Fd(), addEntropy, uintptr(unsafe.Pointer(&info[0]))); e != 0 {
		return fmt.Errorf("add entropy: %w", e)
	}
	if _, _, e := unix.Syscall(unix.SYS_IOCTL, f.Fd(), reseedNow, 0); e != 0 {
		return fmt.Errorf("reseed: %w", e)
	}
	return nil
}

// network raises loopback and the one device, with its address and route.
func network(mtu int) error {
	for _, link := range []string{"all", "default"} {
		err := os.WriteFile("/proc/sys/net/ipv6/conf/"+link+"/disable_ipv6", []byte("1"), 0)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("turn off ipv6: %w", err)
		}
	}
	if _, err := await("network device", func() string {
		if _, err := os.Stat("/sys/class/net/" + machineDevice); err != nil {
			return ""
		}
		return machineDevice
	}); err != nil {
		return err
	}
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open socket: %w", err)
	}
	defer unix.Close(s)
	steps := []struct {
		device string
		call   uint
		set    func(*unix.Ifreq) error
	}{
		{"lo", unix.SIOCSIFFLAGS, up},
		{machineDevice, unix.SIOCSIFMTU, func(r *unix.Ifreq) error { r.SetUint32(uint32(mtu)); return nil }},
		{machineDevice, unix.SIOCSIFADDR, func(r *unix.Ifreq) error { return r.SetInet4Addr(machineAddress[:]) }},
		{machineDevice, unix.SIOCSIFNETMASK, func(r *unix.Ifreq) error { return r.SetInet4Addr(machineMask[:]) }},
		{machineDevice, unix.SIOCSIFFLAGS, up},
	}
	for _, step := range steps {
		r, err := unix.NewIfreq(step.device)
		if err == nil {
			err = errors.Join(step.set(r), unix.IoctlIfreq(s, step.call, r))
		}
		if err != nil {
			return fmt.Errorf("set up %s: %w", step.device, err)
		}
	}
	return route(s)
}

func up(r *unix.Ifreq) error {
	r.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	return nil
}

// route makes the gateway the default route: struct rtentry of the kernel.
func route(socket int) error {
	address := func(ip [4]byte) unix.RawSockaddrInet4 {
		return unix.RawSockaddrInet4{Family: unix.AF_INET, Addr: ip}
	}
	entry := struct {
		_       uint64
		dst     unix.RawSockaddrInet4
		gateway unix.RawSockaddrInet4
		mask    unix.RawSockaddrInet4
		flags   uint16
		_       [4 + 2]byte
		_       [7]uint64 // nothing that we set
	}{dst: address([4]byte{}), gateway: address(machineGateway), mask: address([4]byte{}), flags: unix.RTF_UP | unix.RTF_GATEWAY}
	if _, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(socket), unix.SIOCADDRT, uintptr(unsafe.Pointer(&entry))); e != 0 {
		return fmt.Errorf("set default route: %w", e)
	}
	return nil
}

// harden takes from commands what no box needs of a kernel of its own.
func harden() error {
	for path, value := range map[string]string{
		"kernel/kptr_restrict": "2", "kernel/dmesg_restrict": "1", "kernel/unprivileged_bpf_disabled": "1",
		"kernel/panic_on_oops": "1", "vm/panic_on_oom": "0",
	} {
		err := os.WriteFile("/proc/sys/"+path, []byte(value), 0)
		if err != nil && !errors.Is(err, os.ErrNotExist) && !errors.Is(err, unix.EPERM) {
			return fmt.Errorf("set %s: %w", path, err)
		}
	}
	return nil
}
