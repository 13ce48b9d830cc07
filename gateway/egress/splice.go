package egress

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strconv"
	"time"

	"cofferdam"
	"cofferdam/gateway"
	"cofferdam/policy"
)

// bufferSize is what each direction of a splice copies at once; netstack's
// segments are 64 KiB.
const bufferSize = 64 << 10

// lingerTimeout is how long a box may keep its end of a spliced connection
// open after the far side has said all.
const lingerTimeout = 10 * time.Minute

func connectRequest(to gateway.Target) gateway.Request {
	return gateway.Request{
		Source: source, Kind: cofferdam.EventConnect, Resource: resource(to),
		Query: policy.Query{Action: policy.Connect, Host: to.Host, Port: to.Port},
	}
}

func resource(to gateway.Target) string {
	return net.JoinHostPort(string(to.Host), strconv.Itoa(int(to.Port)))
}

// splice lets a TLS connection through unseen, once its server name is the
// name that was asked for and policy allows it. A client that is refused is
// told why inside the TLS connection it wanted.
func (g *Gateway) splice(c *gateway.Caller, p *peekConn, to gateway.Target) {
	name, err := checkHello(c, p, to)
	if err == nil {
		r := connectRequest(to)
		r.Fields = map[string]string{"content": "unseen"}
		err = gateway.Handle(c.Live, c, r, func(ctx context.Context) (gateway.Outcome, error) {
			up, addr, err := g.dial(ctx, c, to)
			if err != nil {
				return gateway.Outcome{}, err
			}
			return pump(ctx, p, up, addr), nil
		})
	}
	if err == nil {
		return
	}
	if name == "" {
		alert(p, alertUnrecognized)
		return
	}
	g.oneShot(c, p, name, err)
}

// checkHello compares the server name with the name asked for. It returns the
// name under which the client can be told of a refusal; "" if there is none.
func checkHello(c *gateway.Caller, p *peekConn, to gateway.Target) (cofferdam.Host, error) {
	p.SetReadDeadline(time.Now().Add(helloTimeout))
	h, err := peekHello(p.r)
	p.SetReadDeadline(time.Time{})
	r := connectRequest(to)
	switch {
	case err != nil:
		return "", reject(c, r, RuleProtocol, "the first message is no TLS client hello that can be read", "only HTTP and TLS leave a box")
	case h.name == "":
		return "", reject(c, r, RuleNoName, fmt.Sprintf("the TLS handshake names no server, and %s was asked for", to.Host),
			"use a client that sends the server's name (SNI)")
	case h.name != to.Host:
		r.Fields = map[string]string{"sni": string(h.name)}
		return h.name, reject(c, r, RuleHost, fmt.Sprintf("the TLS handshake names %s, but %s was asked for", h.name, to.Host),
			"connect to the host by its own name")
	case h.ech:
		return h.name, reject(c, r, RuleHidden, "the TLS handshake carries an encrypted hello, which can name another host",
			"turn encrypted client hello (ECH) off in the client")
	}
	return h.name, nil
}

// dial connects to the target. An address that is never reached goes on record
// as a refusal of its own: policy had let the name through.
func (g *Gateway) dial(ctx context.Context, c *gateway.Caller, to gateway.Target) (net.Conn, netip.AddrPort, error) {
	conn, addr, err := g.dialer.Dial(ctx, string(to.Host), to.Port)
	if d, refused := gateway.DecisionOf(err); refused {
		err = gateway.Reject(ctx, c, connectRequest(to), d.Rule, d.Reason, d.Hint)
	}
	return conn, addr, err
}

// pump copies both ways until both sides have said all, or one fails. Each
// side's end of sending is passed on by itself.
func pump(ctx context.Context, box *peekConn, up net.Conn, addr netip.AddrPort) gateway.Outcome {
	ends := &onceClosed{ends: [2]net.Conn{box, up}}
	defer ends.close()
	defer context.AfterFunc(ctx, ends.close)()
	type half struct {
		n   int64
		err error
	}
	sent := make(chan half, 1)
	go func() {
		n, err := copyHalf(up, box)
		if err != nil {
			ends.close()
		}
		sent <- half{n, err}
	}()
	received, err := copyHalf(box, up)
	if err != nil {
		ends.close()
	}
	linger := time.AfterFunc(lingerTimeout, ends.close)
	defer linger.Stop()
	out := <-sent
	status := gateway.OK
	if err != nil || out.err != nil {
		status = gateway.Cut
	}
	return gateway.Outcome{Status: status, Fields: map[string]string{
		"address": addr.String(), "sent": strconv.FormatInt(out.n, 10), "received": strconv.FormatInt(received, 10),
	}}
}

// copyHalf copies one direction and passes its end on.
func copyHalf(dst, src net.Conn) (int64, error) {
	// Without the method sets of the connections, so that the buffer is used.
	n, err := io.CopyBuffer(struct{ io.Writer }{dst}, struct{ io.Reader }{src}, make([]byte, bufferSize))
	if err == nil {
		err = closeWrite(dst)
	}
	return n, err
}
