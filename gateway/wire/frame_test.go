package wire_test

import (
	"net"
	"testing"

	"golang.org/x/sys/unix"

	"cofferdam"
)

// A box that writes frames by itself, as nothing in ours may, breaks nothing:
// whatever it sends, the next honest packet is served.
func TestOddFrames(t *testing.T) {
	b := newBench(t, grant(t, "good.test"))
	w := b.attach(t)
	ip := func(change func(h []byte)) []byte {
		h := []byte{0x45, 0, 0, 40, 0, 0, 0, 0, 64, 6, 0, 0, 10, 99, 0, 2, 9, 9, 9, 9}
		h = append(h, make([]byte, 20)...)
		change(h)
		return h
	}
	gw, box := "\x02\x00\x00\x00\x00\x01", "\x02\x00\x00\x00\x00\x02"
	frames := map[string][]byte{
		"another machine":   []byte("\x02\x00\x00\x00\x00\x09" + box + "\x08\x00" + string(ip(func([]byte) {}))),
		"no packet":         []byte(gw + box + "\x08\x00"),
		"short packet":      []byte(gw + box + "\x08\x00\x45\x00"),
		"short arp":         []byte(gw + box + "\x08\x06\x00"),
		"odd type":          []byte(gw + box + "\x88\x08xxxx"),
		"802.3":             []byte(gw + box + "\x00\x04xxxx"),
		"vlan":              []byte(gw + box + "\x81\x00\x00\x01\x08\x00"),
		"ipv6":              append([]byte(gw+box+"\x86\xdd"), make([]byte, 40)...),
		"ipv6 to everyone":  append([]byte("\x33\x33\x00\x00\x00\x01"+box+"\x86\xdd"), make([]byte, 40)...),
		"foreign source":    []byte(gw + box + "\x08\x00" + string(ip(func(h []byte) { h[12] = 8 }))),
		"header too long":   []byte(gw + box + "\x08\x00" + string(ip(func(h []byte) { h[0] = 0x4f }))),
		"header too short":  []byte(gw + box + "\x08\x00" + string(ip(func(h []byte) { h[0] = 0x41 }))),
		"fragment":          []byte(gw + box + "\x08\x00" + string(ip(func(h []byte) { h[6] = 0x20 }))),
		"length of 64k":     []byte(gw + box + "\x08\x00" + string(ip(func(h []byte) { h[2], h[3] = 0xff, 0xff }))),
		"length of nothing": []byte(gw + box + "\x08\x00" + string(ip(func(h []byte) { h[2], h[3] = 0, 0 }))),
		"tcp offset":        []byte(gw + box + "\x08\x00" + string(ip(func(h []byte) { h[32] = 0xf0; h[33] = 2 }))),
		"sctp":              []byte(gw + box + "\x08\x00" + string(ip(func(h []byte) { h[9] = 132 }))),
		"short udp":         []byte(gw + box + "\x08\x00" + string(ip(func(h []byte) { h[9], h[3] = 17, 22 })[:22])),
		"icmp":              []byte(gw + box + "\x08\x00" + string(ip(func(h []byte) { h[9] = 1 }))),
	}
	if err := b.box.Inside(func() error {
		link, err := net.InterfaceByName("eth0")
		if err != nil {
			return err
		}
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		for name, f := range frames {
			if err := unix.Sendto(fd, f, 0, &unix.SockaddrLinklayer{Ifindex: link.Index}); err != nil {
				t.Logf("%s: the kernel does not send it: %v", name, err)
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if got, err := b.greeting(t, "good.test", 80); err != nil || got != "good.test:80" {
		t.Errorf("after odd frames: %q, %v", got, err)
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
	kinds := map[string]bool{}
	for _, e := range b.record.Find(cofferdam.EventDrop) {
		kinds[e.Resource] = true
	}
	for _, want := range []string{
		"malformed source address", "malformed ip options", "malformed fragment", "protocol protocol 132 to 9.9.9.9", "icmp 9.9.9.9", "protocol ethertype 0x8808", "ipv6 ::",
	} {
		if !kinds[want] {
			t.Errorf("not on record: %s; there is %v", want, kinds)
		}
	}
	if b.world.served.Load() != 1 {
		t.Errorf("%d connections were served", b.world.served.Load())
	}
}
