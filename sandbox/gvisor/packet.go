package gvisor

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// gVisor's package opens a box's packet socket in this process, gives it to the
// sandbox and forgets its own descriptor, which is closed at some collection of
// garbage and not on exec. Until then it is a second reader of the box's network:
// a sandbox that is made for the same box would get half of its packets, and one
// that is made for another box would inherit it.

// packetPatience is how long collections may take to close what was forgotten.
const packetPatience = 5 * time.Second

// packetSockets returns this process's own packet sockets: in the network
// namespace at path, or all with "".
func packetSockets(path string) (list []int, err error) {
	var want unix.Stat_t
	if path != "" {
		if err := unix.Stat(path, &want); err != nil {
			return nil, err
		}
	}
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		fd, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if domain, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DOMAIN); err != nil || domain != unix.AF_PACKET {
			continue
		}
		if path == "" || within(fd, want) {
			list = append(list, fd)
		}
	}
	return list, nil
}

// within says whether a socket is of that network namespace.
func within(fd int, want unix.Stat_t) bool {
	ns, err := unix.IoctlRetInt(fd, unix.SIOCGSKNS)
	if err != nil {
		return false // it was closed meanwhile
	}
	defer unix.Close(ns)
	var have unix.Stat_t
	return unix.Fstat(ns, &have) == nil && have.Ino == want.Ino && have.Dev == want.Dev
}

// keepPackets sees that no program that is started from now on inherits a box's
// packet socket.
func keepPackets() error {
	list, err := packetSockets("")
	for _, fd := range list {
		unix.CloseOnExec(fd)
	}
	return err
}

// dropPackets returns once this process reads nothing of the network namespace
// at path any more. Descriptors are never closed by number: between a look and
// the close the number could have become another file's.
func dropPackets(path string) error {
	for end := time.Now().Add(packetPatience); ; time.Sleep(time.Millisecond) {
		list, err := packetSockets(path)
		if err != nil || len(list) == 0 {
			return err
		}
		if time.Now().After(end) {
			return fmt.Errorf("the keeper still reads the network of the box by %d descriptors", len(list))
		}
		runtime.GC()
	}
}
