package egress

import (
	"context"
	"io"
	"net"
	"net/netip"
	"strconv"
	"sync"
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
		Source: source, Kind: cofferdam.EventConnect, Resource: to.String(),
		Query: policy.Query{Action: policy.Connect, Host: to.Host, Port: to.Port},
	}
}

// splice lets a TLS connection through unseen, if policy allows it. A client
// that is refused is told why inside the TLS connection it wanted.
func (g *Gateway) splice(c *gateway.Caller, p *peekConn, to gateway.Target) {
	r := connectRequest(to)
	r.Query.Splice, r.Fields = true, map[string]string{"content": "unseen"}
	spends, err := spend(c, int64(len(to.Host)), 0) // the name goes to a resolver outside
	if err != nil {
		reason, hint := gateway.Explain(err)
		err = gateway.Reject(c.Live, c, r, cofferdam.RuleBudget, reason, hint)
	} else {
		r.Fields[cofferdam.FieldEgress] = strconv.FormatInt(spends.ahead, 10)
		r.Carries = spends.opened
		err = gateway.Handle(c.Live, c, r, func(ctx context.Context) (gateway.Outcome, error) {
			up, addr, err := g.dial(ctx, c, to)
			if err != nil {
				return gateway.Outcome{}, err
			}
			return pump(ctx, p, up, addr, spends)
		})
	}
	if err != nil {
		spends.unsent()
		g.oneShot(c, p, err)
	}
}

// pump copies both ways until both sides have said all, or one fails. Each
// side's end of sending is passed on by itself.
func pump(ctx context.Context, box *peekConn, up net.Conn, addr netip.AddrPort, spends *outlay) (gateway.Outcome, error) {
	ends := &onceClosed{ends: [2]net.Conn{box, up}}
	defer ends.close()
	defer context.AfterFunc(ctx, ends.close)()
	type half struct {
		n   int64
		err error
	}
	sent := make(chan half, 1)
	go func() {
		n, err := copyHalf(up, &spentConn{box, spends})
		if err != nil {
			ends.close()
		}
		sent <- half{n, err}
	}()
	received, err := copyHalf(box, &heardConn{up, spends})
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
	fields := map[string]string{
		"address": addr.String(), "sent": strconv.FormatInt(out.n, 10), "received": strconv.FormatInt(received, 10),
	}
	spends.settle(fields)
	return gateway.Outcome{Status: status, Fields: fields}, nil
}

// copyHalf copies one direction and passes its end on.
func copyHalf(dst, src net.Conn) (int64, error) {
	// Without the method sets of the connections, so that the buffer is used.
	n, err := io.CopyBuffer(struct{ io.Writer }{dst}, struct{ io.Reader }{src}, make([]byte, bufferSize))
	if err == nil {
		err = gateway.CloseWrite(dst)
	}
	return n, err
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
