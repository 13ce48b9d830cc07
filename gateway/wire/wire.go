// Package wire is the network behind a box: the other end of its TAP device, a
// user-space IP stack that knows who is calling by the device a packet came in
// on. It answers DNS by name, gives each permitted name an address of
// 198.18.0.0/15 that means something on this wire alone, and hands TCP
// connections to these addresses to a gateway together with the name.
//
// It never routes a packet to anywhere: there is no other device. Literal
// addresses, UDP, ICMP and IPv6 have nowhere to go; each such drop is counted,
// and the first of each kind and target goes on record. The invariant: an
// address is on record before the box hears of it, so that the table of names
// can be rebuilt from the record by a later process (see NameOf).
//
// A name that policy refuses is answered with one shared address,
// RefusalAddress, where HTTP and TLS clients are told the reason at once.
package wire

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/link/fdbased"
	"gvisor.dev/gvisor/pkg/tcpip/network/arp"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/tcpip/transport/udp"

	"cofferdam"
	"cofferdam/gateway"
)

// The network of every box; sandbox/netns makes the other end.
const (
	mtu        = 65520 // facts: ten times the throughput of 1500 from gVisor
	gatewayMAC = "\x02\x00\x00\x00\x00\x01"
	boxMAC     = "\x02\x00\x00\x00\x00\x02"
	nic        = tcpip.NICID(1)
)

// Addresses of every wire.
var (
	gatewayAddress = netip.AddrFrom4([4]byte{10, 99, 0, 1})
	boxAddress     = netip.AddrFrom4([4]byte{10, 99, 0, 2})
	// RefusalAddress is what every refused name resolves to.
	RefusalAddress = netip.AddrFrom4([4]byte{198, 18, 0, 1})
)

// Bounds of one wire. They are far above what clients do (npm opens 50
// connections at most, a large build asks for some hundred names), and keep
// what a hostile box can make the server hold below about 600 MiB.
const (
	MaxNames       = 4096    // names with an address of their own
	MaxConnections = 256     // open at the same time, over all gateways
	maxHandshakes  = 128     // half-open ones
	bufferSize     = 1 << 20 // of a connection, each way
	startBuffer    = 256 << 10
	timeWait       = 2 * time.Second  // a closed connection's memory; nothing on a wire is delayed
	closeTimeout   = 10 * time.Second // for gateways to let go of their connections
)

// Router says which gateway serves a target.
type Router interface {
	// Handler returns the gateway for a connection to a name that policy lets
	// this caller know; nil: nothing listens there, and the connection is reset.
	Handler(c *gateway.Caller, to gateway.Target) gateway.Handler
	// Refusal returns the handler that tells clients of refused names why.
	Refusal() gateway.Handler
}

// Wire is the live network of one box.
type Wire struct {
	caller *gateway.Caller
	router Router
	stack  *stack.Stack
	tap    *os.File // a duplicate, ours alone
	fd     int      // of tap
	names  *table
	drops  *drops
	live   context.Context // ends with the wire or the session
	end    context.CancelFunc

	wg sync.WaitGroup // everything that runs for this wire

	mu     sync.Mutex
	conns  map[flow]net.Conn // open connections; guarded by mu
	closed bool              // guarded by mu
}

// Attach puts a network behind tap and serves it until Close or the end of the
// session. It owns tap. names are those an earlier process had given out.
func Attach(tap *os.File, caller *gateway.Caller, r Router, names []Name) (*Wire, error) {
	fd, err := takeFD(tap)
	if err != nil {
		return nil, fmt.Errorf("attaching wire: %w", err)
	}
	w := &Wire{
		caller: caller, router: r, fd: fd, tap: os.NewFile(uintptr(fd), "tap"),
		names: newTable(), drops: newDrops(caller), conns: map[flow]net.Conn{},
	}
	if err := w.names.restore(names); err != nil {
		w.tap.Close()
		return nil, err
	}
	w.live, w.end = context.WithCancel(caller.Live)
	if err := w.open(); err != nil {
		w.end()
		w.tap.Close()
		return nil, fmt.Errorf("attaching wire: %w", err)
	}
	w.wg.Go(func() { w.drops.run(w.live) })
	// The end of the session cuts every connection at once.
	context.AfterFunc(caller.Live, w.cut)
	return w, nil
}

