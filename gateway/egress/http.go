package egress

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"cofferdam"
	"cofferdam/gateway"
	"cofferdam/policy"
)

// Bounds of the way to the far side of an HTTP request.
const (
	answerTimeout     = 15 * time.Minute // until a response begins; some servers work before they answer
	continueTimeout   = time.Second      // for "100 Continue"; then the body is sent anyway
	maxResponseHeader = 1 << 20
)

// serveHTTP serves plain HTTP.
func (g *Gateway) serveHTTP(c *gateway.Caller, p *peekConn, to gateway.Target) {
	g.forward(c, p, to, "http")
}

// forward serves the requests of one connection, each judged by itself, and
// sends them on by scheme.
func (g *Gateway) forward(c *gateway.Caller, conn net.Conn, to gateway.Target, scheme string) {
	h, end := g.forwarder(c, to, scheme)
	defer end()
	gateway.ServeHTTP(c, conn, h)
}

// forwarder returns what judges and forwards the requests of one connection; end
// closes what it has open outside.
func (g *Gateway) forwarder(c *gateway.Caller, to gateway.Target, scheme string) (h *forwarder, end func()) {
	h = &forwarder{gateway: g, caller: c, to: to, scheme: scheme}
	transport := &http.Transport{
		// One connection of the box has one of its own outside: nothing that a
		// server remembers about a connection reaches another box or name.
		MaxIdleConnsPerHost:    1,
		MaxConnsPerHost:        1,
		DialContext:            h.dial,
		DialTLSContext:         h.dialTLS,
		DisableCompression:     true,
		ResponseHeaderTimeout:  answerTimeout,
		ExpectContinueTimeout:  continueTimeout,
		MaxResponseHeaderBytes: maxResponseHeader,
	}
	h.proxy = &httputil.ReverseProxy{
		Rewrite:       h.rewrite,
		Transport:     transport,
		FlushInterval: -1, // at once: streams are answers too
		BufferPool:    buffers{},
		ErrorHandler:  h.failed,
		ErrorLog:      log.New(io.Discard, "", 0), // the record tells of it
		ModifyResponse: func(r *http.Response) error {
			x := exchangeOf(r.Request.Context())
			x.begin(r)
			g.jars.of(c).take(to.Host, r)
			return x.out.receive(fieldsSize(r.Header))
		},
	}
	return h, transport.CloseIdleConnections
}

// forwarder judges and forwards the requests of one connection.
type forwarder struct {
	gateway *Gateway
	caller  *gateway.Caller
	to      gateway.Target
	scheme  string // towards the target
	proxy   *httputil.ReverseProxy

	mu   sync.Mutex
	addr netip.AddrPort // of the connection dialled last; guarded by mu
}

// exchange is what one request comes to.
type exchange struct {
	code     atomic.Int64
	err      error // these three are written inside ServeHTTP of the proxy, by failed and by ending
	gone     bool  // the client had given up before it failed
	whole    bool  // the end of the answer came from the host while the client was there
	out      *outlay
	received *countingWriter
}

type exchangeKey struct{}

func exchangeOf(ctx context.Context) *exchange { return ctx.Value(exchangeKey{}).(*exchange) }

// begin notes the head of an answer, and looks for its end.
func (x *exchange) begin(r *http.Response) {
	x.code.Store(int64(r.StatusCode))
	e := &ending{ReadCloser: r.Body, x: x, client: r.Request.Context()}
	switch {
	case r.StatusCode == http.StatusSwitchingProtocols: // its end is that of the connection
	case r.Body == http.NoBody:
		e.note(io.EOF)
	default:
		r.Body = e
	}
}

// ServeHTTP judges one request and forwards it.
func (f *forwarder) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	req := gateway.Request{
		Source: source, Kind: cofferdam.EventRequest,
		Resource: r.Method + " " + f.to.String() + shownPath(r),
		Query: policy.Query{
			Action: policy.HTTP, Host: f.to.Host, Port: f.to.Port, Method: r.Method, Path: r.URL.EscapedPath(),
		},
		Show: show(r),
	}
	if err := gateway.CheckAuthority(r.Context(), f.caller, r, f.to, req); err != nil {
		w.Header().Set("Connection", "close") // what follows on it has lost its meaning
		gateway.AnswerRefusal(w, r, err)
		return
	}
	var ok bool
	if req.Query, ok = strictest(f.caller, r, req.Query); !ok {
		w.Header().Set("Connection", "close")
		gateway.AnswerRefusal(w, r, gateway.Reject(r.Context(), f.caller, req, gateway.RuleMalformed,
			"it names its method or path anew in more headers than anybody sends", "send the method and the path in the request line"))
		return
	}
	req.Fields = map[string]string{}
	if upgrade := keepUpgrade(r); upgrade != "" {
		req.Fields["upgrade"], req.Fields["content"] = upgrade, "unseen"
		req.Query.Splice = true
	}
	if r.URL.RawQuery != "" {
		req.Fields["query"] = gateway.Clip(r.URL.RawQuery)
	}
	f.gateway.own(f.caller, r, f.to, &req)
	out, err := spend(f.caller, headSize(r), r.ContentLength)
	if err != nil {
		reason, hint := gateway.Explain(err)
		gateway.AnswerRefusal(w, r, gateway.Reject(r.Context(), f.caller, req, cofferdam.RuleBudget, reason, hint))
		return
	}
	req.Carries = out.opened
	req.Fields[cofferdam.FieldEgress] = strconv.FormatInt(out.ahead, 10)
	answered := false
	err = gateway.Handle(r.Context(), f.caller, req, func(ctx context.Context) (gateway.Outcome, error) {
		answered = true
		return f.forward(ctx, w, r, out)
	})
	if !answered { // nothing was sent
		out.unsent()
	}
	switch {
	case err != nil && !answered:
		gateway.AnswerRefusal(w, r, err)
	case errors.Is(err, http.ErrAbortHandler):
		panic(http.ErrAbortHandler) // net/http ends the connection, so that the box sees the answer break off
	}
}

