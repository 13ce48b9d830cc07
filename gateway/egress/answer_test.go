package egress

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"cofferdam"
	"cofferdam/gateway"
	"cofferdam/gateway/gatewaytest"
	"cofferdam/policy"
)

// play is a host and its client, by what each does at a step; nil: nothing odd.
type play struct {
	status int                       // of the answer; 204 has no body
	trip   func() error              // when the host is asked
	read   func(n int) (bool, error) // the nth read of its body: whether it has a piece, and the error
	head   func()                    // when the client has the head
	write  func(n int) error         // when the client has the nth piece, or does not get it
	flush  error                     // of sending what was written

	reads, writes int
	header        http.Header
}

// RoundTrip implements http.RoundTripper.
func (p *play) RoundTrip(r *http.Request) (*http.Response, error) {
	if p.trip != nil {
		if err := p.trip(); err != nil {
			return nil, err
		}
	}
	a := &http.Response{StatusCode: p.status, Header: http.Header{}, Body: p, ContentLength: -1, Request: r}
	if p.status == http.StatusNoContent {
		a.Body, a.ContentLength = http.NoBody, 0
	}
	return a, nil
}

// Read implements the body of the answer.
func (p *play) Read(b []byte) (n int, err error) {
	p.reads++
	piece, err := p.read(p.reads)
	if piece {
		n = copy(b, "piece")
	}
	return n, err
}

// Close implements the body of the answer.
func (p *play) Close() error { return nil }

// Header implements http.ResponseWriter.
func (p *play) Header() http.Header { return p.header }

// WriteHeader implements http.ResponseWriter.
func (p *play) WriteHeader(int) {
	if p.head != nil {
		p.head()
	}
}

// Write implements http.ResponseWriter.
func (p *play) Write(b []byte) (int, error) {
	if p.writes++; p.write != nil {
		if err := p.write(p.writes); err != nil {
			return 0, err
		}
	}
	return len(b), nil
}

// FlushError is what http.ResponseController asks for.
func (p *play) FlushError() error { return p.flush }

// pieces is a body of n pieces that ends with the last one.
func pieces(n int) func(int) (bool, error) {
	return func(i int) (bool, error) {
		if i == n {
			return true, io.EOF
		}
		return true, nil
	}
}

// apart is a body of one piece whose end comes by itself, after do.
func apart(do func()) func(int) (bool, error) {
	return func(i int) (bool, error) {
		if i == 1 {
			return true, nil
		}
		do()
		return false, io.EOF
	}
}

// TestOutcome: a request went well if all of its answer was passed on before its
// client left, whenever it left after that. One that ends because its client left did
// not, also if the host ends it properly.
func TestOutcome(t *testing.T) {
	broken := errors.New("broken")
	at := func(n int, do func()) func(int) error {
		return func(i int) error {
			if i == n {
				do()
			}
			return nil
		}
	}
	for name, c := range map[string]struct {
		play func(leave, end func()) play // what the client does by leave, and the session by end
		want string
	}{
		"stays":                {func(_, _ func()) play { return play{read: pieces(3)} }, gateway.OK},
		"end by itself":        {func(_, _ func()) play { return play{read: apart(func() {})} }, gateway.OK},
		"leaves with all":      {func(leave, _ func()) play { return play{read: pieces(3), write: at(3, leave)} }, gateway.OK},
		"leaves with less":     {func(leave, _ func()) play { return play{read: pieces(3), write: at(2, leave)} }, gateway.Cut},
		"leaves, then the end": {func(leave, _ func()) play { return play{read: apart(leave)} }, gateway.Cut},
		"empty, leaves with the head": {func(leave, _ func()) play {
			return play{status: http.StatusNoContent, head: leave}
		}, gateway.OK},
		"empty, leaves before": {func(leave, _ func()) play {
			return play{status: http.StatusNoContent, trip: func() error { leave(); return nil }}
		}, gateway.Cut},
		"breaks off": {func(_, _ func()) play {
			return play{read: func(int) (bool, error) { return true, io.ErrUnexpectedEOF }}
		}, gateway.Cut},
		"cannot be written": {func(_, _ func()) play {
			return play{read: pieces(1), write: func(int) error { return broken }}
		}, gateway.Cut},
		"is written and not sent":  {func(_, _ func()) play { return play{read: pieces(1), flush: broken} }, gateway.Cut},
		"the session ends with it": {func(_, end func()) play { return play{read: pieces(1), write: at(1, end)} }, gateway.Cut},
		"no host":                  {func(_, _ func()) play { return play{trip: func() error { return broken }} }, gateway.Failed},
		"leaves before the host answers": {func(leave, _ func()) play {
			return play{trip: func() error { leave(); return broken }}
		}, gateway.Cut},
	} {
		t.Run(name, func(t *testing.T) {
			caller, record, end := gatewaytest.NewCaller(t, policy.Grant{Allow: gatewaytest.Allow(t, "good.test")})
			f, stop := New(Options{}).forwarder(caller, gateway.Target{Host: "good.test", Port: 80}, "http")
			defer stop()
			ctx, leave := context.WithCancel(context.WithValue(caller.Live, http.ServerContextKey, new(http.Server)))
			defer leave()
			p := c.play(leave, end)
			r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil)
			r.Host = "good.test"
			p.header, p.status = http.Header{}, max(p.status, http.StatusOK)
			f.proxy.Transport = &p
			func() {
				defer func() {
					if v := recover(); v != nil && v != http.ErrAbortHandler {
						panic(v)
					}
				}()
				f.ServeHTTP(&p, r)
			}()
			events := record.Find(cofferdam.EventRequest)
			if len(events) != 2 || events[1].Outcome != c.want {
				t.Errorf("%+v, want %q", events, c.want)
			}
		})
	}
}
