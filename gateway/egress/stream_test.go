package egress_test

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"cofferdam"
)

// ask writes a request inside TLS and reads the head of its answer.
func ask(t *testing.T, conn net.Conn, method, path string) (*http.Response, *bufio.Reader) {
	t.Helper()
	conn.SetDeadline(time.Now().Add(30 * time.Second))
	fmt.Fprintf(conn, "%s %s HTTP/1.1\r\nHost: good.test\r\n\r\n", method, path)
	r := bufio.NewReader(conn)
	resp, err := http.ReadResponse(r, &http.Request{Method: method})
	if err != nil {
		t.Fatal(err)
	}
	return resp, r
}

// Each piece of an answer reaches the box before the next one is written.
func TestAnswersStream(t *testing.T) {
	l := newLab(t, "good.test")
	conn := l.secure("good.test")
	l.pieceSoon("first\n")
	resp, _ := ask(t, conn, "GET", "/pieces")
	body := bufio.NewReader(resp.Body)
	for i := range 20 {
		want := "first\n"
		if i > 0 {
			want = fmt.Sprintf("piece %d\n", i)
			l.piece <- want
		}
		if got, err := body.ReadString('\n'); err != nil || got != want {
			t.Fatalf("%q, %v, want %q", got, err, want)
		}
	}
	close(l.piece)
	if rest, err := io.ReadAll(body); err != nil || len(rest) != 0 {
		t.Errorf("%q, %v", rest, err)
	}
}

// pieceSoon hands /pieces its first piece once it asks.
func (l *lab) pieceSoon(p string) { go func() { l.piece <- p }() }

// Large bodies arrive whole in both directions, also at the same time.
func TestLargeBodies(t *testing.T) {
	l := newLab(t, "good.test")
	data := make([]byte, 48<<20)
	r := rand.NewChaCha8([32]byte{1})
	r.Read(data)
	conn := l.secure("good.test")
	conn.SetDeadline(time.Now().Add(time.Minute))
	go fmt.Fprintf(conn, "POST /echo HTTP/1.1\r\nHost: good.test\r\nContent-Length: %d\r\n\r\n%s", len(data), data)
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	h := sha256.New()
	if n, err := io.Copy(h, resp.Body); err != nil || n != int64(len(data)) {
		t.Fatalf("%d bytes, %v", n, err)
	}
	if want := sha256.Sum256(data); !bytes.Equal(h.Sum(nil), want[:]) {
		t.Error("the bytes are not those that were sent")
	}
	l.settled()
	e := l.record.Find(cofferdam.EventRequest)
	if o := e[len(e)-1]; o.Fields["sent"] != fmt.Sprint(len(data)) || o.Fields["received"] != fmt.Sprint(len(data)) {
		t.Errorf("outcome: %+v", o)
	}
}

// A box that does not read holds the host up, and nothing piles up between.
func TestSlowReader(t *testing.T) {
	l := newLab(t, "good.test")
	const size = 512 << 20
	resp, _ := ask(t, l.secure("good.test"), "GET", fmt.Sprintf("/bytes/%d", size))
	defer resp.Body.Close()
	var before int64 = -1
	for now := l.written.Load(); now != before; now = l.written.Load() { // until it stands still
		before = now
		time.Sleep(300 * time.Millisecond)
	}
	if before > 64<<20 { // buffers of two sockets and a wire
		t.Errorf("%d MiB were taken from the host while the box read nothing", before>>20)
	}
	if n, err := io.Copy(io.Discard, io.LimitReader(resp.Body, 64<<20)); err != nil || n != 64<<20 {
		t.Errorf("then read %d, %v", n, err)
	}
}

