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

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/header"
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
	device *device
	names  *table
	dns    *resolver
	drops  *drops
	live   context.Context // ends with the wire or the session
	end    context.CancelFunc
	forget func() bool // stops waiting for the end of the session

	wg sync.WaitGroup // everything that runs for this wire

	mu     sync.Mutex
	conns  map[flow]net.Conn // open connections; guarded by mu
	closed bool              // guarded by mu
}

// Attach puts a network behind tap and serves it until Close or the end of the
// session. It owns tap. names are those an earlier process had given out.
func Attach(tap *os.File, caller *gateway.Caller, r Router, names []Name) (*Wire, error) {
	w := &Wire{caller: caller, router: r, names: newTable(), drops: newDrops(caller), conns: map[flow]net.Conn{}}
	var err error
	w.dns = newResolver(w)
	if w.device, err = openDevice(tap, w.drops); err != nil {
		return nil, fmt.Errorf("attaching wire: %w", err)
	}
	if err := w.names.restore(names); err != nil {
		w.device.tap.Close()
		return nil, err
	}
	w.live, w.end = context.WithCancel(caller.Live)
	if err := w.open(); err != nil {
		w.end()
		w.device.tap.Close()
		return nil, fmt.Errorf("attaching wire: %w", err)
	}
	w.wg.Go(func() { w.drops.run(w.live) })
	w.forget = context.AfterFunc(caller.Live, w.cut)
	return w, nil
}

// open builds the stack on the device and starts to read from it.
func (w *Wire) open() error {
	w.stack = stack.New(stack.Options{
		NetworkProtocols:   []stack.NetworkProtocolFactory{ipv4.NewProtocol, arp.NewProtocol},
		TransportProtocols: []stack.TransportProtocolFactory{tcp.NewProtocol, udp.NewProtocol},
	})
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
	dns, err := w.serveStack(self)
	if err != nil {
		w.stack.Destroy()
		return err
	}
	w.wg.Go(func() { w.dns.serveUDP(dns) })
	go w.device.read()
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
	w.forget()
	w.cut()
	done := make(chan struct{})
	go func() { w.wg.Wait(); close(done) }()
	var err error
	select {
	case <-done:
	case <-time.After(closeTimeout):
		err = errors.New("closing wire: a gateway still holds a connection")
	}
	// What is still open is reset while the box can hear it; then nothing may
	// come in any more, because the stack is locked while it is taken down.
	w.stack.Close()
	err = errors.Join(err, w.device.stop())
	w.stack.Wait()
	w.drops.flush()
	return err
}

// NameOf returns the name that an event of this room gave an address to.
func NameOf(e cofferdam.Event) (Name, bool) {
	if e.Kind != cofferdam.EventDNS || e.Verdict != cofferdam.Allowed {
		return Name{}, false
	}
	addr, err := netip.ParseAddr(e.Fields[fieldAddress])
	return Name{Host: cofferdam.Host(e.Resource), Addr: addr}, err == nil
}

// serveStack puts the device into the stack and returns the DNS server's socket.
func (w *Wire) serveStack(self tcpip.Address) (*gonet.UDPConn, error) {
	forwarder := tcp.NewForwarder(w.stack, 0, maxHandshakes, w.accept)
	w.stack.SetTransportProtocolHandler(tcp.ProtocolNumber, forwarder.HandlePacket)
	// The address, the routes and the DNS socket come before the first packet.
	if e := w.stack.CreateNICWithOptions(nic, w.device, stack.NICOptions{Disabled: true}); e != nil {
		return nil, errors.New(e.String())
	}
	if e := w.stack.AddProtocolAddress(nic, tcpip.ProtocolAddress{
		Protocol: ipv4.ProtocolNumber, AddressWithPrefix: self.WithPrefix(),
	}, stack.AddressProperties{}); e != nil {
		return nil, errors.New(e.String())
	}
	// Every address is ours on this wire: the box has no other neighbour.
	if e := w.stack.SetPromiscuousMode(nic, true); e != nil {
		return nil, errors.New(e.String())
	}
	if e := w.stack.SetSpoofing(nic, true); e != nil {
		return nil, errors.New(e.String())
	}
	// The box's place is fixed, so nothing it sends can move it.
	if e := w.stack.AddStaticNeighbor(nic, ipv4.ProtocolNumber, tcpip.AddrFrom4(boxAddress.As4()), boxMAC); e != nil {
		return nil, errors.New(e.String())
	}
	w.stack.SetRouteTable([]tcpip.Route{{Destination: header.IPv4EmptySubnet, NIC: nic}})
	dns, err := gonet.DialUDP(w.stack, &tcpip.FullAddress{NIC: nic, Addr: self, Port: dnsPort}, nil, ipv4.ProtocolNumber)
	if err != nil {
		return nil, err
	}
	if e := w.stack.EnableNIC(nic); e != nil {
		dns.Close()
		return nil, errors.New(e.String())
	}
	return dns, nil
}
