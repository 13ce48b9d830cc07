package network

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"io"
	"net/netip"
	"os"
	"strconv"
	"strings"
)

// An outage is what a box hears once nobody serves its network any more: that so
// is, and at once. Otherwise a resolver would wait for its answers, and a program
// that only receives for ever. Nothing is passed on: there is nobody to pass it to.
//
// Frames come from a command that may be hostile. Each is looked at alone, is
// answered with less than it is long, or a little more, and nothing is remembered.

// Sizes and types of Ethernet, ARP, IPv4, ICMP, UDP, TCP and DNS.
const (
	etherSize, arpSize, ipSize, icmpSize, udpSize, tcpSize, dnsSize = 14, 28, 20, 8, 8, 20, 12

	typeIPv4, typeARP     = 0x0800, 0x0806
	protoICMP, protoTCP   = 1, 6
	protoUDP, portDNS     = 17, 53
	flagFIN, flagSYN      = 1, 2
	flagRST, flagACK      = 4, 16
	unreachable, portCode = 3, 3 // of ICMP
	serverFailure         = 2    // of DNS
)

// maxFrameSize is that of a frame of the device: its MTU, and the header.
const maxFrameSize = etherSize + 65520

// boxAddress is that of every box, and boxMAC and gatewayMAC are the two ends of its
// network; package netns has them.
var (
	boxAddress = [4]byte{10, 99, 0, 2}
	boxMAC     = [6]byte{2, 0, 0, 0, 0, 2}
	gatewayMAC = [6]byte{2, 0, 0, 0, 0, 1}
)

// outage answers every frame of a device until it ends, or its deadline. What pid's
// network had open is reset: each connection is sent an acknowledgement that makes
// no sense, the kernel asks back, and the answer to that is a reset.
func outage(device io.ReadWriter, pid int) {
	for _, c := range connections(pid) {
		_, _ = device.Write(c.bareACK()) // without a device there is no connection either
	}
	frame := make([]byte, maxFrameSize)
	for {
		n, err := device.Read(frame)
		if err != nil {
			return
		}
		if answer := refuse(frame[:n]); answer != nil {
			_, _ = device.Write(answer) // it is asked again, or the device is gone
		}
	}
}

// refuse returns the answer to a frame; nil for none.
func refuse(frame []byte) []byte {
	if len(frame) < etherSize {
		return nil
	}
	body := frame[etherSize:]
	switch binary.BigEndian.Uint16(frame[12:]) {
	case typeARP:
		return answerARP(body)
	case typeIPv4:
		return refuseIP(body)
	}
	return nil
}

// ether begins a frame to the box.
func ether(kind uint16, size int) (frame, body []byte) {
	frame = make([]byte, etherSize+size)
	copy(frame, boxMAC[:])
	copy(frame[6:], gatewayMAC[:])
	binary.BigEndian.PutUint16(frame[12:], kind)
	return frame, frame[etherSize:]
}

// answerARP says that whoever is asked for is here, so that the kernel of the box
// has whom to send to.
func answerARP(q []byte) []byte {
	if len(q) < arpSize || !bytes.Equal(q[:8], []byte{0, 1, 8, 0, 6, 4, 0, 1}) || [4]byte(q[24:]) == boxAddress {
		return nil
	}
	frame, a := ether(typeARP, arpSize)
	copy(a, q[:7])
	a[7] = 2 // an answer
	copy(a[8:], gatewayMAC[:])
	copy(a[14:], q[24:28])
	copy(a[18:], q[8:18])
	return frame
}

// packet is the header of an IPv4 packet whose length is right, and what it carries.
type packet struct{ header, body []byte }

func parsePacket(p []byte) (packet, bool) {
	if len(p) < ipSize || p[0]>>4 != 4 {
		return packet{}, false
	}
	head, size := int(p[0]&15)*4, int(binary.BigEndian.Uint16(p[2:]))
	// The rest of a packet in pieces says nothing by itself.
	if head < ipSize || size < head || size > len(p) || binary.BigEndian.Uint16(p[6:])&0x3fff != 0 {
		return packet{}, false
	}
	return packet{p[:head], p[head:size]}, [4]byte(p[12:]) == boxAddress && p[16] < 224
}

// answer begins an answer to p, from where p was sent to.
func (p packet) answer(protocol byte, size int) (frame, body []byte) {
	return fromTo([4]byte(p.header[16:]), boxAddress, protocol, size)
}

// fromTo begins a packet.
func fromTo(from, to [4]byte, protocol byte, size int) (frame, body []byte) {
	frame, ip := ether(typeIPv4, ipSize+size)
	ip[0], ip[8], ip[9] = 0x45, 64, protocol
	binary.BigEndian.PutUint16(ip[2:], uint16(ipSize+size))
	copy(ip[12:], from[:])
	copy(ip[16:], to[:])
	binary.BigEndian.PutUint16(ip[10:], checksum(ip[:ipSize]))
	return frame, ip[ipSize:]
}

// refuseIP refuses a packet in its own protocol.
func refuseIP(p []byte) []byte {
	q, ok := parsePacket(p)
	if !ok {
		return nil
	}
	switch q.header[9] {
	case protoTCP:
		return q.reset()
	case protoUDP:
		if a := q.noName(); a != nil {
			return a
		}
		return q.unreachable()
	case protoICMP:
		return nil // no error is answered by one, and nothing else waits long
	}
	return q.unreachable()
}