// Requests of one connection use one connection outside, each one judged.
func TestKeepAlive(t *testing.T) {
	l := newLab(t, "good.test")
	conn := l.secure("good.test")
	for i := range 5 {
		resp, _ := ask(t, conn, "GET", fmt.Sprintf("/%d", i))
		if _, err := io.ReadAll(resp.Body); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(l.greeted()); n != 1 {
		t.Errorf("%d connections outside for one of the box", n)
	}
	l.settled()
	if n := len(l.record.Find(cofferdam.EventRequest)); n != 10 {
		t.Errorf("%d events of five requests", n)
	}
}

// A client that waits for "100 Continue" hears it from the host before it
// sends; one that is refused hears that instead.
func TestContinue(t *testing.T) {
	l := newLab(t, "good.test")
	for _, c := range []struct{ host, first string }{{"good.test", "100 Continue"}, {"evil.test", "403 Forbidden"}} {
		conn := l.secure("good.test")
		conn.SetDeadline(time.Now().Add(20 * time.Second))
		fmt.Fprintf(conn, "POST /echo HTTP/1.1\r\nHost: %s\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n", c.host)
		r := bufio.NewReader(conn)
		line, err := r.ReadString('\n')
		if err != nil || !strings.Contains(line, c.first) {
			t.Fatalf("%s: %q, %v", c.host, line, err)
		}
		if c.host == "evil.test" {
			continue
		}
		r.ReadString('\n')
		io.WriteString(conn, "body")
		resp, err := http.ReadResponse(r, nil)
		if err != nil {
			t.Fatal(err)
		}
		if b, _ := io.ReadAll(resp.Body); resp.StatusCode != 200 || string(b) != "body" {
			t.Errorf("%s: %q", resp.Status, b)
		}
	}
	if r := l.reached(); len(r) != 1 {
		t.Errorf("reached the outside: %q", r)
	}
}

// Answers without a body leave the connection usable, and trailers of an
// answer pass while those of a request do not.
func TestHeadAndTrailers(t *testing.T) {
	l := newLab(t, "good.test")
	conn := l.secure("good.test")
	resp, _ := ask(t, conn, "HEAD", "/bytes/1000")
	if b, err := io.ReadAll(resp.Body); resp.StatusCode != 200 || len(b) != 0 || err != nil {
		t.Errorf("head: %s, %q, %v", resp.Status, b, err)
	}
	if resp, _ = ask(t, conn, "GET", "/after-head"); resp.StatusCode != 200 {
		t.Errorf("after it: %s", resp.Status)
	}
	io.Copy(io.Discard, resp.Body)
	fmt.Fprint(conn, "POST /trailer HTTP/1.1\r\nHost: good.test\r\nTE: trailers\r\nTrailer: X-Late\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\nX-Late: hidden\r\n\r\n")
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(resp.Body); err != nil || string(b) != "body" || resp.Trailer.Get("X-Sum") != "of the answer" {
		t.Errorf("%q, %v, trailers %v", b, err, resp.Trailer)
	}
	if got := l.trailers.Load(); got == nil || *got != "" {
		t.Errorf("a request's trailer reached the outside: %v", got)
	}
}

// An answer that breaks off outside breaks off in the box, however its length
// was told.
func TestAnswerThatBreaksOffInsideTLS(t *testing.T) {
	l := newLab(t, "good.test")
	for _, path := range []string{"/break", "/break-chunked"} {
		resp, _ := ask(t, l.secure("good.test"), "GET", path)
		if b, err := io.ReadAll(resp.Body); err == nil || string(b) != "only this" {
			t.Errorf("%s: the box took %q for whole (%v)", path, b, err)
		}
		l.settled()
		e := l.record.Find(cofferdam.EventRequest)
		if last := e[len(e)-1]; last.Outcome != "cut" || last.Fields["status"] != "200" {
			t.Errorf("%s: outcome %+v", path, last)
		}
	}
}

// The end of a session ends an answer that streams, on both sides.
func TestSessionEndCutsStreams(t *testing.T) {
	l := newLab(t, "good.test")
	conn := l.secure("good.test")
	l.pieceSoon("first\n")
	resp, _ := ask(t, conn, "GET", "/pieces")
	body := bufio.NewReader(resp.Body)
	if _, err := body.ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	l.end()
	if _, err := io.ReadAll(body); err == nil {
		t.Error("the answer has an end")
	}
	select {
	case <-l.gone:
	case <-time.After(30 * time.Second):
		t.Error("the connection outside outlives the session")
	}
	if d := time.Since(begun); d > 30*time.Second {
		t.Errorf("cut only after %v", d)
	}
}

// A box that goes away in the middle ends the connection outside.
func TestClientThatGoesAway(t *testing.T) {
	l := newLab(t, "good.test")
	conn := l.secure("good.test")
	l.pieceSoon("first\n")
	resp, _ := ask(t, conn, "GET", "/pieces")
	if _, err := bufio.NewReader(resp.Body).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	conn.Close()
	select {
	case <-l.gone:
	case <-time.After(30 * time.Second):
		t.Error("the connection outside outlives its client")
	}
	l.settled()
	e := l.record.Find(cofferdam.EventRequest)
	if last := e[len(e)-1]; last.Outcome != "cut" {
		t.Errorf("outcome %+v", last)
	}
}
