// Package egress is the gateway for everything that is not one of our own
// names. What leaves is HTTP/1.1, judged request by request, because an allowed
// host is a capability: method and path decide what it is good for. TLS is
// terminated under the authority of this installation, which boxes trust, and
// what is inside is served like plain HTTP; towards the host it is TLS again,
// with a verified certificate. Where a rule asks for it (see policy), TLS is
// spliced instead: it passes unseen, and the record says so.
//
// It never dials before it has judged, and it never forwards a byte whose
// meaning it has not settled: the first byte of a connection decides between
// HTTP and TLS, and anything else is refused. Trailers of an answer pass;
// those of a request are dropped, because they come after the judgement. The
// invariant: the name that was asked of DNS is the Host of every request, the
// name in the TLS handshake and the name that is resolved, dialled and verified.
package egress

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"time"

	"cofferdam"
	"cofferdam/gateway"
)

// Rules by which this room refuses, whatever a policy says.
const (
	RuleNoName      = "no-server-name"        // TLS without SNI
	RuleHidden      = "hidden-name"           // TLS with an encrypted client hello
	RuleProtocol    = "protocol"              // neither HTTP nor TLS, or TLS without HTTP/1.1 in it
	RuleAddress     = "refusal-address"       // an allowed name at the address of refused ones
	RuleUntrusted   = "authority-not-trusted" // the client rejects our certificate
	RuleCertificate = "upstream-certificate"  // the host's own certificate does not hold
)

// firstByteTimeout bounds how long a connection may say nothing. Clients open
// connections ahead of need, and give them up without harm.
const firstByteTimeout = 30 * time.Second

const source = "egress"

// Options is what a Gateway needs; all of it.
type Options struct {
	Dialer *gateway.Dialer
	// CA signs the certificates under which TLS is terminated. Boxes trust it.
	CA *CA
	// Roots are the authorities that may vouch for a host outside; nil: those of
	// this machine.
	Roots *x509.CertPool
}

// Gateway serves connections of boxes to names outside.
type Gateway struct {
	dialer *gateway.Dialer
	ca     *CA
	roots  *x509.CertPool
	server *tls.Config // towards boxes
	jars   jars
}

// New returns a gateway. It serves any number of callers.
func New(o Options) *Gateway {
	g := &Gateway{dialer: o.Dialer, ca: o.CA, roots: o.Roots}
	g.server = &tls.Config{
		MinVersion: tls.VersionTLS12,
		NextProtos: []string{alpnHTTP},
		// A session that is resumed proves nothing and needs to prove nothing:
		// who calls is known by the wire, and the name of each hello is checked.
		GetCertificate: func(i *tls.ClientHelloInfo) (*tls.Certificate, error) {
			return g.ca.leaf(cofferdam.ParseHost(i.ServerName))
		},
		DynamicRecordSizingDisabled: true, // no packet is lost between here and a box
	}
	return g
}

// Serve implements gateway.Handler.
func (g *Gateway) Serve(c *gateway.Caller, conn net.Conn, to gateway.Target) {
	g.serve(c, conn, to, g.serveHTTP, g.serveTLS)
}

// serve looks at the first byte and hands the connection to one of two.
func (g *Gateway) serve(c *gateway.Caller, conn net.Conn, to gateway.Target,
	plain, encrypted func(*gateway.Caller, *peekConn, gateway.Target),
) {
	stop := context.AfterFunc(c.Live, func() { conn.Close() })
	defer stop()
	defer conn.Close()
	p := newPeekConn(conn, maxHello)
	first, err := p.first()
	if err != nil {
		return // nothing was asked
	}
	switch {
	case first == recordHandshake:
		encrypted(c, p, to)
	case speaksHTTP(first):
		plain(c, p, to)
	default:
		// The box is reset; what it tried is on record.
		_ = reject(c, connectRequest(to), RuleProtocol, "the connection speaks neither HTTP nor TLS",
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

func newPeekConn(c net.Conn, size int) *peekConn {
	return &peekConn{Conn: c, r: bufio.NewReaderSize(c, size)}
}

// first looks at the first byte.
func (p *peekConn) first() (byte, error) {
	p.SetReadDeadline(time.Now().Add(firstByteTimeout))
	defer p.SetReadDeadline(time.Time{})
	b, err := p.r.Peek(1)
	if err != nil {
		return 0, err
	}
	return b[0], nil
}

// hello looks at the client hello.
func (p *peekConn) hello() (hello, error) {
	p.SetReadDeadline(time.Now().Add(helloTimeout))
	defer p.SetReadDeadline(time.Time{})
	return peekHello(p.r)
}

// speaksHTTP says whether a request of HTTP/1 can begin with b: methods are
// written in capitals.
func speaksHTTP(b byte) bool { return 'A' <= b && b <= 'Z' }

// Read returns what was looked at first, then the rest.
func (p *peekConn) Read(b []byte) (int, error) { return p.r.Read(b) }

// CloseWrite ends the sending side and leaves the receiving side open.
func (p *peekConn) CloseWrite() error { return gateway.CloseWrite(p.Conn) }
