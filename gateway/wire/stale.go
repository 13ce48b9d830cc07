package wire

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"net/netip"
	"strconv"
	"strings"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/checksum"
	"gvisor.dev/gvisor/pkg/tcpip/header"
)

// maxStale bounds how many connections ResetStale looks at; the list comes
// from inside the box.
const maxStale = 4096

// States of a connection in /proc/net/tcp that has nothing left to reset.
const (
	stateSynSent  = 0x02 // tries again by itself
	stateTimeWait = 0x06
	stateClose    = 0x07
	stateListen   = 0x0A
)

// ResetStale ends the connections that the box still holds to an earlier
// process. procNetTCP is the box's /proc/net/tcp. Without it, a program that
// only receives would wait for ever: for each connection that this wire does
// not serve, the box is sent an acknowledgement that makes no sense; it asks
// back, and the answer to a connection nobody knows is a reset. It returns how
// many were told.
func (w *Wire) ResetStale(procNetTCP []byte) int {
	told := 0
	for _, f := range parseProcNetTCP(procNetTCP) {
		if w.knows(f) {
			continue
		}
		if err := w.device.write([][]byte{bareACK(f)}); err != nil {
			break // the queue is gone, and with it every connection
		}
		told++
	}
	return told
}

// parseProcNetTCP returns the open connections of the box to the outside. What
// it cannot read it leaves out.
func parseProcNetTCP(text []byte) []flow {
	var out []flow
	lines := bufio.NewScanner(bytes.NewReader(text))
	for lines.Scan() && len(out) < maxStale {
		fields := strings.Fields(lines.Text())
		if len(fields) < 4 {
			continue
		}
		local, ok1 := parseHexAddress(fields[1])
		remote, ok2 := parseHexAddress(fields[2])
		state, err := strconv.ParseUint(fields[3], 16, 8)
		if !ok1 || !ok2 || err != nil || local.Addr() != boxAddress {
			continue
		}
		switch state {
		case stateSynSent, stateTimeWait, stateClose, stateListen:
			continue
		}
		out = append(out, flow{local.Port(), remote})
	}
	return out
}

// parseHexAddress reads an address as /proc/net/tcp has it: 0200630A:C350, the
// address in the byte order of the machine, which is little endian.
func parseHexAddress(s string) (netip.AddrPort, bool) {
	addr, port, ok := strings.Cut(s, ":")
	b, err := hex.DecodeString(addr)
	if !ok || err != nil || len(b) != 4 {
		return netip.AddrPort{}, false
	}
	n, err := strconv.ParseUint(port, 16, 16)
	if err != nil {
		return netip.AddrPort{}, false
	}
	var a [4]byte
	binary.NativeEndian.PutUint32(a[:], binary.BigEndian.Uint32(b))
	return netip.AddrPortFrom(netip.AddrFrom4(a), uint16(n)), true
}

// bareACK is a frame to the box from the far side of f: an acknowledgement
// with sequence number 0.
func bareACK(f flow) []byte {
	const size = header.EthernetMinimumSize + header.IPv4MinimumSize + header.TCPMinimumSize
	frame := make([]byte, size)
	header.Ethernet(frame).Encode(&header.EthernetFields{
		SrcAddr: gatewayMAC, DstAddr: boxMAC, Type: header.IPv4ProtocolNumber,
	})
	src, dst := tcpip.AddrFrom4(f.to.Addr().As4()), tcpip.AddrFrom4(boxAddress.As4())
	ip := header.IPv4(frame[header.EthernetMinimumSize:])
	ip.Encode(&header.IPv4Fields{
		TotalLength: header.IPv4MinimumSize + header.TCPMinimumSize, TTL: 64,
		Protocol: uint8(header.TCPProtocolNumber), SrcAddr: src, DstAddr: dst,
	})
	ip.SetChecksum(^ip.CalculateChecksum())
	segment := header.TCP(ip[header.IPv4MinimumSize:])
	segment.Encode(&header.TCPFields{
		SrcPort: f.to.Port(), DstPort: f.port, Flags: header.TCPFlagAck,
		DataOffset: header.TCPMinimumSize,
	})
	sum := header.PseudoHeaderChecksum(header.TCPProtocolNumber, src, dst, header.TCPMinimumSize)
	segment.SetChecksum(^checksum.Checksum(segment, sum))
	return frame
}
