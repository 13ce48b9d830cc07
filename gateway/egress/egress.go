// Package egress is the gateway for everything that is not one of our own
// names: HTTP, judged request by request, and TLS, let through unseen once the
// name in its first message is the name the box asked for.
//
// It never dials before it has judged, and it never forwards a byte whose
// meaning it has not settled: the first byte of a connection decides between
// the two, and anything else is refused. The invariant: the name that was
// asked of DNS is the Host of every request, the name in the TLS handshake and
// the name that is resolved and dialled.
package egress

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"net"
	"sync"
	"time"

	"cofferdam"
	"cofferdam/gateway"
)

// Rules by which this room refuses, whatever a policy says.
const (
	RuleHost     = "host-mismatch"  // Host or SNI is not the name that was asked for
	RuleNoName   = "no-server-name" // TLS without SNI
	RuleHidden   = "hidden-name"    // TLS with an encrypted client hello
	RuleProxy    = "not-a-proxy"    // CONNECT, or an absolute request target
	RuleProtocol = "protocol"       // neither HTTP nor TLS
	RuleAddress  = "refusal-address"
)

// firstByteTimeout bounds how long a connection may say nothing. Clients open
// connections ahead of need, and give them up without harm.
const firstByteTimeout = 30 * time.Second

const source = "egress"

// Options is what a Gateway needs; all of it.
type Options struct {
	Dialer *gateway.Dialer
	// CA signs the certificates under which TLS clients are told why they are
	// refused. Boxes trust it.
	CA *CA
}

// Gateway serves connections of boxes to names outside.
type Gateway struct {
	dialer *gateway.Dialer
	ca     *CA
}

// New returns a gateway. It serves any number of callers.
func New(o Options) *Gateway { return &Gateway{dialer: o.Dialer, ca: o.CA} }

// Serve implements gateway.Handler.
func (g *Gateway) Serve(c *gateway.Caller, conn net.Conn, to gateway.Target) {
	g.serve(c, conn, to, g.serveHTTP, g.splice)
}

// serve looks at the first byte and hands the connection to one of two.
func (g *Gateway) serve(c *gateway.Caller, conn net.Conn, to gateway.Target,
	plain, encrypted func(*gateway.Caller, *peekConn, gateway.Target),
) {
	stop := context.AfterFunc(c.Live, func() { conn.Close() })
	defer stop()
	defer conn.Close()
	p := newPeekConn(conn)
	conn.SetReadDeadline(time.Now().Add(firstByteTimeout))
	first, err := p.r.Peek(1)
	if err != nil {
		return // nothing was asked
	}
	conn.SetReadDeadline(time.Time{})
	switch {
	case first[0] == recordHandshake:
		encrypted(c, p, to)
	case 'A' <= first[0] && first[0] <= 'Z':
		plain(c, p, to)
	default:
		// The box is reset; what it tried is on record.
		reject(c, connectRequest(to), RuleProtocol, "the connection speaks neither HTTP nor TLS",
			"only HTTP and TLS leave a box")
	}
}

// reject records a refusal by this room and returns it as an error.
func reject(c *gateway.Caller, r gateway.Request, rule, reason, hint string) error {
	return gateway.Reject(c.Live, c, r, rule, reason, hint)
}

// Refusal returns the handler for names that policy refuses: it tells HTTP and
// TLS clients the reason.
func (g *Gateway) Refusal() gateway.Handler { return (*refusals)(g) }

// peekConn is a connection whose first bytes can be looked at without taking
// them.
type peekConn struct {
	net.Conn
	r *bufio.Reader
}

func newPeekConn(c net.Conn) *peekConn {
	return &peekConn{Conn: c, r: bufio.NewReaderSize(c, maxHello)}
}

// Read returns what was looked at first, then the rest.
func (p *peekConn) Read(b []byte) (int, error) { return p.r.Read(b) }

// CloseWrite ends the sending side and leaves the receiving side open.
func (p *peekConn) CloseWrite() error { return closeWrite(p.Conn) }

func closeWrite(c net.Conn) error {
	if w, ok := c.(interface{ CloseWrite() error }); ok {
		return w.CloseWrite()
	}
	return errors.ErrUnsupported
}

// oneShot answers one HTTP request on a TLS connection under a certificate of
// our CA for name: the client sees the reason where it expected the host.
func (g *Gateway) oneShot(c *gateway.Caller, p *peekConn, name cofferdam.Host, cause error) {
	leaf, err := g.ca.leaf(name)
	if err != nil {
		alert(p, alertInternal)
		return
	}
	conn := tls.Server(p, &tls.Config{Certificates: []tls.Certificate{*leaf}, NextProtos: []string{"http/1.1"}})
	ctx, cancel := context.WithTimeout(c.Live, helloTimeout)
	defer cancel()
	if err := conn.HandshakeContext(ctx); err != nil {
		return // the client does not trust us, and is refused all the same
	}
	gateway.ServeHTTP(c, conn, refuseAll(cause))
}

// onceClosed closes both ends of a splice once.
type onceClosed struct {
	sync.Once
	ends [2]net.Conn
}

func (o *onceClosed) close() {
	o.Do(func() {
		for _, e := range o.ends {
			e.Close()
		}
	})
}
