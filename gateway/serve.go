package gateway

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"cofferdam"
)

// Bounds of an HTTP connection from a box. Bodies have no time limit of their
// own, because a long upload is honest work; a box can only hold up its own
// connections, and the wire caps how many there are.
const (
	MaxHeaderBytes = 64 << 10         // of one request; net/http adds 4 KiB of slack
	headerTimeout  = 20 * time.Second // for a request's header, once it has begun
	idleTimeout    = 5 * time.Minute  // between two requests
	maxMethod      = 32               // bytes; it stands on record whole. The longest that IANA lists has 17
)

// ServeHTTP serves HTTP/1.1 on conn, one request after the other, until the
// client is done, a bound is passed or the session ends. It owns conn.
func ServeHTTP(c *Caller, conn net.Conn, h http.Handler) {
	if n, ok := conn.(*Named); ok {
		h = n.only(c, h)
	}
	unreadable := func(why string) error {
		return Reject(c.Live, c, Request{Source: "gateway", Kind: cofferdam.EventRequest, Resource: "a request that cannot be read"},
			RuleMalformed, "it is not the HTTP that a gateway reads ("+why+")", "send one request at a time, as RFC 9112 says")
	}
	l := &oneConn{conn: conn, closed: make(chan struct{}), refused: func(status string) {
		_ = unreadable("status " + status) // the connection is answered and closed whatever becomes of the record
	}}
	srv := &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			l.answering.Store(true)
			if len(r.Method) > maxMethod {
				w.Header().Set("Connection", "close")
				AnswerRefusal(w, r, unreadable("a method of "+strconv.Itoa(len(r.Method))+" bytes"))
				return
			}
			if c.Live.Err() == nil {
				h.ServeHTTP(w, r)
			}
			if c.Live.Err() != nil {
				panic(http.ErrAbortHandler) // what the session's end cut short must not look whole
			}
		}),
		ConnState: func(_ net.Conn, s http.ConnState) {
			if s == http.StateIdle { // the answer is out
				l.answering.Store(false)
			}
		},
		ReadHeaderTimeout: headerTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    MaxHeaderBytes,
		BaseContext:       func(net.Listener) context.Context { return c.Live },
		ErrorLog:          log.New(io.Discard, "", 0), // what a box sends is no news for the operator
	}
	stop := context.AfterFunc(c.Live, func() { conn.Close() })
	defer stop()
	_ = srv.Serve(l) // returns when oneConn has no second connection to give, after the first was closed
	srv.Close()
}

// oneConn is a listener with a single connection. Its second Accept waits for
// that connection's end and then says that there are no more.
type oneConn struct {
	conn   net.Conn
	closed chan struct{}
	once   sync.Once
	given  bool // only touched by Accept, which one goroutine calls

	// answering is set while a handler's answer is under way. What is written
	// otherwise is net/http's own answer to what it could not read; refused is
	// told its status, so that such a request is on record too.
	answering atomic.Bool
	refused   func(status string)
}

// Accept returns the connection once.
func (l *oneConn) Accept() (net.Conn, error) {
	if !l.given {
		l.given = true
		return &closeNotifier{Conn: l.conn, l: l}, nil
	}
	<-l.closed
	return nil, errors.ErrUnsupported
}

// Close does nothing: the connection belongs to the server.
func (l *oneConn) Close() error { return nil }

// Addr returns the local address of the connection.
func (l *oneConn) Addr() net.Addr { return l.conn.LocalAddr() }

// closeNotifier tells its listener when the connection is closed, by the
// server or by a handler that took it over.
type closeNotifier struct {
	net.Conn
	l *oneConn
}

// Close closes the connection and ends the listener.
func (c *closeNotifier) Close() error {
	err := c.Conn.Close()
	c.l.once.Do(func() { close(c.l.closed) })
	return err
}

// Write sends p, and notices an answer that no handler gave.
func (c *closeNotifier) Write(p []byte) (int, error) {
	const start = "HTTP/1.1 "
	if !c.l.answering.Load() && bytes.HasPrefix(p, []byte(start)) && len(p) >= len(start)+3 {
		c.l.refused(string(p[len(start) : len(start)+3]))
	}
	return c.Conn.Write(p)
}

// CloseWrite ends the sending side, where the connection can.
func (c *closeNotifier) CloseWrite() error { return CloseWrite(c.Conn) }

// CloseWrite ends the sending side of a connection that has two.
func CloseWrite(c net.Conn) error {
	if w, ok := c.(interface{ CloseWrite() error }); ok {
		return w.CloseWrite()
	}
	return errors.ErrUnsupported
}