// forward sends the request on and its answer back.
func (f *forwarder) forward(ctx context.Context, w http.ResponseWriter, r *http.Request, out *outlay) (o gateway.Outcome, err error) {
	x := &exchange{out: out}
	inner, cut := context.WithCancel(ctx)
	defer cut()
	x.received = &countingWriter{ResponseWriter: w, out: out, client: ctx, cut: cut}
	r = r.WithContext(context.WithValue(inner, exchangeKey{}, x))
	if r.Body != http.NoBody {
		r.Body = &spent{Reader: r.Body, Closer: r.Body, out: out, pieces: r.ContentLength < 0}
	}
	defer func() {
		o.Fields = x.fields(f)
		switch p := recover(); p {
		case nil:
		case http.ErrAbortHandler: // so ReverseProxy says that an answer broke off
			o.Status, err = gateway.Cut, http.ErrAbortHandler
		default:
			panic(p)
		}
	}()
	f.proxy.ServeHTTP(x.received, r)
	// By now the client may have all that there is, and have closed the connection:
	// that is no reason to say that it was cut.
	switch short := x.received.short.Load(); {
	case x.err != nil && !x.gone:
		o.Status = gateway.Failed
	case x.err == nil && short:
		o.Status = gateway.Cut
	case x.err == nil && x.whole && f.caller.Live.Err() == nil:
		o.Status = gateway.OK
	}
	return o, x.err
}

func (x *exchange) fields(f *forwarder) map[string]string {
	m := map[string]string{
		"sent": strconv.FormatInt(x.out.n.Load(), 10), "received": strconv.FormatInt(x.received.n.Load(), 10),
	}
	x.out.settle(m)
	if code := x.code.Load(); code != 0 {
		m["status"] = strconv.FormatInt(code, 10)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.addr.IsValid() {
		m["address"] = f.addr.String()
	}
	return m
}

// rewrite aims the request at the target, with the same bytes for path and
// query that were judged.
func (f *forwarder) rewrite(p *httputil.ProxyRequest) {
	p.Out.URL.Scheme = f.scheme
	p.Out.URL.Host = f.to.String()
	p.Out.URL.RawQuery = p.In.URL.RawQuery
	p.Out.Host = p.In.Host
	if _, has := p.In.Header["User-Agent"]; !has {
		p.Out.Header["User-Agent"] = nil // none was sent, so none is added
	}
}

// dial ignores the address: the only place this connection leads to is the
// target that was judged.
func (f *forwarder) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(f.caller.Live, cancel)() // net/http lets a dial outlive its request
	conn, addr, err := f.gateway.dial(ctx, f.caller, f.to)
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.addr = addr
	return conn, nil
}

// dialTLS is dial, and TLS with the target's verified certificate over it.
func (f *forwarder) dialTLS(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := f.dial(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	return f.secure(ctx, conn)
}

// failed tells the box that the far side did not answer.
func (f *forwarder) failed(w http.ResponseWriter, r *http.Request, err error) {
	var known *cofferdam.Error
	switch {
	case errors.As(err, &known):
	case wantsClient(err):
		err = handshakeError(r.Context(), f.caller, f.to, err)
	default:
		err = &cofferdam.Error{
			Op: "egress.Forward", Kind: cofferdam.Unavailable, Subject: f.to.String(),
			Reason: fmt.Sprintf("%s broke the connection off", f.to.Host), Hint: "try again", Err: err,
		}
	}
	x := exchangeOf(r.Context())
	x.err, x.gone = err, r.Context().Err() != nil
	x.out.own.Store(true)
	gateway.AnswerRefusal(w, r, err)
}

// keepUpgrade leaves an upgrade to WebSocket in place and takes away every
// other: HTTP/2 would carry requests that nobody judges.
func keepUpgrade(r *http.Request) string {
	if strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
		return "websocket"
	}
	r.Header.Del("Upgrade")
	r.Header.Del("HTTP2-Settings")
	return ""
}

// shownPath is the path for the record, cut to a length that a line can have.
func shownPath(r *http.Request) string { return gateway.Clip(r.URL.EscapedPath()) }

// buffers gives ReverseProxy buffers of the size that netstack likes.
type buffers struct{}

// Get returns a fresh buffer.
func (buffers) Get() []byte { return make([]byte, bufferSize) }

// Put leaves the buffer to the garbage collector.
func (buffers) Put([]byte) {}