// reset ends a connection, or one that is about to be.
func (p packet) reset() []byte {
	s := p.body
	if len(s) < tcpSize || s[13]&flagRST != 0 {
		return nil
	}
	frame, a := p.answer(protoTCP, tcpSize)
	copy(a, s[2:4])
	copy(a[2:], s[:2])
	a[12], a[13] = tcpSize/4<<4, flagRST
	if s[13]&flagACK != 0 {
		copy(a[4:], s[8:12])
	} else {
		a[13] |= flagACK
		next := binary.BigEndian.Uint32(s[4:]) + uint32(max(0, len(s)-int(s[12]>>4)*4))
		if s[13]&(flagSYN|flagFIN) != 0 {
			next++
		}
		binary.BigEndian.PutUint32(a[8:], next)
	}
	sealTCP(frame)
	return frame
}

// noName answers a question for a name: nobody can be asked now. nil: it is none.
func (p packet) noName() []byte {
	u := p.body
	if len(u) < udpSize+dnsSize || binary.BigEndian.Uint16(u[2:]) != portDNS || u[udpSize+2]&0x80 != 0 {
		return nil
	}
	frame, a := p.answer(protoUDP, len(u))
	copy(a, u[2:4])
	copy(a[2:], u[:2])
	binary.BigEndian.PutUint16(a[4:], uint16(len(u))) // without a checksum, which IPv4 allows
	copy(a[udpSize:], u[udpSize:])
	a[udpSize+2] |= 0x80 // an answer
	a[udpSize+3] = 0x80 | serverFailure
	return frame
}

// unreachable says that nobody listens there.
func (p packet) unreachable() []byte {
	quote := p.body[:min(len(p.body), 8)]
	frame, a := p.answer(protoICMP, icmpSize+len(p.header)+len(quote))
	a[0], a[1] = unreachable, portCode
	copy(a[icmpSize:], p.header)
	copy(a[icmpSize+len(p.header):], quote)
	binary.BigEndian.PutUint16(a[2:], checksum(a))
	return frame
}

// sealTCP puts the checksum into a frame with a segment.
func sealTCP(frame []byte) {
	ip, s := frame[etherSize:], frame[etherSize+ipSize:]
	pseudo := append([]byte(nil), ip[12:20]...)
	pseudo = binary.BigEndian.AppendUint16(append(pseudo, 0, protoTCP), uint16(len(s)))
	binary.BigEndian.PutUint16(s[16:], checksum(append(pseudo, s...)))
}

// checksum is that of the Internet (RFC 1071).
func checksum(b []byte) uint16 {
	var sum uint32
	for len(b) > 1 {
		sum += uint32(binary.BigEndian.Uint16(b))
		b = b[2:]
	}
	if len(b) == 1 {
		sum += uint32(b[0]) << 8
	}
	for sum > 0xffff {
		sum = sum&0xffff + sum>>16
	}
	return ^uint16(sum)
}

// connection is one of the box's, as its kernel has it.
type connection struct {
	local, remote [6]byte // address and port
}

// Bounds of the list of connections, which comes from inside the box.
const (
	maxConnections = 4096
	maxTable       = 4 << 20 // bytes; a line has 150
	stateListen    = "0A"
)

// connections are those that the network of pid has open. Those of loopback are not
// of this network.
func connections(pid int) (list []connection) {
	for _, table := range []string{"tcp", "tcp6"} { // a socket of either family may be of an IPv4 connection
		f, err := os.Open("/proc/" + strconv.Itoa(pid) + "/net/" + table)
		if err != nil {
			continue // without IPv6, or the box has ended
		}
		list = append(list, parseConnections(io.LimitReader(f, maxTable))...)
		f.Close()
	}
	return list[:min(len(list), maxConnections)]
}

// parseConnections reads what is in /proc/net/tcp: "0: 0200630A:C350 01006300A:01BB 01 …".
func parseConnections(r io.Reader) (list []connection) {
	lines := bufio.NewScanner(r)
	for lines.Scan() && len(list) < maxConnections {
		fields := strings.Fields(lines.Text())
		if len(fields) < 4 || fields[3] == stateListen {
			continue
		}
		local, ok := parseEnd(fields[1])
		remote, too := parseEnd(fields[2])
		if ok && too && [4]byte(local[:]) == boxAddress {
			list = append(list, connection{local, remote})
		}
	}
	return list
}

// parseEnd reads an address, in words of the byte order of the machine, and a port.
func parseEnd(s string) (end [6]byte, ok bool) {
	text, port, _ := strings.Cut(s, ":")
	a, err := hex.DecodeString(text)
	p, bad := strconv.ParseUint(port, 16, 16)
	if err != nil || bad != nil || len(a)%4 != 0 {
		return end, false
	}
	for i := 0; i < len(a); i += 4 {
		binary.NativeEndian.PutUint32(a[i:], binary.BigEndian.Uint32(a[i:]))
	}
	addr, ok := netip.AddrFromSlice(a)
	if addr = addr.Unmap(); !ok || !addr.Is4() {
		return end, false
	}
	*(*[4]byte)(end[:]) = addr.As4()
	binary.BigEndian.PutUint16(end[4:], uint16(p))
	return end, true
}

// bareACK is an acknowledgement to the box with sequence number 0.
func (c connection) bareACK() []byte {
	frame, s := fromTo([4]byte(c.remote[:]), boxAddress, protoTCP, tcpSize)
	copy(s, c.remote[4:])
	copy(s[2:], c.local[4:])
	s[12], s[13] = tcpSize/4<<4, flagACK
	sealTCP(frame)
	return frame
}
