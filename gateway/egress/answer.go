package egress

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"sync/atomic"

	"cofferdam/gateway"
)

// An answer is whole when its end had come from the host, and all of it had been
// written, while the client was there. Whether it then leaves does not count.

// ending is the body of an answer that notes its end. The end of one that comes
// after the client has left may come of that: the connection to the host is being
// closed by then, and some hosts say a proper last word to it.
type ending struct {
	io.ReadCloser
	x      *exchange
	client context.Context // ends when the client leaves
}

// Read reads, and notes the end. One that comes once the exchange was ended, because
// a policy ends it perhaps, is none: the box must not take a part for the whole.
func (e *ending) Read(b []byte) (int, error) {
	n, err := e.ReadCloser.Read(b)
	e.note(err)
	if err == io.EOF && e.client.Err() != nil {
		err = context.Cause(e.client)
	}
	return n, err
}

func (e *ending) note(err error) {
	if err == io.EOF && e.client.Err() == nil { // a body of known length says so with its last bytes
		e.x.whole = true
	}
}

// countingWriter counts what a response writes, and both ways of the connection
// that an upgrade takes over.
type countingWriter struct {
	http.ResponseWriter
	n      atomic.Int64
	out    *outlay
	client context.Context // ends when the client leaves
	short  atomic.Bool     // something did not reach it, or was written when it had left
	cut    func()          // ends the exchange
}

// Hijack implements http.Hijacker.
func (c *countingWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(c.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	return &countingConn{Conn: &spentConn{conn, c.out}, received: &c.n, out: c.out}, rw, nil
}

// countingConn counts what is written to a box.
type countingConn struct {
	net.Conn
	received *atomic.Int64
	out      *outlay
}

// Write counts, and writes what may be.
func (c *countingConn) Write(b []byte) (int, error) {
	if err := c.out.receive(int64(len(b))); err != nil {
		return 0, err
	}
	n, err := c.Conn.Write(b)
	c.received.Add(int64(n))
	return n, err
}

// CloseWrite ends the sending side, where the connection can.
func (c *countingConn) CloseWrite() error { return gateway.CloseWrite(c.Conn) }

// WriteHeader begins an answer. The head of one that is not the last is counted
// here; that of the last before anything is written.
func (c *countingWriter) WriteHeader(code int) {
	c.late()
	if code < http.StatusOK && code != http.StatusSwitchingProtocols && c.out.receive(fieldsSize(c.Header())) != nil {
		c.cut() // it comes from the way in, where nobody can be told
		return
	}
	c.ResponseWriter.WriteHeader(code)
}

// Write counts, and writes what may be.
func (c *countingWriter) Write(b []byte) (int, error) {
	c.late()
	if err := c.out.receive(int64(len(b))); err != nil {
		c.lost(err)
		return 0, err
	}
	n, err := c.ResponseWriter.Write(b)
	c.n.Add(int64(n))
	c.lost(err)
	return n, err
}

// FlushError sends what was written. ReverseProxy asks for it after each piece,
// also from a goroutine of its own, and looks at no error.
func (c *countingWriter) FlushError() error {
	err := http.NewResponseController(c.ResponseWriter).Flush()
	c.lost(err)
	return err
}

// late is called before a part of an answer is written: it is of no use to a client
// that has left. One that leaves after the last part has all.
func (c *countingWriter) late() {
	if c.client.Err() != nil {
		c.short.Store(true)
	}
}

// lost is called with what came of writing.
func (c *countingWriter) lost(err error) {
	if err != nil {
		c.short.Store(true)
	}
}

// Unwrap returns the writer below, for http.ResponseController.
func (c *countingWriter) Unwrap() http.ResponseWriter { return c.ResponseWriter }
