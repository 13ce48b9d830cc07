package egress

import (
	"context"
	"net"
	"net/http"

	"cofferdam"
	"cofferdam/gateway"
	"cofferdam/policy"
)

// refusals is a Gateway's face towards names that policy refuses.
type refusals Gateway

// Serve implements gateway.Handler. to has a port and no host: all refused
// names share one address, and the client has to say which it wanted.
func (f *refusals) Serve(c *gateway.Caller, conn net.Conn, to gateway.Target) {
	g := (*Gateway)(f)
	g.serve(c, conn, to, g.refuseHTTP, g.refuseTLS)
}

// refuseHTTP answers every request with the reason why its host is refused.
func (g *Gateway) refuseHTTP(c *gateway.Caller, p *peekConn, to gateway.Target) {
	gateway.ServeHTTP(c, p, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host, _ := gateway.SplitAuthority(r.Host)
		t := gateway.Target{Host: host, Port: to.Port}
		err := refuse(r.Context(), c, gateway.Request{
			Source: source, Kind: cofferdam.EventRequest,
			Resource: r.Method + " " + gateway.Clip(t.String()) + shownPath(r),
			Query: policy.Query{
				Action: policy.HTTP, Host: host, Port: to.Port, Method: r.Method, Path: r.URL.EscapedPath(),
			},
		})
		gateway.AnswerRefusal(w, r, err)
	}))
}

// refuseTLS tells the reason inside the TLS connection.
func (g *Gateway) refuseTLS(c *gateway.Caller, p *peekConn, to gateway.Target) {
	h, err := p.hello()
	if err != nil {
		_ = reject(c, connectRequest(to), RuleProtocol, "the first message is no TLS client hello that can be read", "only HTTP and TLS leave a box")
		alert(p, alertDecode)
		return
	}
	if h.name == "" {
		_ = reject(c, connectRequest(to), RuleNoName, "the TLS handshake names no server", "use a client that sends the server's name (SNI)")
		alert(p, alertUnrecognized)
		return
	}
	g.oneShot(c, p, refuse(c.Live, c, connectRequest(gateway.Target{Host: h.name, Port: to.Port})))
}

// refuse records the refusal of r and returns it. Where policy would allow the
// name, it is refused all the same: the address belongs to no host.
func refuse(ctx context.Context, c *gateway.Caller, r gateway.Request) error {
	if c.Policy.Decide(r.Query).Verdict == cofferdam.Allowed {
		return gateway.Reject(ctx, c, r, RuleAddress,
			"the connection was made to the address of refused names",
			"ask for the host's address again, and use no other; if that is the one you get, this session knows as many names as it may, and a refusal of its name is on record")
	}
	return gateway.Handle(ctx, c, r, func(context.Context) (gateway.Outcome, error) {
		return gateway.Outcome{}, nil // not reached: policy is the same for the whole session
	})
}

// refuseAll answers every request with one refusal.
func refuseAll(err error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Connection", "close")
		gateway.AnswerRefusal(w, r, err)
	})
}
