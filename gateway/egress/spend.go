package egress

import (
	"io"
	"net"
	"net/http"
	"strconv"
	"sync/atomic"

	"cofferdam"
	"cofferdam/budget"
	"cofferdam/gateway"
)

// outlay is what one act sends to a host outside. It is reserved before it goes:
// the head of a request and a body of known length before it is judged, all else
// buffer by buffer, so that nothing passes the limit. Safe for concurrent use.
type outlay struct {
	caller *gateway.Caller
	held   *budget.Reservation
	opened *gateway.Allowance // what people opened for a number of bytes, both ways
	ahead  int64              // reserved before anything was read
	head   int64              // of that, the head of a request
	n      atomic.Int64       // read from the box
	in     atomic.Int64       // of an answer, its head included
	cut    atomic.Bool
	over   atomic.Pointer[string] // opening that was used up by it
	own    atomic.Bool            // what is answered now is ours
}

// spend reserves what is known of an act.
func spend(c *gateway.Caller, head, body int64) (*outlay, error) {
	o := &outlay{caller: c, head: head, ahead: head + max(0, body)}
	o.opened = &gateway.Allowance{Ahead: o.ahead}
	var err error
	o.held, err = c.Budget.Reserve(budget.Amount{Egress: o.ahead})
	return o, err
}

// read counts n bytes more, before they are sent; an Exhausted error means that
// they must not be.
func (o *outlay) read(n int) error {
	if all := o.head + o.n.Add(int64(n)); all > o.ahead {
		if err := o.held.Hold(budget.Amount{Egress: all}); err != nil {
			o.n.Add(-int64(n))
			o.cut.Store(true)
			return err
		}
		if err := o.take(min(int64(n), all-o.ahead)); err != nil {
			o.n.Add(-int64(n))
			return err
		}
	}
	return nil
}

// receive counts n bytes of an answer, before the box gets them; an error means
// that it must not.
func (o *outlay) receive(n int64) error {
	if o.own.Load() {
		return nil
	}
	if err := o.take(n); err != nil {
		return err
	}
	o.in.Add(n)
	return nil
}

// take takes from what people opened.
func (o *outlay) take(n int64) error {
	by := o.opened.Of()
	err := o.opened.Take(o.caller.Live, n)
	if err != nil {
		o.over.Store(&by)
	}
	return err
}

// sent is what went out, heads included.
func (o *outlay) sent() int64 { return o.head + o.n.Load() }

// settle puts what was sent in the place of what was reserved, and says so in the
// fields of an outcome.
func (o *outlay) settle(fields map[string]string) {
	o.held.Settle(budget.Amount{Egress: o.sent()})
	o.opened.Settle(o.sent() + o.in.Load())
	fields[cofferdam.FieldEgress] = strconv.FormatInt(o.sent(), 10)
	if o.cut.Load() {
		fields[cofferdam.FieldCutBy] = cofferdam.RuleBudget
	}
	if by := o.over.Load(); by != nil {
		fields[cofferdam.FieldCutBy] = *by
	}
}

// unsent gives back what was reserved for an act of which nothing was sent.
func (o *outlay) unsent() {
	o.held.Settle(budget.Amount{})
	o.opened.Settle(0)
}

// headSize is what the head of a request takes on its way out, with the end of a
// body that does not say how long it is.
func headSize(r *http.Request) int64 {
	n := int64(len(r.Method)+len(r.URL.RequestURI())+len(r.Host)+len("  HTTP/1.1\r\nHost: \r\n\r\n")) + fieldsSize(r.Header)
	if r.ContentLength != 0 && r.Header.Get("Content-Length") == "" {
		n += int64(len("Transfer-Encoding: chunked\r\n0\r\n\r\n"))
	}
	return n
}

// fieldsSize is what the fields of a head take.
func fieldsSize(h http.Header) int64 {
	n := 0
	for name, values := range h {
		for _, v := range values {
			n += len(name) + len(v) + len(": \r\n")
		}
	}
	return int64(n)
}

// spent is a body, or a side of a connection, whose bytes are counted before they
// are sent on.
type spent struct {
	io.Reader
	io.Closer
	out    *outlay
	pieces bool // each read is sent as a piece that says its length
}

// Read reads and counts; what may not be sent is not given on.
func (s *spent) Read(b []byte) (int, error) {
	n, err := s.Reader.Read(b)
	if n > 0 {
		all := n
		if s.pieces {
			all += len(strconv.FormatInt(int64(n), 16)) + len("\r\n\r\n")
		}
		if err := s.out.read(all); err != nil {
			return 0, err
		}
	}
	return n, err
}

// spentConn is a connection from a box whose bytes are counted.
type spentConn struct {
	net.Conn
	out *outlay
}

// Read reads and counts; what may not be sent is not given on.
func (s *spentConn) Read(b []byte) (int, error) { return (&spent{Reader: s.Conn, out: s.out}).Read(b) }

// CloseWrite ends the sending side, where the connection can.
func (s *spentConn) CloseWrite() error { return gateway.CloseWrite(s.Conn) }

// heardConn is a connection to a host whose bytes are counted before a box gets
// them.
type heardConn struct {
	net.Conn
	out *outlay
}

// Read reads and counts; what the box may not get is not given on.
func (h *heardConn) Read(b []byte) (int, error) {
	n, err := h.Conn.Read(b)
	if n > 0 {
		if err := h.out.receive(int64(n)); err != nil {
			return 0, err
		}
	}
	return n, err
}
