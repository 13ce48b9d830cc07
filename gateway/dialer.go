package gateway

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"time"

	"cofferdam"
)

// Bounds of one dial.
const (
	resolveTimeout = 10 * time.Second
	connectTimeout = 10 * time.Second // for each address
	maxAddresses   = 8                // of a name that are tried; more in the answer are judged but not tried
)

// Resolver turns a name into addresses. *net.Resolver is one.
type Resolver interface {
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// Dialer opens connections from the gateways to the outside. A name is
// resolved once, every address of the answer is judged, and the very address
// that was judged is dialled. Reserved, private, loopback, link-local and
// metadata addresses, and those of this machine itself, are refused whatever
// a policy says, unless an operator listed that very address; one such address
// in an answer refuses the name. The zero Dialer is ready to use.
type Dialer struct {
	// Allow lists addresses an operator permits although they are reserved.
	Allow []netip.Prefix
	// AllowPorts does so for one port of an address.
	AllowPorts []netip.AddrPort
	// Resolver is asked for names; nil: the machine's own, without its search
	// list.
	Resolver Resolver
}

// Dial connects to host (a name, or an address) and returns the address that
// was judged and dialled.
func (d *Dialer) Dial(ctx context.Context, host string, port uint16) (net.Conn, netip.AddrPort, error) {
	addrs, err := d.lookup(ctx, host)
	if err != nil {
		return nil, netip.AddrPort{}, err
	}
	for _, a := range addrs {
		if err := d.judge(host, a, port); err != nil {
			return nil, netip.AddrPort{}, err
		}
	}
	var causes []error
	for _, a := range addrs[:min(len(addrs), maxAddresses)] {
		to := netip.AddrPortFrom(a.Unmap(), port)
		nd := net.Dialer{Timeout: connectTimeout}
		conn, err := nd.DialContext(ctx, "tcp", to.String())
		if err == nil {
			return conn, to, nil
		}
		causes = append(causes, err)
	}
	return nil, netip.AddrPort{}, &cofferdam.Error{
		Op: "gateway.Dial", Kind: cofferdam.Unavailable, Subject: host,
		Reason: fmt.Sprintf("%s does not answer on port %d", host, port),
		Hint:   "the host may be down, or this machine's network may not reach it", Err: errors.Join(causes...),
	}
}

// DialContext is Dial in the shape that net/http and its like ask for.
func (d *Dialer) DialContext(ctx context.Context, network, addr string) (net.Conn, error) {
	if network != "tcp" && network != "tcp4" && network != "tcp6" {
		return nil, fmt.Errorf("dial %s: only tcp leaves", network)
	}
	host, portText, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	port, err := strconv.ParseUint(portText, 10, 16)
	if err != nil {
		return nil, fmt.Errorf("dial %s: the port is not a number", addr)
	}
	conn, _, err := d.Dial(ctx, host, uint16(port))
	return conn, err
}

// Lookup resolves name and says for each address whether it could be dialled:
// nil, or the refusal. doctor asks it about registries.
func (d *Dialer) Lookup(ctx context.Context, name string, port uint16) (map[netip.Addr]error, error) {
	addrs, err := d.lookup(ctx, name)
	if err != nil {
		return nil, err
	}
	out := map[netip.Addr]error{}
	for _, a := range addrs {
		out[a.Unmap()] = d.judge(name, a, port)
	}
	return out, nil
}

func (d *Dialer) lookup(ctx context.Context, host string) ([]netip.Addr, error) {
	if a, err := netip.ParseAddr(host); err == nil {
		return []netip.Addr{a}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, resolveTimeout)
	defer cancel()
	var r Resolver = d.Resolver
	name := host
	if r == nil {
		// The final dot keeps the machine's search list out: the name that was
		// judged is the name that is asked.
		r, name = net.DefaultResolver, host+"."
	}
	addrs, err := r.LookupNetIP(ctx, "ip", name)
	if err != nil && !missing(err) { // once more: one lost packet is no finding
		addrs, err = r.LookupNetIP(ctx, "ip", name)
	}
	if err == nil && len(addrs) == 0 {
		err = errors.New("no addresses")
	}
	if err != nil {
		why := "this machine's resolver did not answer"
		if missing(err) {
			why = "there is no such name"
		}
		return nil, &cofferdam.Error{
			Op: "gateway.Dial", Kind: cofferdam.Unavailable, Subject: host,
			Reason: host + " has no address here: " + why, Hint: "the name may be misspelt, or this machine's resolver may be down", Err: err,
		}
	}
	return addrs, nil
}

// missing says whether the resolver answered that a name does not exist. What
// else went wrong, and where, is no business of a box.
func missing(err error) bool {
	var d *net.DNSError
	return errors.As(err, &d) && d.IsNotFound
}

// judge refuses an address that may not be dialled.
func (d *Dialer) judge(host string, a netip.Addr, port uint16) error {
	why := reservedRange(a)
	if why == "" && ownAddress(a) {
		why = "this machine's own"
	}
	if why == "" || d.listed(a, port) {
		return nil
	}
	return Refuse(Request{Resource: host}, cofferdam.Decision{
		Verdict: cofferdam.Refused, Rule: RuleReserved,
		Reason: fmt.Sprintf("%s leads to %s, an address that is never reached from a box (%s)", host, a, why),
		Hint:   fmt.Sprintf("an operator who means it lists %q under allow_addresses in cofferdam.toml", a.Unmap().WithZone("")),
	})
}

func (d *Dialer) listed(a netip.Addr, port uint16) bool {
	if a.Zone() != "" {
		return false
	}
	a = a.Unmap()
	for _, p := range d.Allow {
		if p.Contains(a) {
			return true
		}
	}
	for _, p := range d.AllowPorts {
		if p.Addr().Unmap() == a && p.Port() == port {
			return true
		}
	}
	return false
}

// ownAddress says whether a is an address of this machine, whose services
// trust what comes from nearby.
func ownAddress(a netip.Addr) bool {
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return true // what cannot be judged is not dialled
	}
	for _, i := range addrs {
		if n, ok := i.(*net.IPNet); ok {
			if own, ok := netip.AddrFromSlice(n.IP); ok && own.Unmap() == a.Unmap() {
				return true
			}
		}
	}
	return false
}
