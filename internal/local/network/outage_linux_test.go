package network

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"math/rand"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// sent is a frame of the box with a packet of a protocol to an address.
func sent(protocol byte, to [4]byte, body []byte) []byte {
	frame, inner := fromTo(boxAddress, to, protocol, len(body))
	copy(inner, body)
	return frame
}

func segment(flags byte, seq, ack uint32, data string) []byte {
	s := make([]byte, tcpSize, tcpSize+len(data))
	binary.BigEndian.PutUint16(s, 40000)
	binary.BigEndian.PutUint16(s[2:], 443)
	binary.BigEndian.PutUint32(s[4:], seq)
	binary.BigEndian.PutUint32(s[8:], ack)
	s[12], s[13] = tcpSize/4<<4, flags
	return append(s, data...)
}

var far9 = [4]byte{198, 18, 0, 9}

// TestRefuse: each kind of packet gets the answer of its own protocol that ends the
// wait, and what is none, or an answer itself, gets nothing.
func TestRefuse(t *testing.T) {
	question := append(make([]byte, udpSize), "\x00\x07\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x04good\x04test\x00\x00\x01\x00\x01"...)
	binary.BigEndian.PutUint16(question[2:], portDNS)
	answered := bytes.Clone(question)
	answered[udpSize+2] |= 0x80
	pieces := sent(protoTCP, far9, segment(flagSYN, 1, 0, ""))
	pieces[etherSize+6] = 0x20
	long := sent(protoTCP, far9, segment(flagSYN, 1, 0, ""))
	binary.BigEndian.PutUint16(long[etherSize+2:], 9000)
	foreign := sent(protoTCP, far9, segment(flagSYN, 1, 0, ""))
	foreign[etherSize+15] = 9
	asks := append([]byte{0, 1, 8, 0, 6, 4, 0, 1}, append(boxMAC[:], 10, 99, 0, 2, 0, 0, 0, 0, 0, 0, 10, 99, 0, 1)...)
	arp := func(q []byte) []byte { f, a := ether(typeARP, len(q)); copy(a, q); return f }
	own := bytes.Clone(asks)
	own[27] = 2
	for name, c := range map[string]struct {
		frame []byte
		want  string // from the protocol of IPv4 on, without checksums; "" for no answer
	}{
		"a connection":          {sent(protoTCP, far9, segment(flagSYN, 7, 0, "")), "tcp c612000901bb9c40 00000000 00000008 5014"},
		"one that has data":     {sent(protoTCP, far9, segment(flagSYN, 7, 0, "abc")), "tcp c612000901bb9c40 00000000 0000000b 5014"},
		"one that is open":      {sent(protoTCP, far9, segment(flagACK, 7, 99, "abc")), "tcp c612000901bb9c40 00000063 00000000 5004"},
		"a reset":               {sent(protoTCP, far9, segment(flagRST|flagACK, 7, 99, "")), ""},
		"a name":                {sent(protoUDP, [4]byte{10, 99, 0, 1}, question), "udp 0a6300010035 0007 8182 0001"},
		"an answer":             {sent(protoUDP, far9, answered), "icmp 0303"},
		"udp":                   {sent(protoUDP, far9, make([]byte, udpSize)), "icmp 0303"},
		"another protocol":      {sent(132, far9, []byte("x")), "icmp 0303"},
		"icmp":                  {sent(protoICMP, far9, make([]byte, 8)), ""},
		"to many":               {sent(protoUDP, [4]byte{224, 0, 0, 1}, question), ""},
		"from another":          {foreign, ""},
		"in pieces":             {pieces, ""},
		"longer than it is":     {long, ""},
		"short segment":         {sent(protoTCP, far9, []byte("short")), ""},
		"who has the gateway":   {arp(asks), "arp 0002 020000000001 0a630001 020000000002 0a630002"},
		"who has the box":       {arp(own), ""},
		"no question of arp":    {arp(make([]byte, arpSize)), ""},
		"a short one":           {arp(asks[:20]), ""},
		"no frame":              {[]byte("short"), ""},
		"another kind of frame": {append([]byte("\x02\x00\x00\x00\x00\x01\x02\x00\x00\x00\x00\x02\x86\xdd"), make([]byte, 60)...), ""},
	} {
		if got := shown(refuse(c.frame)); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// shown is what counts of an answer.
func shown(f []byte) string {
	if f == nil {
		return ""
	}
	if !bytes.Equal(f[:6], boxMAC[:]) || !bytes.Equal(f[6:12], gatewayMAC[:]) {
		return "wrong address"
	}
	ip := f[etherSize:]
	part := func(from, to int) string { return hex.EncodeToString(ip[from:to]) }
	if binary.BigEndian.Uint16(f[12:]) == typeARP {
		return strings.Join([]string{"arp", part(6, 8), part(8, 14), part(14, 18), part(18, 24), part(24, 28)}, " ")
	}
	if checksum(ip[:ipSize]) != 0 || int(binary.BigEndian.Uint16(ip[2:])) != len(ip) || [4]byte(ip[16:]) != boxAddress {
		return "wrong header"
	}
	switch ip[9] {
	case protoTCP:
		pseudo := binary.BigEndian.AppendUint16(append(bytes.Clone(ip[12:20]), 0, protoTCP), uint16(len(ip)-ipSize))
		if checksum(append(pseudo, ip[ipSize:]...)) != 0 {
			return "wrong checksum"
		}
		return strings.Join([]string{"tcp", part(12, 16) + part(20, 24), part(24, 28), part(28, 32), part(32, 34)}, " ")
	case protoUDP:
		return strings.Join([]string{"udp", part(12, 16) + part(20, 22), part(28, 30), part(30, 32), part(32, 34)}, " ")
	}
	if checksum(ip[ipSize:]) != 0 {
		return "wrong checksum"
	}
	return "icmp " + part(20, 22)
}

// TestRefuseOddFrames: whatever a box sends is answered, or not, and the answer is
// not much longer than what it sent.
func TestRefuseOddFrames(t *testing.T) {
	r := rand.New(rand.NewSource(1))
	seeds := [][]byte{
		sent(protoTCP, far9, segment(flagSYN, 7, 0, "abc")), sent(protoUDP, [4]byte{10, 99, 0, 1}, make([]byte, 40)), sent(7, far9, make([]byte, 3)),
		append([]byte("\x02\x00\x00\x00\x00\x01\x02\x00\x00\x00\x00\x02\x08\x06"), make([]byte, 28)...),
	}
	for range 200_000 {
		f := bytes.Clone(seeds[r.Intn(len(seeds))])
		for range r.Intn(6) {
			f[r.Intn(len(f))] = byte(r.Intn(256))
		}
		f = f[:r.Intn(len(f)+1)]
		if a := refuse(f); len(a) > len(f)+60 {
			t.Fatalf("%x: %x", f, a)
		}
	}
}

// TestParseConnections: those of the box's own address, of either family; not what
// listens, nor loopback, nor what cannot be read.
func TestParseConnections(t *testing.T) {
	const table = `  sl  local_address rem_address   st tx_queue rx_queue
   0: 00000000:1F90 00000000:0000 0A 00000000:00000000
   1: 0200630A:9C40 090012C6:01BB 01 00000000:00000000
   2: 0100007F:9C41 0100007F:1F90 01 00000000:00000000
   3: 0000000000000000FFFF00000200630A:9C42 0000000000000000FFFF0000090012C6:0050 08 00000000:00000000
   4: 00000000000000000000000001000000:9C43 00000000000000000000000001000000:0050 01 00000000:00000000
   5: 0200630A:zz 090012C6:01BB 01
   6: 0200:9C44 090012C6:01BB 01
nonsense
`
	got := parseConnections(strings.NewReader(table))
	want := []connection{
		{[6]byte{10, 99, 0, 2, 0x9c, 0x40}, [6]byte{198, 18, 0, 9, 1, 0xbb}},
		{[6]byte{10, 99, 0, 2, 0x9c, 0x42}, [6]byte{198, 18, 0, 9, 0, 0x50}},
	}
	if len(got) != len(want) || got[0] != want[0] || got[1] != want[1] {
		t.Errorf("%v", got)
	}
	if n := len(parseConnections(strings.NewReader(strings.Repeat("0: 0200630A:9C40 090012C6:01BB 01\n", maxConnections+9)))); n != maxConnections {
		t.Errorf("%d connections of a long list", n)
	}
	if got := shown(want[0].bareACK()); got != "tcp c612000901bb9c40 00000000 00000000 5010" {
		t.Errorf("a bare acknowledgement: %s", got)
	}
}

// TestOutageEnds: it answers until the device is closed or the run is over.
func TestOutageEnds(t *testing.T) {
	for name, end := range map[string]func(f *os.File){
		"closed": func(f *os.File) { f.Close() }, "over": func(f *os.File) { _ = f.SetReadDeadline(time.Now()) },
	} {
		ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		device, box := os.NewFile(uintptr(ends[0]), "device"), os.NewFile(uintptr(ends[1]), "box")
		defer device.Close()
		defer box.Close()
		done := make(chan struct{})
		go func() { defer close(done); outage(device, 0) }()
		if _, err := box.Write(sent(protoTCP, far9, segment(flagSYN, 7, 0, ""))); err != nil {
			t.Fatal(err)
		}
		answer := make([]byte, 100)
		if n, err := box.Read(answer); err != nil || !strings.HasPrefix(shown(answer[:n]), "tcp ") {
			t.Errorf("%s: %x, %v", name, answer[:max(n, 0)], err)
		}
		end(device)
		<-done
	}
}
