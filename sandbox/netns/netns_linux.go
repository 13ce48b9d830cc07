package netns

import (
	"errors"
	"fmt"
	"os"
	"sync"

	"cofferdam/sandbox/wall"

	"golang.org/x/sys/unix"
)

// Namespace is the network of one box. Safe for concurrent use.
type Namespace struct {
	ns *os.File // the namespace itself
	// holder is a detached queue. While it is open the device stays, whoever
	// comes and goes: when the last descriptor of a TAP closes, the packet
	// socket of the box is dead for good.
	holder *os.File

	mu     sync.Mutex
	lent   *os.File // a duplicate of the queue lent last; guarded by mu
	closed bool     // guarded by mu
}

// New makes a namespace with its device: addresses, default route, loopback
// up in both families, IPv6 off elsewhere, and no queue attached.
func New() (*Namespace, error) {
	n := new(Namespace)
	err := OnOwnThread(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("making network namespace: %w", err)
		}
		var err error
		if n.ns, err = os.Open(fmt.Sprintf("/proc/self/task/%d/ns/net", unix.Gettid())); err != nil {
			return err
		}
		if n.holder, err = openQueue(); err != nil {
			return err
		}
		if err := detach(n.holder); err != nil {
			return fmt.Errorf("detaching first queue: %w", err)
		}
		return configure()
	})
	if err != nil {
		return nil, errors.Join(err, n.Close())
	}
	return n, nil
}

// configure sets up the links of the namespace of the calling thread.
func configure() error {
	if err := disableIPv6(); err != nil {
		return err
	}
	if err := wall.Raise(true); err != nil {
		return err
	}
	return writeIPv6("lo", "0") // gives it ::1, now that it is up
}

// Renew gives the device back what a sandbox took from it: gVisor moves address
// and routes into its own network when it starts, so that another one, for the
// same box, finds none.
func (n *Namespace) Renew() error {
	return OnOwnThread(func() error {
		if err := control(n.ns, func(fd int) error { return unix.Setns(fd, unix.CLONE_NEWNET) }); err != nil {
			return fmt.Errorf("entering network namespace: %w", err)
		}
		return configure()
	})
}

// disableIPv6 turns IPv6 off in the namespace of the calling thread, for links
// that are there and links to come. Loopback gets it back: programs that listen
// on ::1 are ordinary, and nothing leaves by it.
func disableIPv6() error {
	return errors.Join(writeIPv6("all", "1"), writeIPv6("default", "1"))
}

// writeIPv6 sets disable_ipv6 of a link. A kernel without IPv6 needs nothing.
func writeIPv6(link, value string) error {
	err := os.WriteFile("/proc/sys/net/ipv6/conf/"+link+"/disable_ipv6", []byte(value), 0)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("setting disable_ipv6 of %s to %s: %w", link, value, err)
	}
	return nil
}

// Path names the namespace for a program that is to join it. It is valid while
// n is open.
func (n *Namespace) Path() string {
	var path string
	// Control only fails on a closed file, and then the empty path is refused.
	_ = control(n.ns, func(fd int) error {
		path = fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), fd)
		return nil
	})
	return path
}

// Queue returns a fresh queue of the device: a non-blocking descriptor that
// reads and writes Ethernet frames. The queue that was lent before is detached
// first: its holder hears nothing from here on. The kernel still takes what it
// writes, but whatever the box answers goes to the new holder, who knows no
// such connection and resets it. The caller closes the file.
func (n *Namespace) Queue() (*os.File, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return nil, fmt.Errorf("lending queue: %w", os.ErrClosed)
	}
	if n.lent != nil {
		if err := detach(n.lent); err != nil {
			return nil, fmt.Errorf("detaching former queue: %w", err)
		}
		if err := n.lent.Close(); err != nil {
			return nil, fmt.Errorf("closing former queue: %w", err)
		}
		n.lent = nil
	}
	var queue *os.File
	err := OnOwnThread(func() error {
		if err := control(n.ns, func(fd int) error { return unix.Setns(fd, unix.CLONE_NEWNET) }); err != nil {
			return fmt.Errorf("entering network namespace: %w", err)
		}
		var err error
		queue, err = openQueue()
		return err
	})
	if err != nil {
		return nil, err
	}
	if n.lent, err = duplicate(queue); err != nil {
		return nil, errors.Join(fmt.Errorf("keeping queue: %w", err), queue.Close())
	}
	return queue, nil
}

// Close gives the namespace up. It and its device are gone once the box that
// runs in it has ended and every lent queue is closed.
func (n *Namespace) Close() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return nil
	}
	n.closed = true
	var errs []error
	if n.lent != nil {
		errs = append(errs, detach(n.lent))
	}
	for _, f := range []*os.File{n.lent, n.holder, n.ns} {
		if f != nil {
			errs = append(errs, f.Close())
		}
	}
	return errors.Join(errs...)
}