// takeFD closes tap and returns a non-blocking descriptor of the same queue
// that the runtime's poller does not know.
func takeFD(tap *os.File) (int, error) {
	defer tap.Close()
	raw, err := tap.SyscallConn()
	if err != nil {
		return -1, err
	}
	fd, dupErr := -1, error(nil)
	err = raw.Control(func(old uintptr) { fd, dupErr = unix.FcntlInt(old, unix.F_DUPFD_CLOEXEC, 3) })
	return fd, errors.Join(err, dupErr)
}

// open builds the stack on the descriptor.
func (w *Wire) open() error {
	w.stack = stack.New(stack.Options{
		NetworkProtocols:   []stack.NetworkProtocolFactory{ipv4.NewProtocol, arp.NewProtocol},
		TransportProtocols: []stack.TransportProtocolFactory{tcp.NewProtocol, udp.NewProtocol},
	})
	link, err := fdbased.New(&fdbased.Options{
		FDs: []int{w.fd}, MTU: mtu, EthernetHeader: true, Address: gatewayMAC,
		PacketDispatchMode: fdbased.Readv, ProcessorsPerChannel: 1,
		// The device is memory of this machine; a box that spoils its own
		// checksums spoils its own streams only.
		RXChecksumOffload: true,
	})
	if err != nil {
		return err
	}
	if err := w.configure(link); err != nil {
		w.stack.Destroy()
		return err
	}
	return nil
}

func (w *Wire) configure(link stack.LinkEndpoint) error {
	options := []tcpip.SettableTransportProtocolOption{
		ptr(tcpip.TCPSACKEnabled(true)),
		ptr(tcpip.TCPModerateReceiveBufferOption(true)),
		ptr(tcpip.TCPTimeWaitTimeoutOption(timeWait)),
		&tcpip.TCPReceiveBufferSizeRangeOption{Min: 4 << 10, Default: startBuffer, Max: bufferSize},
		&tcpip.TCPSendBufferSizeRangeOption{Min: 4 << 10, Default: startBuffer, Max: bufferSize},
	}
	for _, o := range options {
		if e := w.stack.SetTransportProtocolOption(tcp.ProtocolNumber, o); e != nil {
			return errors.New(e.String())
		}
	}
	self := tcpip.AddrFrom4(gatewayAddress.As4())
	dns, err := w.serveStack(link, self)
	if err != nil {
		return err
	}
	w.wg.Go(func() { w.serveDNS(dns) })
	return nil
}

// ptr returns a pointer to v.
func ptr[T any](v T) *T { return &v }

// cut closes every open connection.
func (w *Wire) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.conns {
		c.Close()
	}
}

// Close takes the network away and waits for the gateways to let go of their
// connections. The box then has no network, until another wire is attached.
func (w *Wire) Close() error {
	w.mu.Lock()
	if w.closed {
		w.mu.Unlock()
		return nil
	}
	w.closed = true
	w.mu.Unlock()
	w.end()
	w.cut()
	w.stack.Destroy() // removes the device, which stops reading the queue
	done := make(chan struct{})
	go func() { w.wg.Wait(); close(done) }()
	var err error
	select {
	case <-done:
	case <-time.After(closeTimeout):
		err = errors.New("closing wire: a gateway still holds a connection")
	}
	w.drops.flush()
	return errors.Join(err, w.tap.Close())
}

// NameOf returns the name that an event of this room gave an address to.
func NameOf(e cofferdam.Event) (Name, bool) {
	if e.Kind != cofferdam.EventDNS || e.Verdict != cofferdam.Allowed {
		return Name{}, false
	}
	addr, err := netip.ParseAddr(e.Fields[fieldAddress])
	return Name{Host: cofferdam.Host(e.Resource), Addr: addr}, err == nil
}
