package gateway_test

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"cofferdam"
	"cofferdam/gateway"
)

// answers is a resolver with fixed answers that counts its questions.
type answers struct {
	addrs map[string][]netip.Addr
	asked int
}

func (a *answers) LookupNetIP(_ context.Context, _, host string) ([]netip.Addr, error) {
	a.asked++
	if addrs, ok := a.addrs[host]; ok {
		return addrs, nil
	}
	return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
}

func lead(addrs ...string) *answers {
	r := &answers{addrs: map[string][]netip.Addr{}}
	for _, a := range addrs {
		r.addrs["x.test"] = append(r.addrs["x.test"], netip.MustParseAddr(a))
	}
	return r
}

// EGR-08, with the whole list of addresses that are never reached.
func TestReserved(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	for _, addr := range []string{
		"0.0.0.0", "0.1.2.3", "10.0.0.1", "10.255.255.255", "100.64.0.1", "100.100.100.200", "100.127.255.255", "127.0.0.1", "127.255.255.254",
		"168.63.129.16", "169.254.169.254", "169.254.0.1", "172.16.0.1", "172.31.255.255", "192.0.0.192", "192.0.2.1", "192.88.99.1", "192.168.1.1",
		"198.18.0.2", "198.19.255.255", "198.51.100.7", "203.0.113.9", "224.0.0.1", "239.255.255.255", "240.0.0.1", "255.255.255.255",
		"::", "::1", "::ffff:169.254.169.254", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::169.254.169.254", "::127.0.0.1", "::ffff:0:169.254.169.254",
		"64:ff9b::a9fe:a9fe", "64:ff9b::7f00:1", "64:ff9b::a00:1", "64:ff9b:1::a9fe:a9fe", "64:ff9b:1::808:808",
		"2002:a9fe:a9fe::", "2002:7f00:1::1", "2002:808:808::1", "2001:0:a9fe:a9fe::1", "2001::1", "2001:db8::1", "2001:10::1", "3fff::1",
		"fd00:ec2::254", "fc00::1", "fd12:3456::1", "fe80::1", "fe80::1%eth0", "fec0::1", "ff02::1", "ff0e::1", "100::1", "5f00::1", "4000::1",
		"2606:4700::5efe:a9fe:a9fe", "2606:4700::200:5efe:a9fe:a9fe", "::ffff:127.0.0.1%lo", "2606:4700::1%eth0",
	} {
		r := lead(addr)
		conn, _, err := (&gateway.Dialer{Resolver: r}).Dial(ctx, "x.test", 80)
		d, refused := gateway.DecisionOf(err)
		if err == nil {
			conn.Close()
		}
		if !refused || d.Rule != gateway.RuleReserved || cofferdam.KindOf(err) != cofferdam.Denied || !strings.Contains(d.Hint, "allow_addresses") {
			t.Errorf("%s: %v", addr, err)
		}
		// The same as a literal, which is how a model's address may come.
		if _, _, err := (&gateway.Dialer{}).Dial(ctx, addr, 80); cofferdam.KindOf(err) != cofferdam.Denied {
			t.Errorf("literal %s: %v", addr, err)
		}
		if r.asked != 1 {
			t.Errorf("%s: %d look-ups", addr, r.asked)
		}
	}
}

// The twin: the public internet is not refused. Nothing is dialled.
func TestPublicAddressesAreNotReserved(t *testing.T) {
	for _, addr := range []string{
		"1.1.1.1", "8.8.8.8", "9.255.255.255", "11.0.0.1", "100.63.255.255", "100.128.0.1", "126.255.255.255", "128.0.0.1", "168.63.129.15", "169.253.1.1",
		"172.15.0.1", "172.32.0.1", "191.255.255.255", "192.0.1.1", "192.167.1.1", "192.169.1.1", "198.17.0.1", "198.20.0.1", "223.255.255.255",
		"::ffff:8.8.8.8", "64:ff9b::808:808", "2606:4700:4700::1111", "2001:4860:4860::8888", "2a00:1450::1", "2003::1", "3ffe::1",
	} {
		got, err := (&gateway.Dialer{Resolver: lead(addr)}).Lookup(context.Background(), "x.test", 443)
		if err != nil || got[netip.MustParseAddr(addr).Unmap()] != nil {
			t.Errorf("%s: %v, %v", addr, got, err)
		}
	}
}

