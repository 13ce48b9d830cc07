// Package proxy is the way out of a box that has no network device of its own:
// an HTTP proxy on loopback, which is the only address that the box can reach.
// It knows the name of every connection because the client says it, and hands
// connections to the same gateways as a wire does.
//
// It resolves nothing, dials nothing and decides nothing itself. The invariant:
// nothing gets to a gateway that did not name the password of this box, so that
// no other program of the machine speaks as it.
package proxy

import (
	"context"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"strconv"
	"strings"
	"sync"
	"time"

	"cofferdam"
	"cofferdam/gateway"
	"cofferdam/policy"
)

// MaxConnections bounds the connections of one box that are open at the same
// time, as a wire does.
const MaxConnections = 256

// user stands before the password in the address of the proxy.
const user = "cofferdam"

// Router says which gateway serves a target; wire.Routes is one.
type Router interface {
	Handler(c *gateway.Caller, to gateway.Target) gateway.Handler
	Refusal() gateway.Handler
}

// Proxy is the proxy of one box.
type Proxy struct {
	Caller   *gateway.Caller
	Router   Router
	Password string // of letters and digits; not empty
}

// URL is what the variables HTTP_PROXY and HTTPS_PROXY of the box say.
func (p *Proxy) URL(addr net.Addr) string {
	return "http://" + user + ":" + p.Password + "@" + addr.String()
}

// Serve serves connections of l until the session ends, and returns when the
// last of them has. It owns l.
func (p *Proxy) Serve(l net.Listener) error {
	if p.Password == "" {
		return errors.Join(errors.New("a proxy without a password serves the whole machine"), l.Close())
	}
	stop := context.AfterFunc(p.Caller.Live, func() { l.Close() })
	defer stop()
	defer l.Close()
	var open sync.WaitGroup
	defer open.Wait()
	slots := make(chan struct{}, MaxConnections)
	for {
		select {
		case slots <- struct{}{}:
		case <-p.Caller.Live.Done():
			return nil
		}
		conn, err := l.Accept()
		if err != nil && p.Caller.Live.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		open.Go(func() {
			defer func() { <-slots }()
			p.serve(conn)
		})
	}
}

// serve serves one connection of a client, which has connections of its own to
// the gateways behind it.
func (p *Proxy) serve(conn net.Conn) {
	transport := gateway.Local(p.Caller, p.Router.Handler)
	defer transport.CloseIdleConnections()
	plain := &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.Out.Host = r.In.Host },
		Transport:     transport,
		FlushInterval: -1,
		ErrorLog:      log.New(io.Discard, "", 0), // the gateway's record tells of it
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			gateway.AnswerRefusal(w, r, err)
		},
	}
	gateway.ServeHTTP(p.Caller, conn, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch to, ok := target(r); {
		case !p.knows(r):
			w.Header().Set("Proxy-Authenticate", `Basic realm="cofferdam"`)
			http.Error(w, "this proxy belongs to one box", http.StatusProxyAuthRequired)
		case !ok:
			gateway.AnswerRefusal(w, r, gateway.Reject(p.Caller.Live, p.Caller, p.request(to), gateway.RuleMalformed,
				"a proxy is asked for http://HOST/ or to CONNECT to HOST:PORT", "use a client that knows HTTP proxies"))
		case r.Method == http.MethodConnect:
			p.connect(w, r, to)
		default:
			if err := p.judge(to); err != nil {
				gateway.AnswerRefusal(w, r, err)
				return
			}
			plain.ServeHTTP(w, r)
		}
	}))
}

// knows says whether a request names the password.
func (p *Proxy) knows(r *http.Request) bool {
	want := "Basic " + base64.StdEncoding.EncodeToString([]byte(user+":"+p.Password))
	return subtle.ConstantTimeCompare([]byte(r.Header.Get("Proxy-Authorization")), []byte(want)) == 1
}

// target is where a request wants to go.
func target(r *http.Request) (gateway.Target, bool) {
	authority, port := r.URL.Host, "80"
	if r.Method == http.MethodConnect {
		authority, port = r.Host, ""
	} else if r.URL.Scheme != "http" {
		return gateway.Target{}, false
	}
	host := authority
	if at := strings.LastIndexByte(authority, ':'); at >= 0 && !strings.HasSuffix(authority, "]") {
		host, port = authority[:at], authority[at+1:]
	}
	n, err := strconv.ParseUint(port, 10, 16)
	to := gateway.Target{Host: cofferdam.ParseHost(host), Port: uint16(n)}
	return to, err == nil && n > 0 && host != ""
}

// request is the act of asking for a name, as on a wire.
func (p *Proxy) request(to gateway.Target) gateway.Request {
	return gateway.Request{
		Source: "proxy", Kind: cofferdam.EventDNS, Resource: gateway.Clip(string(to.Host)),
		Query: policy.Query{Action: policy.Resolve, Host: to.Host},
	}
}

// judge asks policy whether the box may know a name. What may be known is
// judged again, and recorded, by the gateway that serves it.
func (p *Proxy) judge(to gateway.Target) error {
	r := p.request(to)
	if p.Caller.Policy.Decide(r.Query).Verdict != cofferdam.Allowed {
		return gateway.Handle(p.Caller.Live, p.Caller, r, func(context.Context) (gateway.Outcome, error) { return gateway.Outcome{}, nil })
	}
	if p.Router.Handler(p.Caller, to) == nil {
		r.Query = policy.Query{Action: policy.Connect, Host: to.Host, Port: to.Port}
		r.Kind, r.Resource = cofferdam.EventConnect, gateway.Clip(to.String())
		return gateway.Reject(p.Caller.Live, p.Caller, r, "port", "no gateway serves that port of "+gateway.Clip(string(to.Host)), "allow HOST:PORT")
	}
	return nil
}

// connect makes a connection the box's own to a target. Clients of refused
// names are told why inside the TLS that they want, where they show it.
func (p *Proxy) connect(w http.ResponseWriter, r *http.Request, to gateway.Target) {
	err := p.judge(to)
	h := p.Router.Refusal()
	switch {
	case err == nil:
		h = p.Router.Handler(p.Caller, to)
	case cofferdam.KindOf(err) != cofferdam.Denied || !policy.WebPort(to.Port) || policy.CheckHost(to.Host) != nil:
		gateway.AnswerRefusal(w, r, err)
		return
	default:
		to = gateway.Target{Port: to.Port} // as the address of all refused names has it
	}
	conn, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler) // HTTP/1.1 is all that is served, and it can be taken over
	}
	conn.SetWriteDeadline(time.Now().Add(answerTimeout))
	if _, err := io.WriteString(conn, "HTTP/1.1 200 Connection established\r\n\r\n"); err != nil {
		conn.Close()
		return
	}
	conn.SetWriteDeadline(time.Time{})
	h.Serve(p.Caller, &tunnel{Conn: conn, r: buffered}, to)
}

// answerTimeout bounds the sending of a line to a client on this machine.
const answerTimeout = 10 * time.Second

// tunnel is a connection that a request was read from.
type tunnel struct {
	net.Conn
	r io.Reader // what was read too far, then the connection
}

// Read returns what was read too far first.
func (t *tunnel) Read(p []byte) (int, error) { return t.r.Read(p) }

// CloseWrite ends the sending side, where the connection can.
func (t *tunnel) CloseWrite() error { return gateway.CloseWrite(t.Conn) }
