package gateway_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"cofferdam"
	"cofferdam/gateway"
)

// served answers with handle, and counts the connections it has.
type served struct {
	handle func(c *gateway.Caller, w http.ResponseWriter, r *http.Request)
	mu     sync.Mutex
	now    int
	most   int
	to     []gateway.Target
}

func (s *served) Serve(c *gateway.Caller, conn net.Conn, to gateway.Target) {
	s.mu.Lock()
	s.now++
	s.most, s.to = max(s.most, s.now), append(s.to, to)
	s.mu.Unlock()
	gateway.ServeHTTP(c, conn, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { s.handle(c, w, r) }))
	s.mu.Lock()
	s.now--
	s.mu.Unlock()
}

// local returns a client for a session that lives until end is called.
func local(t *testing.T, s *served) (client *http.Client, end context.CancelFunc) {
	t.Helper()
	live, end := context.WithCancel(context.Background())
	c := &gateway.Caller{Session: "s-1", Live: live}
	tr := gateway.Local(c, func(c *gateway.Caller, to gateway.Target) gateway.Handler {
		if to.Host != gateway.ModelHost || to.Port != 80 {
			return nil
		}
		return s
	})
	t.Cleanup(func() { tr.CloseIdleConnections(); end() })
	return &http.Client{Transport: tr}, end
}

func TestLocalIsAWire(t *testing.T) {
	large := strings.Repeat("0123456789abcdef", 1<<17) // 2 MiB, both ways
	s := &served{handle: func(c *gateway.Caller, w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil || c.Session != "s-1" || r.Host != string(gateway.ModelHost) {
			t.Errorf("%v, caller %s, host %s", err, c.Session, r.Host)
		}
		w.Write(body)
	}}
	client, _ := local(t, s)
	for range 3 {
		resp, err := client.Post("http://model.cofferdam.internal/v1/x", "text/plain", strings.NewReader(large))
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || string(body) != large {
			t.Fatalf("%d bytes came back: %v", len(body), err)
		}
	}
	if len(s.to) != 1 || s.to[0] != (gateway.Target{Host: gateway.ModelHost, Port: 80}) {
		t.Errorf("connections %v", s.to)
	}
}

// TestLocalReachesNothingElse: no name is looked up and no address dialled; a
// port that no gateway serves is not there.
func TestLocalReachesNothingElse(t *testing.T) {
	outside, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer outside.Close()
	client, _ := local(t, &served{})
	for _, url := range []string{
		"http://" + outside.Addr().String(), "https://model.cofferdam.internal/", "http://model.cofferdam.internal:8080/", "http://example.com/", "http://[::1]/",
	} {
		_, err := client.Get(url)
		if err == nil || cofferdam.KindOf(err) != cofferdam.NotFound || cofferdam.HintOf(err) == "" {
			t.Errorf("%s: %v", url, err)
		}
	}
	outside.(*net.TCPListener).SetDeadline(time.Now().Add(50 * time.Millisecond))
	if c, err := outside.Accept(); err == nil {
		c.Close()
		t.Error("a connection left the process")
	}
}

// TestLocalEndsWithItsSession: also in the middle of an answer, and nothing of
// it stays.
func TestLocalEndsWithItsSession(t *testing.T) {
	before := runtime.NumGoroutine()
	s := &served{handle: func(_ *gateway.Caller, w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, "one\n")
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}}
	client, end := local(t, s)
	resp, err := client.Get("http://model.cofferdam.internal/")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	first := make([]byte, 4)
	if _, err := io.ReadFull(resp.Body, first); err != nil || !bytes.Equal(first, []byte("one\n")) {
		t.Fatalf("%q %v", first, err) // it came before the answer was whole
	}
	end()
	if _, err := io.ReadAll(resp.Body); err == nil {
		t.Error("a cut answer looks whole")
	}
	if _, err := client.Get("http://model.cofferdam.internal/"); err == nil {
		t.Error("an ended session is served")
	}
	for range 3000 {
		if runtime.NumGoroutine() <= before+1 {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Errorf("%d goroutines, %d before", runtime.NumGoroutine(), before)
}

func TestLocalIsBounded(t *testing.T) {
	s := &served{handle: func(_ *gateway.Caller, w http.ResponseWriter, _ *http.Request) {
		time.Sleep(20 * time.Millisecond)
		fmt.Fprint(w, "ok")
	}}
	client, _ := local(t, s)
	var all sync.WaitGroup
	for range 24 {
		all.Go(func() {
			resp, err := client.Get("http://model.cofferdam.internal/")
			if err != nil {
				t.Error(err)
				return
			}
			io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
		})
	}
	all.Wait()
	if s.most > 4 {
		t.Errorf("%d connections at a time", s.most)
	}
}