func TestOneBadAddressRefusesTheName(t *testing.T) {
	for _, addrs := range [][]string{{"93.184.216.34", "127.0.0.1"}, {"::1", "2606:4700::1"}, {"1.1.1.1", "1.0.0.1", "::ffff:10.0.0.1"}} {
		if _, _, err := (&gateway.Dialer{Resolver: lead(addrs...)}).Dial(context.Background(), "x.test", 80); cofferdam.KindOf(err) != cofferdam.Denied {
			t.Errorf("%v: %v", addrs, err)
		}
	}
}

func TestOwnAddressesAreRefused(t *testing.T) {
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addrs {
		ip, _ := netip.AddrFromSlice(a.(*net.IPNet).IP)
		got, err := (&gateway.Dialer{Resolver: lead(ip.Unmap().String())}).Lookup(context.Background(), "x.test", 443)
		if err != nil || cofferdam.KindOf(got[ip.Unmap()]) != cofferdam.Denied {
			t.Errorf("%s: %v, %v", ip, got, err)
		}
	}
}

func TestListedAddressIsDialled(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	at := l.Addr().(*net.TCPAddr).AddrPort()
	host := netip.PrefixFrom(at.Addr(), 32)
	for _, c := range []struct {
		name string
		d    gateway.Dialer
		ok   bool
	}{
		{"not listed", gateway.Dialer{}, false},
		{"listed", gateway.Dialer{Allow: []netip.Prefix{host}}, true},
		{"another listed", gateway.Dialer{Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.2/32")}}, false},
		{"port listed", gateway.Dialer{AllowPorts: []netip.AddrPort{at}}, true},
		{"another port listed", gateway.Dialer{AllowPorts: []netip.AddrPort{netip.AddrPortFrom(at.Addr(), at.Port()^1)}}, false},
	} {
		for _, form := range []string{"127.0.0.1", "::ffff:127.0.0.1"} {
			c.d.Resolver = lead(form)
			conn, judged, err := c.d.Dial(context.Background(), "x.test", at.Port())
			if (err == nil) != c.ok {
				t.Errorf("%s, %s: %v", c.name, form, err)
			}
			if err != nil {
				continue
			}
			if judged != at || conn.RemoteAddr().(*net.TCPAddr).AddrPort() != at {
				t.Errorf("%s: judged %s, dialled %s", c.name, judged, conn.RemoteAddr())
			}
			conn.Close()
		}
	}
	d := gateway.Dialer{Allow: []netip.Prefix{host}, Resolver: lead("127.0.0.1")}
	conn, err := d.DialContext(context.Background(), "tcp", net.JoinHostPort("x.test", at.String()[len("127.0.0.1:"):]))
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
	for _, bad := range [][2]string{{"udp", "x.test:80"}, {"unix", "/x"}, {"tcp", "x.test"}, {"tcp", "x.test:http"}, {"tcp", "x.test:70000"}} {
		if _, err := d.DialContext(context.Background(), bad[0], bad[1]); err == nil {
			t.Errorf("%v was dialled", bad)
		}
	}
}

func TestDialSaysWhatIsDown(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at := l.Addr().(*net.TCPAddr).AddrPort()
	l.Close()
	d := gateway.Dialer{Allow: []netip.Prefix{netip.PrefixFrom(at.Addr(), 32)}, Resolver: lead("127.0.0.1")}
	_, _, err = d.Dial(context.Background(), "x.test", at.Port())
	if cofferdam.KindOf(err) != cofferdam.Unavailable || !strings.Contains(err.Error(), "does not answer") {
		t.Errorf("a closed port: %v", err)
	}
	_, _, err = d.Dial(context.Background(), "none.test", 80)
	var dns *net.DNSError
	if cofferdam.KindOf(err) != cofferdam.Unavailable || !errors.As(err, &dns) {
		t.Errorf("an unknown name: %v", err)
	}
}
