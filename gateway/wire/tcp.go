package wire

import (
	"fmt"
	"net"
	"net/netip"

	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/waiter"

	"cofferdam/gateway"
	"cofferdam/policy"
)

// flow names a connection: the box's port and where it goes.
type flow struct {
	port uint16
	to   netip.AddrPort
}

// accept judges a connection attempt by its destination address alone, before
// the handshake: what leads nowhere is reset, and the box sees "connection
// refused" at once.
func (w *Wire) accept(r *tcp.ForwarderRequest) {
	id := r.ID()
	f := flow{id.RemotePort, netip.AddrPortFrom(netip.AddrFrom4(id.LocalAddress.As4()), id.LocalPort)}
	h, to := w.route(f.to)
	if h == nil || !w.begin(f) {
		r.Complete(true)
		return
	}
	defer w.wg.Done()
	var queue waiter.Queue
	ep, e := r.CreateEndpoint(&queue)
	r.Complete(false)
	if e != nil { // the box gave up
		w.finish(f)
		return
	}
	defer w.finish(f)
	ep.SocketOptions().SetDelayOption(false)
	conn := gonet.NewTCPConn(&queue, ep)
	defer conn.Close()
	if !w.adopt(f, conn) {
		return
	}
	h.Serve(w.caller, conn, to)
}

// route returns the gateway for an address and the target it stands for; nil
// if there is none, which is then noted.
func (w *Wire) route(dst netip.AddrPort) (gateway.Handler, gateway.Target) {
	if dst == netip.AddrPortFrom(gatewayAddress, dnsPort) {
		return w.dns, gateway.Target{Port: dnsPort}
	}
	if dst.Addr() == RefusalAddress {
		if policy.WebPort(dst.Port()) {
			return w.router.Refusal(), gateway.Target{Port: dst.Port()}
		}
		w.drops.note(dropPort, fmt.Sprintf("%d of a refused name", dst.Port()))
		return nil, gateway.Target{}
	}
	host, ok := w.names.host(dst.Addr())
	if !ok {
		w.drops.note(dropAddress, dst.String())
		return nil, gateway.Target{}
	}
	to := gateway.Target{Host: host, Port: dst.Port()}
	h := w.router.Handler(w.caller, to)
	if h == nil {
		w.drops.note(dropPort, fmt.Sprintf("%s:%d", host, dst.Port()))
	}
	return h, to
}

// begin makes room for a connection; false if there is none.
func (w *Wire) begin(f flow) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed || w.live.Err() != nil {
		return false
	}
	if len(w.conns) >= MaxConnections {
		w.drops.note(dropConnections, "")
		return false
	}
	if _, taken := w.conns[f]; taken {
		return false // the former connection of this port is still being closed
	}
	w.conns[f] = opening{}
	w.wg.Add(1)
	return true
}

// adopt puts conn in the place that begin made, unless the wire has ended.
func (w *Wire) adopt(f flow, conn net.Conn) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed || w.live.Err() != nil {
		return false
	}
	w.conns[f] = conn
	return true
}

func (w *Wire) finish(f flow) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.conns, f)
}

// knows says whether the wire serves f.
func (w *Wire) knows(f flow) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, ok := w.conns[f]
	return ok
}

// opening holds the place of a connection whose handshake is not over.
type opening struct{ net.Conn }

// Close does nothing: there is no connection yet, and adopt will refuse it.
func (opening) Close() error { return nil }
