package wire

import (
	"net/netip"
	"strings"
	"testing"

	"golang.org/x/net/dns/dnsmessage"

	"cofferdam"
)

func question(t testing.TB, name string, kind dnsmessage.Type, class dnsmessage.Class) []byte {
	t.Helper()
	m := dnsmessage.Message{
		Header:    dnsmessage.Header{ID: 7, RecursionDesired: true},
		Questions: []dnsmessage.Question{{Name: dnsmessage.MustNewName(name), Type: kind, Class: class}},
	}
	b, err := m.Pack()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestRespond(t *testing.T) {
	good := netip.MustParseAddr("198.18.0.2")
	resolve := func(h cofferdam.Host, _ dnsmessage.Type) (netip.Addr, dnsmessage.RCode) {
		switch h {
		case "localhost", "app.localhost":
			t.Errorf("%s is judged", h)
		case "good.test":
			return good, dnsmessage.RCodeSuccess
		case "full.test":
			return netip.Addr{}, dnsmessage.RCodeServerFailure
		}
		return RefusalAddress, dnsmessage.RCodeSuccess
	}
	for _, c := range []struct {
		name   string
		kind   dnsmessage.Type
		class  dnsmessage.Class
		rcode  dnsmessage.RCode
		answer string
	}{
		{"good.test.", dnsmessage.TypeA, dnsmessage.ClassINET, dnsmessage.RCodeSuccess, "198.18.0.2"},
		{"GoOd.TeSt.", dnsmessage.TypeA, dnsmessage.ClassINET, dnsmessage.RCodeSuccess, "198.18.0.2"},
		{"good.test.", dnsmessage.TypeAAAA, dnsmessage.ClassINET, dnsmessage.RCodeSuccess, ""},
		{"good.test.", dnsmessage.TypeMX, dnsmessage.ClassINET, dnsmessage.RCodeSuccess, ""},
		{"good.test.", dnsmessage.Type(65), dnsmessage.ClassINET, dnsmessage.RCodeSuccess, ""}, // HTTPS
		{"good.test.", dnsmessage.TypeALL, dnsmessage.ClassINET, dnsmessage.RCodeSuccess, ""},
		{"good.test.", dnsmessage.TypeA, dnsmessage.ClassCHAOS, dnsmessage.RCodeRefused, ""},
		{"evil.test.", dnsmessage.TypeA, dnsmessage.ClassINET, dnsmessage.RCodeSuccess, "198.18.0.1"},
		{"evil.test.", dnsmessage.TypeTXT, dnsmessage.ClassINET, dnsmessage.RCodeSuccess, ""},
		{"full.test.", dnsmessage.TypeA, dnsmessage.ClassINET, dnsmessage.RCodeServerFailure, ""},
		{"localhost.", dnsmessage.TypeA, dnsmessage.ClassINET, dnsmessage.RCodeSuccess, "127.0.0.1"},
		{"LocalHost.", dnsmessage.TypeAAAA, dnsmessage.ClassINET, dnsmessage.RCodeSuccess, "::1"},
		{"app.localhost.", dnsmessage.TypeAAAA, dnsmessage.ClassINET, dnsmessage.RCodeSuccess, "::1"},
		{"localhost.", dnsmessage.TypeMX, dnsmessage.ClassINET, dnsmessage.RCodeSuccess, ""},
		{"notlocalhost.", dnsmessage.TypeA, dnsmessage.ClassINET, dnsmessage.RCodeSuccess, "198.18.0.1"},
		{"localhost.evil.test.", dnsmessage.TypeAAAA, dnsmessage.ClassINET, dnsmessage.RCodeSuccess, ""},
	} {
		reply, ok := respond(question(t, c.name, c.kind, c.class), resolve)
		var m dnsmessage.Message
		if err := m.Unpack(reply); !ok || err != nil {
			t.Errorf("%s %s: %v, %v", c.name, c.kind, ok, err)
			continue
		}
		answer := ""
		for _, a := range m.Answers {
			switch b := a.Body.(type) {
			case *dnsmessage.AResource:
				answer += netip.AddrFrom4(b.A).String()
			case *dnsmessage.AAAAResource:
				answer += netip.AddrFrom16(b.AAAA).String()
			}
		}
		if m.ID != 7 || !m.Response || m.RCode != c.rcode || answer != c.answer || len(m.Questions) != 1 || m.Questions[0].Name.String() != c.name {
			t.Errorf("%s %s: %+v", c.name, c.kind, m)
		}
	}
}

func TestRespondToOddMessages(t *testing.T) {
	never := func(cofferdam.Host, dnsmessage.Type) (netip.Addr, dnsmessage.RCode) {
		t.Error("resolved")
		return netip.Addr{}, dnsmessage.RCodeSuccess
	}
	pack := func(m dnsmessage.Message) []byte {
		b, err := m.Pack()
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	q := dnsmessage.Question{Name: dnsmessage.MustNewName("good.test."), Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET}
	for name, c := range map[string]struct {
		in    []byte
		ok    bool
		rcode dnsmessage.RCode
	}{
		"empty":         {nil, false, 0},
		"short":         {[]byte{0, 7, 1}, false, 0},
		"an answer":     {pack(dnsmessage.Message{Header: dnsmessage.Header{Response: true}, Questions: []dnsmessage.Question{q}}), false, 0},
		"no question":   {pack(dnsmessage.Message{}), true, dnsmessage.RCodeFormatError},
		"two questions": {pack(dnsmessage.Message{Questions: []dnsmessage.Question{q, q}}), true, dnsmessage.RCodeFormatError},
		"an update":     {pack(dnsmessage.Message{Header: dnsmessage.Header{OpCode: 5}, Questions: []dnsmessage.Question{q}}), true, dnsmessage.RCodeNotImplemented},
		"cut":           {question(t, "good.test.", dnsmessage.TypeA, dnsmessage.ClassINET)[:18], true, dnsmessage.RCodeFormatError},
	} {
		reply, ok := respond(c.in, never)
		if ok != c.ok {
			t.Errorf("%s: answered %v", name, ok)
			continue
		}
		var m dnsmessage.Message
		if ok {
			if err := m.Unpack(reply); err != nil || m.RCode != c.rcode || len(m.Answers) != 0 {
				t.Errorf("%s: %+v, %v", name, m, err)
			}
		}
	}
}

func FuzzRespond(f *testing.F) {
	f.Add(question(f, "good.test.", dnsmessage.TypeA, dnsmessage.ClassINET))
	f.Add(question(f, "_http._tcp.good.test.", dnsmessage.TypeSRV, dnsmessage.ClassINET))
	f.Add([]byte{0, 7, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0xc0, 12, 0, 1, 0, 1})
	f.Fuzz(func(t *testing.T, in []byte) {
		reply, ok := respond(in, func(h cofferdam.Host, _ dnsmessage.Type) (netip.Addr, dnsmessage.RCode) {
			if strings.ToLower(string(h)) != string(h) && isASCII(string(h)) {
				t.Errorf("asked in another case: %q", h)
			}
			return RefusalAddress, dnsmessage.RCodeSuccess
		})
		if !ok {
			return
		}
		var m dnsmessage.Message
		if err := m.Unpack(reply); err != nil {
			t.Fatalf("the answer cannot be read: %v", err)
		}
		if !m.Response || len(reply) > maxQuestion+16 {
			t.Errorf("answer of %d bytes: %+v", len(reply), m)
		}
	})
}

func isASCII(s string) bool {
	return strings.IndexFunc(s, func(r rune) bool { return r > 127 }) < 0
}

func TestServiceName(t *testing.T) {
	for in, want := range map[cofferdam.Host]cofferdam.Host{
		"good.test": "", "_http._tcp.good.test": "good.test", "_dmarc.good.test": "good.test", "_x": "", "a._b.test": "",
	} {
		service, base := serviceName(in)
		if service != (want != "") || service && base != want {
			t.Errorf("%s: %v %s", in, service, base)
		}
	}
}

func TestTable(t *testing.T) {
	tab := newTable()
	seen := map[netip.Addr]bool{RefusalAddress: true}
	for i := range MaxNames {
		a, err := tab.reserve()
		if err != nil {
			t.Fatal(i, err)
		}
		if seen[a] || !namespace.Contains(a) {
			t.Fatalf("%s is taken or outside", a)
		}
		if o, ok := offsetOf(a); !ok || addressAt(o) != a {
			t.Fatalf("%s does not come back", a)
		}
		seen[a] = true
		tab.add(cofferdam.Host(cofferdam.NewID("h")+".test"), a)
	}
	if _, err := tab.reserve(); err == nil {
		t.Error("the table grows beyond its bound")
	}
}

func TestRestore(t *testing.T) {
	n := func(h, a string) Name { return Name{cofferdam.Host(h), netip.MustParseAddr(a)} }
	for name, c := range map[string]struct {
		names []Name
		bad   bool
	}{
		"two":          {[]Name{n("a.test", "198.18.0.2"), n("b.test", "198.19.1.1")}, false},
		"same twice":   {[]Name{n("a.test", "198.18.0.2"), n("a.test", "198.18.0.2")}, false},
		"one address":  {[]Name{n("a.test", "198.18.0.2"), n("b.test", "198.18.0.2")}, true},
		"one name":     {[]Name{n("a.test", "198.18.0.2"), n("a.test", "198.18.0.3")}, true},
		"refusal":      {[]Name{n("a.test", "198.18.0.1")}, true},
		"outside":      {[]Name{n("a.test", "10.0.0.1")}, true},
		"mapped":       {[]Name{n("a.test", "::ffff:198.18.0.2")}, true},
		"not a name":   {[]Name{n("a_b.test", "198.18.0.2")}, true},
		"zero address": {[]Name{{Host: "a.test"}}, true},
	} {
		tab := newTable()
		if err := tab.restore(c.names); (err != nil) != c.bad {
			t.Errorf("%s: %v", name, err)
		}
		if c.bad {
			continue
		}
		a, err := tab.reserve()
		if err != nil {
			t.Fatal(err)
		}
		if h, taken := tab.host(a); taken {
			t.Errorf("%s: %s is given out again, it stands for %s", name, a, h)
		}
	}
}

func TestParseProcNetTCP(t *testing.T) {
	const text = `  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 1 1 0 100 0 0 10 0
   1: 0200630A:C350 020012C6:01BB 01 00000000:00000000 00:00000000 00000000  1000        0 2 1 0 20 4 30 10 -1
   2: 0200630A:C351 020012C6:0050 06 00000000:00000000 00:00000000 00000000  1000        0 3 1 0 20 4 30 10 -1
   3: 0200630A:C352 030012C6:0050 08 00000000:00000000 00:00000000 00000000  1000        0 3 1 0 20 4 30 10 -1
   4: nonsense
   5: 0200630A:ZZZZ 030012C6:0050 01
   6: 0200630A:C353 030012C6 01
`
	got := parseProcNetTCP([]byte(text))
	want := []flow{{50000, netip.MustParseAddrPort("198.18.0.2:443")}, {50002, netip.MustParseAddrPort("198.18.0.3:80")}}
	if len(got) != len(want) || got[0] != want[0] || got[1] != want[1] {
		t.Errorf("got %v, want %v", got, want)
	}
	if n := len(parseProcNetTCP([]byte(strings.Repeat("   1: 0200630A:C350 020012C6:01BB 01\n", 2*maxStale)))); n != maxStale {
		t.Errorf("%d connections of a list without end", n)
	}
}
