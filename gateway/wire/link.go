package wire

import (
	"errors"
	"fmt"
	"net/netip"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/link/nested"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
)

// filter lets through what the wire serves: ARP, and unfragmented IPv4 TCP and
// UDP from the box's own address. All else ends here, before any code that
// would interpret it.
type filter struct {
	nested.Endpoint
	drops *drops
}

// DeliverNetworkPacket implements stack.NetworkDispatcher.
func (f *filter) DeliverNetworkPacket(protocol tcpip.NetworkProtocolNumber, pkt *stack.PacketBuffer) {
	switch protocol {
	case header.ARPProtocolNumber:
	case header.IPv4ProtocolNumber:
		if kind, to := f.inspect(pkt); kind != "" {
			f.drops.note(kind, to)
			if kind != dropUDP { // the stack answers UDP with "port unreachable", so that clients fail at once
				return
			}
		}
	case header.IPv6ProtocolNumber:
		f.drops.note(dropIPv6, ipv6Target(pkt))
		return
	default:
		f.drops.note(dropProtocol, fmt.Sprintf("ethertype 0x%04x", uint16(protocol)))
		return
	}
	f.Endpoint.DeliverNetworkPacket(protocol, pkt)
}

// inspect returns the kind of drop and its target, or "" if the packet is one
// that the wire serves.
func (f *filter) inspect(pkt *stack.PacketBuffer) (kind, to string) {
	b, ok := pkt.Data().PullUp(header.IPv4MinimumSize)
	if !ok {
		return dropMalformed, "ipv4"
	}
	h := header.IPv4(b)
	dst := netip.AddrFrom4(h.DestinationAddress().As4())
	switch {
	case netip.AddrFrom4(h.SourceAddress().As4()) != boxAddress:
		return dropMalformed, "source address"
	case h.HeaderLength() != header.IPv4MinimumSize:
		return dropMalformed, "ip options"
	case h.More() || h.FragmentOffset() != 0:
		return dropMalformed, "fragment"
	}
	switch h.Protocol() {
	case uint8(header.TCPProtocolNumber):
		return "", ""
	case uint8(header.UDPProtocolNumber):
		b, ok := pkt.Data().PullUp(header.IPv4MinimumSize + header.UDPMinimumSize)
		if !ok {
			return dropMalformed, "udp"
		}
		to := netip.AddrPortFrom(dst, header.UDP(b[header.IPv4MinimumSize:]).DestinationPort())
		if to == netip.AddrPortFrom(gatewayAddress, dnsPort) {
			return "", ""
		}
		return dropUDP, to.String()
	case uint8(header.ICMPv4ProtocolNumber):
		return dropICMP, dst.String()
	}
	return dropProtocol, fmt.Sprintf("protocol %d to %s", h.Protocol(), dst)
}

func ipv6Target(pkt *stack.PacketBuffer) string {
	b, ok := pkt.Data().PullUp(header.IPv6MinimumSize)
	if !ok {
		return "ipv6"
	}
	return netip.AddrFrom16(header.IPv6(b).DestinationAddress().As16()).String()
}

// serveStack puts the link into the stack and returns the DNS server's socket.
func (w *Wire) serveStack(link stack.LinkEndpoint, self tcpip.Address) (*gonet.UDPConn, error) {
	forwarder := tcp.NewForwarder(w.stack, 0, maxHandshakes, w.accept)
	w.stack.SetTransportProtocolHandler(tcp.ProtocolNumber, forwarder.HandlePacket)
	f := &filter{drops: w.drops}
	f.Init(link, f)
	// The address, the routes and the DNS socket come before the first packet.
	if e := w.stack.CreateNICWithOptions(nic, f, stack.NICOptions{Disabled: true}); e != nil {
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
