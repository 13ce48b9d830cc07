package egress_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"cofferdam"
	"cofferdam/gateway"
	"cofferdam/policy"
)

// count is a desk that only counts the bytes of one opening.
type count struct {
	gateway.Asker
	mu    sync.Mutex
	taken int64
	ended []string
}

func (c *count) TakeBytes(_ context.Context, _ cofferdam.QuestionID, n, most int64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.taken+n > most {
		return &cofferdam.Error{Kind: cofferdam.Conflict, Reason: "used up"}
	}
	c.taken += n
	return nil
}

func (c *count) EndOpening(_ context.Context, _ cofferdam.Scope, _ cofferdam.QuestionID, why string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = append(c.ended, why)
	return nil
}

func (c *count) state() (int64, int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.taken, len(c.ended)
}

// newOpened is a lab whose box may reach good.test by an opening of so many bytes.
func newOpened(t *testing.T, bound int64) (*lab, *count) {
	t.Helper()
	l := newLab(t)
	c := &count{}
	l.caller.Ask = c
	r, err := policy.ParseOpening(policy.HTTP, "good.test")
	if err != nil {
		t.Fatal(err)
	}
	r.ID = "given.a-1"
	if err := l.caller.Policy.Give(policy.Opening{Rule: r, Until: time.Now().Add(time.Hour), Bytes: bound}); err != nil {
		t.Fatal(err)
	}
	return l, c
}

// TestOpenedBytesHold: by whatever way an agent sends or fetches, by many
// connections at a time, in bodies that do not say how long they are, compressed or
// in a WebSocket, no more flows than a person opened the host for; then it is
// closed, and the record says by what.
func TestOpenedBytesHold(t *testing.T) {
	const bound = 200_000
	var squeezed bytes.Buffer
	z := gzip.NewWriter(&squeezed)
	_, _ = z.Write(bytes.Repeat([]byte("x"), 3_000_000)) // 3 KB as it goes
	_ = z.Close()
	ways := map[string]func(l *lab, rw *bufio.ReadWriter) int64{ // one connection; what its far side saw, both ways
		"bodies": func(_ *lab, rw *bufio.ReadWriter) int64 { // 20 KB there and 20 KB back
			return exchange(rw, "POST /echo HTTP/1.1\r\nHost: good.test\r\nContent-Length: 20000\r\n\r\n"+strings.Repeat("x", 20_000))
		},
		"chunks": func(_ *lab, rw *bufio.ReadWriter) int64 {
			return exchange(rw, "POST /echo HTTP/1.1\r\nHost: good.test\r\nTransfer-Encoding: chunked\r\n\r\n"+strings.Repeat("3e8\r\n"+strings.Repeat("x", 1000)+"\r\n", 20)+"0\r\n\r\n")
		},
		"fetched": func(_ *lab, rw *bufio.ReadWriter) int64 {
			return exchange(rw, "GET /bytes/50000 HTTP/1.1\r\nHost: good.test\r\n\r\n")
		},
		"heads": func(_ *lab, rw *bufio.ReadWriter) int64 {
			return exchange(rw, "GET /x HTTP/1.1\r\nHost: good.test\r\nX-Smuggled: "+strings.Repeat("x", 20_000)+"\r\n\r\n")
		},
		"compressed": func(_ *lab, rw *bufio.ReadWriter) int64 {
			return exchange(rw, fmt.Sprintf("POST /echo HTTP/1.1\r\nHost: good.test\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n%s", squeezed.Len(), squeezed.String()))
		},
		"websocket": func(_ *lab, rw *bufio.ReadWriter) int64 {
			fmt.Fprintf(rw, "GET /upgrade HTTP/1.1\r\nHost: good.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
			_ = rw.Flush()
			resp, err := http.ReadResponse(rw.Reader, nil)
			if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
				return 0
			}
			go func() {
				for range 100 {
					if _, err := rw.Write(bytes.Repeat([]byte("x"), 1000)); err != nil || rw.Flush() != nil {
						return
					}
				}
			}()
			n, _ := io.Copy(io.Discard, io.LimitReader(rw, 100_000))
			return 2 * n // what came back had gone there
		},
	}
	for name, way := range ways {
		t.Run(name, func(t *testing.T) {
			l, c := newOpened(t, bound)
			var flowed atomic.Int64
			var all sync.WaitGroup
			for range 8 {
				all.Go(func() {
					for range 40 {
						conn, err := l.box.DialName("good.test", 443)
						if err != nil {
							return
						}
						s := tls.Client(conn, &tls.Config{ServerName: "good.test", RootCAs: l.ours})
						conn.SetDeadline(time.Now().Add(time.Minute))
						if s.Handshake() == nil {
							flowed.Add(way(l, bufio.NewReadWriter(bufio.NewReader(s), bufio.NewWriter(s))))
						}
						conn.Close()
						if _, ended := c.state(); ended > 0 {
							return
						}
					}
				})
			}
			all.Wait()
			l.settled()
			taken, ended := c.state()
			if n := flowed.Load(); n > bound || taken > bound || name != "compressed" && (taken < bound/2 || ended == 0) {
				t.Errorf("%d bytes flowed, %d were taken of %d; ended %d times", n, taken, bound, ended)
			}
			if name == "compressed" { // as they go, compressed: 320 of them are 3 KB both ways each
				return
			}
			said := false
			for _, e := range l.record.Find(cofferdam.EventRequest) {
				said = said || e.Fields[cofferdam.FieldCutBy] == "given.a-1" || e.Rule == policy.DefaultDeny
			}
			if !said {
				t.Error("the record does not say what ended it")
			}
			before := len(l.reached())
			if conn, err := l.box.DialName("good.test", 443); err == nil {
				s := tls.Client(conn, &tls.Config{ServerName: "good.test", RootCAs: l.ours})
				if text := l.say(s, "GET /after HTTP/1.1\r\nHost: good.test\r\nConnection: close\r\n\r\n"); !strings.Contains(text, "403") {
					t.Errorf("after its end: %s", text)
				}
			}
			if len(l.reached()) != before {
				t.Errorf("a request arrived after the end: %v", l.reached()[before:])
			}
		})
	}
}

// exchange sends a request and returns the bytes of both bodies, and of what a head
// was stuffed with, if all of it came about; 0 if it was refused.
func exchange(rw *bufio.ReadWriter, text string) int64 {
	go func() { // an answer may come before all is sent
		_, _ = rw.WriteString(text)
		_ = rw.Flush()
	}()
	resp, err := http.ReadResponse(rw.Reader, nil)
	if err != nil {
		return 0
	}
	defer resp.Body.Close()
	n, err := io.Copy(io.Discard, resp.Body)
	if resp.StatusCode != http.StatusOK {
		return 0
	}
	if err != nil {
		return n
	}
	return n + int64(strings.Count(text, "x"))
}
