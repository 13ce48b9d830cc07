package gateway

import (
	"context"
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"cofferdam"
)

// TestResolverAsksForTheVeryName: the table comes first; what it does not hold is
// asked of the server that was named, as it is, without a search list.
func TestResolverAsksForTheVeryName(t *testing.T) {
	server, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	asked := make(chan string, 16)
	go func() {
		defer close(asked) // who reads has closed the server
		buf := make([]byte, 512)
		for {
			n, from, err := server.ReadFromUDP(buf)
			if err != nil {
				return
			}
			var m dnsmessage.Message
			if m.Unpack(buf[:n]) != nil || len(m.Questions) == 0 {
				continue
			}
			asked <- m.Questions[0].Name.String()
			m.Response, m.RCode, m.Additionals = true, dnsmessage.RCodeNameError, nil
			if out, err := m.Pack(); err == nil {
				server.WriteToUDP(out, from)
			}
		}
	}()
	at := server.LocalAddr().(*net.UDPAddr).AddrPort()
	r := NewResolver(map[cofferdam.Host]netip.Addr{"own.test": netip.MustParseAddr("10.1.2.3")}, at)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if got, err := r.LookupNetIP(ctx, "ip", "OWN.test."); err != nil || len(got) != 1 || got[0].String() != "10.1.2.3" {
		t.Errorf("own.test is %v, %v", got, err)
	}
	if _, err := r.LookupNetIP(ctx, "ip4", "absent.test"); err == nil {
		t.Error("absent.test was found")
	}
	server.Close()
	names := 0
	for name := range asked {
		names++
		if name != "absent.test." {
			t.Errorf("the server was asked for %s", name)
		}
	}
	if names == 0 {
		t.Error("control: the server was never asked")
	}
}
