package wire_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"

	"golang.org/x/net/dns/dnsmessage"

	"cofferdam"
	"cofferdam/gateway/wire"
)

// TestDataInNamesBelowAWildcard: how much a box can say in names that a wildcard lets
// pass is bounded, in names and in bytes; names of before, and names that are listed by
// themselves, are known all the same.
func TestDataInNamesBelowAWildcard(t *testing.T) {
	for name, label := range map[string]func(int) string{
		"many short": func(i int) string { return fmt.Sprintf("n%d", i) },
		"few long":   func(i int) string { return fmt.Sprintf("%060d", i) },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, grant(t, "*.wild.test", "listed.wild.test", "other.test"))
			w := b.attach(t)
			known, bytes := 0, 0
			for i := range 2 * wire.MaxBelow {
				host := label(i) + ".wild.test"
				if addr := lookup(t, b, host); addr != wire.RefusalAddress.String() {
					known, bytes = known+1, bytes+len(label(i))
				}
			}
			if known > wire.MaxBelow || bytes > wire.MaxBelowBytes || known < wire.MaxBelow && bytes < wire.MaxBelowBytes-60 {
				t.Errorf("%d names with %d bytes are known", known, bytes)
			}
			for _, host := range []string{label(0) + ".wild.test", "listed.wild.test", "other.test"} {
				if lookup(t, b, host) == wire.RefusalAddress.String() {
					t.Errorf("%s is refused", host)
				}
			}
			var reason string
			for _, e := range b.record.Find(cofferdam.EventDNS) {
				if e.Rule == wire.RuleNames {
					reason = e.Reason
				}
			}
			if !strings.Contains(reason, "below wild.test") {
				t.Errorf("the record says %q", reason)
			}
			// A later process counts on.
			if err := w.Close(); err != nil {
				t.Fatal(err)
			}
			var names []wire.Name
			for _, e := range b.record.Find(cofferdam.EventDNS) {
				if n, ok := wire.NameOf(e); ok {
					names = append(names, n)
				}
			}
			b.attach(t, names...)
			if lookup(t, b, label(5000)+".wild.test") != wire.RefusalAddress.String() {
				t.Error("a new wire forgot what the one before had let pass")
			}
		})
	}
}

func lookup(t *testing.T, b *bench, host string) string {
	t.Helper()
	addrs, err := b.box.Lookup(t.Context(), host)
	if err != nil || len(addrs) == 0 {
		t.Fatalf("%s: %v %v", host, addrs, err)
	}
	return addrs[0]
}

// TestFloodOfRefusedNames: of thousands of refused names each is answered, and not
// each is an event.
func TestFloodOfRefusedNames(t *testing.T) {
	b := newBench(t, grant(t, "good.test"))
	w := b.attach(t)
	const asked = 3000
	for i := range asked {
		if lookup(t, b, fmt.Sprintf("h%d.evil.test", i)) != wire.RefusalAddress.String() {
			t.Fatal("a refused name has an address")
		}
	}
	if got, err := b.greeting(t, "good.test", 80); got != "good.test:80" || err != nil {
		t.Errorf("%q %v", got, err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	events := len(b.record.Find(cofferdam.EventDNS))
	counted := 0
	for _, e := range b.record.Find(cofferdam.EventDrop) {
		if strings.HasPrefix(e.Resource, "question") {
			n := 1
			if c := e.Fields["count"]; c != "" {
				fmt.Sscan(c, &n)
			}
			counted += n
		}
	}
	if events >= asked || events-1+counted < asked+1 || counted == 0 { // the one is good.test; a client may ask twice
		t.Errorf("%d events and %d counted, of %d", events, counted, asked)
	}
}

// TestQuestionsOverTCP: the same answers, several to a connection; what is no question
// ends it.
func TestQuestionsOverTCP(t *testing.T) {
	b := newBench(t, grant(t, "good.test"))
	b.attach(t)
	ask := func(conn net.Conn, name string) (m dnsmessage.Message, err error) {
		q := dnsmessage.Message{Header: dnsmessage.Header{ID: 9}, Questions: []dnsmessage.Question{{Name: dnsmessage.MustNewName(name), Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET}}}
		text, err := q.Pack()
		if err != nil {
			return m, err
		}
		for _, part := range [][]byte{binary.BigEndian.AppendUint16(nil, uint16(len(text))), text[:5], text[5:]} { // in pieces
			if _, err := conn.Write(part); err != nil {
				return m, err
			}
		}
		var size [2]byte
		if _, err := io.ReadFull(conn, size[:]); err != nil {
			return m, err
		}
		reply := make([]byte, binary.BigEndian.Uint16(size[:]))
		if _, err := io.ReadFull(conn, reply); err != nil {
			return m, err
		}
		return m, m.Unpack(reply)
	}
	inside := func(do func(net.Conn) error) error {
		return b.box.Inside(func() error {
			conn, err := new(net.Dialer).DialContext(context.Background(), "tcp", "10.99.0.1:53")
			if err != nil {
				return err
			}
			defer conn.Close()
			return do(conn)
		})
	}
	err := inside(func(conn net.Conn) error {
		for name, want := range map[string]bool{"good.test.": true, "GOOD.test.": true, "evil.test.": false} {
			m, err := ask(conn, name)
			if err != nil || m.ID != 9 || len(m.Answers) != 1 || len(m.Questions) != 1 || m.Questions[0].Name.String() != name {
				return fmt.Errorf("%s: %+v %w", name, m, err)
			}
			if a := m.Answers[0].Body.(*dnsmessage.AResource).A; (net.IP(a[:]).String() != wire.RefusalAddress.String()) != want {
				return fmt.Errorf("%s: %v", name, a)
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	for _, bad := range []string{"\x00\x05hello", "\xff\xff", "\x00\x00"} {
		err := inside(func(conn net.Conn) error {
			if _, err := io.WriteString(conn, bad); err != nil {
				return err
			}
			if n, err := conn.Read(make([]byte, 1)); n != 0 || err == nil {
				return fmt.Errorf("%q is answered", bad)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
	if list := b.record.Find(cofferdam.EventDNS); len(list) != 3 { // one allowed, with its outcome, and one refused
		t.Errorf("%d events of two names: %+v", len(list), list)
	}
}
