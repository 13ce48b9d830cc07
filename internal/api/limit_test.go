package api_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// pipes is a listener in memory.
type pipes struct {
	conns chan net.Conn
	once  sync.Once
	done  chan struct{}
}

func newPipes() *pipes { return &pipes{conns: make(chan net.Conn), done: make(chan struct{})} }

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error { p.once.Do(func() { close(p.done) }); return nil }

func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe", Net: "unix"} }

func (p *pipes) dial() net.Conn {
	near, far := net.Pipe()
	p.conns <- far
	return near
}

// A caller that sends nothing, headers drop by drop, or a body drop by drop
// does not hold a connection for ever.
func TestSlowCallersAreCut(t *testing.T) {
	for name, c := range map[string]struct {
		send string
		most time.Duration
	}{
		"nothing":      {"", 11 * time.Second},
		"half headers": {"GET /v1/status HTTP/1.1\r\nHost: loc", 11 * time.Second},
		"refused body": {"POST /v1/nope HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{\"te", 62 * time.Second},
		"chunks":       {"POST /v1/tasks HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer " + token + "\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{\"te", 62 * time.Second},
		"half body":    {"POST /v1/tasks HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer " + token + "\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{\"te", 62 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			h, _ := world(t)
			l := newPipes()
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- h.Serve(ctx, l) }()
			conn := l.dial()
			if _, err := io.WriteString(conn, c.send); err != nil {
				t.Fatal(err)
			}
			start := time.Now()
			_, _ = io.Copy(io.Discard, conn) // ends when the server closes
			if d := time.Since(start); d > c.most {
				t.Errorf("%s: held for %s", name, d)
			}
			conn.Close()
			cancel()
			if err := <-done; err != nil {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
}

// A reader that stops reading is cut, and the server goes on.
func TestReaderThatStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, _ := world(t)
		l := newPipes()
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- h.Serve(ctx, l) }()
		conn := l.dial()
		if _, err := io.WriteString(conn, "GET /v1/openapi.json HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer "+token+"\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Minute) // of the test's own clock
		start := time.Now()
		if _, err := io.ReadAll(conn); err != nil || time.Since(start) > 0 {
			t.Errorf("the connection was still open: %v", err)
		}
		conn.Close()
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestHugeHeaders(t *testing.T) {
	h, _ := world(t)
	path, stop := serveUnix(t, h)
	conn, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	go io.WriteString(conn, "GET /v1/status HTTP/1.1\r\nHost: localhost\r\nX: "+strings.Repeat("x", 1<<20)+"\r\n\r\n")
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil || resp.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("%v %v", resp, err)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}

// The bound on connections makes callers wait; it loses none.
func TestManyConnections(t *testing.T) {
	h, _ := world(t)
	path, stop := serveUnix(t, h)
	var wg sync.WaitGroup
	errs := make(chan error, 600)
	for range 600 {
		wg.Go(func() {
			c := unixClient(path)
			defer c.CloseIdleConnections()
			resp, err := c.Get("http://cofferdam/v1/status")
			if err == nil {
				_, err = io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
				if resp.StatusCode != 200 {
					err = errors.New(resp.Status)
				}
			}
			errs <- err
		})
	}
	wg.Wait()
	close(errs)
	for err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}
