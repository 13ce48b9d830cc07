package wire

import (
	"fmt"
	"net/netip"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
)

// filter lets through what the wire serves: ARP, and unfragmented IPv4 TCP and
// UDP from the box's own address. All else ends here, before any code that
// would interpret it.
type filter struct{ drops *drops }

// admit says whether the stack may see a packet, and notes it if it leads
// nowhere.
func (f filter) admit(protocol tcpip.NetworkProtocolNumber, packet []byte) bool {
	switch protocol {
	case header.ARPProtocolNumber:
		return true
	case header.IPv4ProtocolNumber:
		kind, to := inspect(packet)
		if kind != "" {
			f.drops.note(kind, to)
		}
		// The stack answers UDP with "port unreachable", so that clients fail
		// at once.
		return kind == "" || kind == dropUDP
	case header.IPv6ProtocolNumber:
		f.drops.note(dropIPv6, ipv6Target(packet))
	default:
		f.drops.note(dropProtocol, fmt.Sprintf("ethertype 0x%04x", uint16(protocol)))
	}
	return false
}

// inspect returns the kind of drop and its target, or "" if the packet is one
// that the wire serves.
func inspect(packet []byte) (kind, to string) {
	if len(packet) < header.IPv4MinimumSize {
		return dropMalformed, "ipv4"
	}
	h := header.IPv4(packet)
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
		if len(packet) < header.IPv4MinimumSize+header.UDPMinimumSize {
			return dropMalformed, "udp"
		}
		to := netip.AddrPortFrom(dst, header.UDP(packet[header.IPv4MinimumSize:]).DestinationPort())
		if to == netip.AddrPortFrom(gatewayAddress, dnsPort) {
			return "", ""
		}
		return dropUDP, to.String()
	case uint8(header.ICMPv4ProtocolNumber):
		return dropICMP, dst.String()
	}
	return dropProtocol, fmt.Sprintf("protocol %d to %s", h.Protocol(), dst)
}

func ipv6Target(packet []byte) string {
	if len(packet) < header.IPv6MinimumSize {
		return "ipv6"
	}
	return netip.AddrFrom16(header.IPv6(packet).DestinationAddress().As16()).String()
}
