package gvisor

import (
	"bytes"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"cofferdam/sandbox/netns"
)

// gVisor's package opens a box's packet socket in this process, gives it to the
// sandbox and forgets its own descriptor, which is closed at some collection of
// garbage and not on exec. Until then it is a second reader of the box's network:
// a sandbox that is made for the same box would get half of its packets. A program
// that is started meanwhile would inherit it, and be that second reader for as long
// as it lives.

const (
	// packetPatience is how long collections may take to close what was forgotten,
	// and a program to end that has it all the same.
	packetPatience = 5 * time.Second
	// openPatience is how long no program is started while a sandbox opens its packet
	// socket: it does so first, within milliseconds.
	openPatience = 2 * time.Second
)

// packetSockets returns this process's own packet sockets in the network namespace
// at path.
func packetSockets(path string) (list []int, err error) {
	var want unix.Stat_t
	if err := unix.Stat(path, &want); err != nil {
		return nil, err
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
		if within(fd, want) {
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

// ownPackets calls start, which opens a packet socket in the network namespace at
// path, and keeps this process from starting a program until the socket is one that
// no program inherits.
func ownPackets(path string, start func() error) error {
	syscall.ForkLock.RLock()
	over, closed := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(closed)
		defer syscall.ForkLock.RUnlock()
		late := time.After(openPatience)
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for !closePackets(path) {
			select {
			case <-tick.C:
			case <-late:
				return
			case <-over: // what was opened since the last look is closed before the lock is free
				closePackets(path)
				return
			}
		}
	}()
	err := start()
	close(over)
	<-closed
	closePackets(path) // of one that was late
	return err
}

// closePackets sees that no program inherits this process's packet sockets in the
// network namespace at path, and says whether there are any.
func closePackets(path string) bool {
	list, err := packetSockets(path)
	for _, fd := range list {
		unix.CloseOnExec(fd)
	}
	return err == nil && len(list) > 0
}

// dropPackets returns once nobody reads the network of a box any more, here or in
// a program that was started here. Descriptors are never closed by number: between a
// look and the close the number could have become another file's.
func dropPackets(n *netns.Namespace) error {
	for end := time.Now().Add(packetPatience); ; time.Sleep(time.Millisecond) {
		own, err := packetSockets(n.Path())
		if err != nil {
			return err
		}
		all := 0
		err = n.Inside(func() error {
			all, err = openPackets()
			return err
		})
		if err != nil || all == 0 {
			return err
		}
		if time.Now().After(end) {
			return fmt.Errorf("%d sockets still read the network of the box, %d descriptors of the keeper's own among them", all, len(own))
		}
		runtime.GC()
	}
}

// openPackets counts the packet sockets of this thread's network namespace, whoever
// has them.
func openPackets() (int, error) {
	table, err := os.ReadFile("/proc/thread-self/net/packet")
	return max(0, bytes.Count(table, []byte("\n"))-1), err // less its heading
}
