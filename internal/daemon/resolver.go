package daemon

import (
	"context"
	"net"
	"net/netip"

	"cofferdam"
	"cofferdam/gateway"
)

// named looks a name up in the operator's table before it asks DNS.
type named struct {
	hosts map[cofferdam.Host]netip.Addr
	dns   *net.Resolver
}

// LookupNetIP implements gateway.Resolver.
func (n named) LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error) {
	if a, ok := n.hosts[cofferdam.ParseHost(host)]; ok {
		return []netip.Addr{a}, nil
	}
	return n.dns.LookupNetIP(ctx, network, host)
}

// resolver is how gateways turn names into addresses. A trailing dot keeps the
// machine's own search suffixes out.
func (s *server) resolver() gateway.Resolver {
	dns := &net.Resolver{}
	if s.Resolver.IsValid() {
		dns.PreferGo = true
		dns.Dial = func(ctx context.Context, network, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, network, s.Resolver.String())
		}
	}
	return named{s.Hosts, dns}
}
