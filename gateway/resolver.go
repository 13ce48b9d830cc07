package gateway

import (
	"context"
	"net"
	"net/netip"
	"strings"

	"cofferdam"
)

// named looks a name up in the operator's table before it asks DNS.
type named struct {
	hosts map[cofferdam.Host]netip.Addr
	dns   *net.Resolver
}

// LookupNetIP implements Resolver.
func (n named) LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error) {
	if a, ok := n.hosts[cofferdam.ParseHost(host)]; ok {
		return []netip.Addr{a}, nil
	}
	// The final dot keeps the machine's search list out: the name that was
	// judged is the name that is asked.
	return n.dns.LookupNetIP(ctx, network, strings.TrimSuffix(host, ".")+".")
}

// NewResolver returns how gateways turn names into addresses: by hosts, which
// stands before everything else, then by the DNS server at server, or, if that
// is not valid, by the machine's own resolver. It uses no search list.
func NewResolver(hosts map[cofferdam.Host]netip.Addr, server netip.AddrPort) Resolver {
	dns := &net.Resolver{}
	if server.IsValid() {
		dns.PreferGo = true
		dns.Dial = func(ctx context.Context, network, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, network, server.String())
		}
	}
	return named{hosts, dns}
}
