// Package gateways is what a run of one command reaches: the network behind its
// box and the gateways of package egress, in this process. On Linux the process is
// cofferdam-wire, which Serve is all of.
//
// It holds the key of the authority under which TLS of boxes is read, and no other.
// The invariant is that of every gateway: nothing passes that is not on record.
package gateways

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"

	"cofferdam"
	"cofferdam/gateway"
	"cofferdam/gateway/egress"
	"cofferdam/gateway/proxy"
	"cofferdam/gateway/wire"
	"cofferdam/internal/local/network"
	"cofferdam/policy"
)

// Here are the gateways in this process.
type Here struct{}

// Trust implements network.Gateways.
func (Here) Trust(_ context.Context, keys string, roots []byte) (network.Trust, error) {
	ca, err := egress.OpenCA(keys)
	if err != nil {
		return network.Trust{}, err
	}
	made, err := ca.Trust(roots)
	if err != nil {
		return network.Trust{}, err
	}
	t := network.Trust{Bundle: egress.TrustPath}
	for _, v := range egress.TrustEnv() {
		name, _, _ := strings.Cut(v, "=")
		t.Names = append(t.Names, name)
	}
	for _, f := range made {
		t.Files = append(t.Files, network.File{Path: f.Path, Data: f.Data, Link: f.Link})
	}
	return t, nil
}

// way is the way out of one box.
type way struct {
	caller *gateway.Caller
	routes wire.Routes
	end    context.CancelFunc
	wire   *wire.Wire // nil: never connected
}

// Open implements network.Gateways.
func (Here) Open(ctx context.Context, s network.Setup, record cofferdam.Recorder) (network.Way, error) {
	set, err := policy.New(s.Grant)
	if err != nil {
		return nil, err
	}
	if set.Digest() != s.Policy {
		return nil, errors.New("the policy is not the one on record")
	}
	ca, err := egress.OpenCA(s.Keys)
	if err != nil {
		return nil, err
	}
	dialer := &gateway.Dialer{Resolver: gateway.NewResolver(s.Hosts, s.Resolver)}
	for _, a := range s.Allow {
		if a.Port == 0 {
			dialer.Allow = append(dialer.Allow, netip.PrefixFrom(a.Addr, a.Addr.BitLen()))
		} else {
			dialer.AllowPorts = append(dialer.AllowPorts, netip.AddrPortFrom(a.Addr, a.Port))
		}
	}
	out := egress.New(egress.Options{Dialer: dialer, CA: ca})
	live, end := context.WithCancel(context.WithoutCancel(ctx))
	return &way{routes: wire.Routes{Others: out, Refused: out.Refusal()}, end: end, caller: &gateway.Caller{
		Scope: s.Scope, Session: s.Session, Actor: network.Actor, Phase: gateway.Work,
		Policy: gateway.NewRules(set), Record: record, Live: live,
	}}, nil
}

// Connect implements network.Way.
func (w *way) Connect(b network.Box) (err error) {
	w.wire, err = wire.Attach(b.TAP, w.caller, w.routes, nil)
	return err
}

// Serve implements network.Way.
func (w *way) Serve(l net.Listener, password string) error {
	p := &proxy.Proxy{Password: password, Caller: w.caller, Router: w.routes}
	return p.Serve(l)
}

// End implements network.Way.
func (w *way) End() { w.end() }

// Close implements network.Way.
func (w *way) Close() error {
	w.end() // first, so that what is under way is cut and need not be waited for
	if w.wire == nil {
		return nil
	}
	return w.wire.Close()
}
