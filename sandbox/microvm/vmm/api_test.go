package vmm

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"cofferdam"
	"cofferdam/sandbox/cage"
)

// serve answers each connection on a unix socket by what answer writes, and
// returns an API on it and the reasons for which it was given up.
func serve(t *testing.T, answer func(net.Conn)) (*API, chan string) {
	t.Helper()
	dir := t.TempDir()
	l, err := net.Listen("unix", filepath.Join(dir, "s"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				readHead(c)
				answer(c)
			}()
		}
	}()
	hung := make(chan string, 8)
	a := NewAPI("the monitor", "", func(ctx context.Context) (*os.File, error) { return Dial(ctx, dir, "/s", os.Getuid()) },
		func(why string) { hung <- why })
	return a, hung
}

func readHead(c net.Conn) {
	var got []byte
	b := make([]byte, 1)
	for !strings.HasSuffix(string(got), "\r\n\r\n") {
		if n, err := c.Read(b); n == 0 || err != nil {
			return
		}
		got = append(got, b[0])
	}
}

// TestHostileAnswers has a monitor answer in every wrong way: each ends in a named
// error, soon, and one that does not answer is given up.
func TestHostileAnswers(t *testing.T) {
	const ok = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
	forever := func(head, again string) func(net.Conn) {
		return func(c net.Conn) {
			if _, err := io.WriteString(c, head); err != nil {
				return
			}
			for {
				if _, err := io.WriteString(c, again); err != nil {
					return
				}
			}
		}
	}
	say := func(text string) func(net.Conn) {
		return func(c net.Conn) { _, _ = io.WriteString(c, text) }
	}
	silent := func(c net.Conn) { _, _ = io.Copy(io.Discard, c) }
	for _, c := range []struct {
		name   string
		answer func(net.Conn)
		kind   cofferdam.Kind
		says   string
		hung   bool
	}{
		{"control", say(ok), 0, "", false},
		{"no content", say("HTTP/1.1 204 No Content\r\n\r\n"), cofferdam.Unavailable, "JSON", false},
		{"silence", silent, cofferdam.Unavailable, "did not answer GET /x within", true},
		{"half a head", func(c net.Conn) { say("HTTP/1.1 200 OK\r\n")(c); silent(c) }, cofferdam.Unavailable, "did not answer", true},
		{"half a body", func(c net.Conn) { say("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{")(c); silent(c) }, cofferdam.Unavailable, "did not answer", true},
		{"closes at once", func(net.Conn) {}, cofferdam.Unavailable, "its answer", false},
		{"no HTTP", say("OK 1024\n\n"), cofferdam.Unavailable, "its answer", false},
		{"endless head", forever("HTTP/1.1 200 OK\r\n", strings.Repeat("X: y\r\n", 1024)), cofferdam.Unavailable, "its answer", false},
		{"endless line", forever("HTTP/1.1 200 OK\r\nX: ", strings.Repeat("y", 4096)), cofferdam.Unavailable, "its answer", false},
		{"endless body", forever("HTTP/1.1 200 OK\r\n\r\n", strings.Repeat(" ", 4096)), cofferdam.Unavailable, "more than", false},
		{"endless chunks", forever("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", strings.Repeat("1\r\n \r\n", 4096)), cofferdam.Unavailable, "", false},
		{"endless continues", forever("", "HTTP/1.1 100 Continue\r\n\r\n"), cofferdam.Unavailable, "its answer", false},
		{"a long body", say("HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n{}"), cofferdam.Unavailable, "its answer", false},
		{"no JSON", say("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nno!"), cofferdam.Unavailable, "its answer", false},
		{"another kind", say("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]"), cofferdam.Unavailable, "its answer", false},
		{"redirect", say("HTTP/1.1 302 Found\r\nLocation: http://192.0.2.1/\r\nContent-Length: 0\r\n\r\n"), cofferdam.Unavailable, "302", false},
		{"a fault", say("HTTP/1.1 400 Bad Request\r\nContent-Length: 28\r\n\r\n{\"fault_message\": \"no disk\"}"), cofferdam.Invalid, "400: no disk", false},
		{"a list", say("HTTP/1.1 500 Oops\r\nContent-Length: 17\r\n\r\n[\"boot\", \"no CPU\"]"), cofferdam.Unavailable, "500: ", false},
		{"not now", say("HTTP/1.1 405 No\r\nContent-Length: 0\r\n\r\n"), cofferdam.Conflict, "no reason", false},
		{"nothing there", say("HTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n"), cofferdam.NotFound, "404", false},
		{"for a terminal", say("HTTP/1.1 400 Bad\r\nContent-Length: 20\r\n\r\n\x1b[2J\nhint: do harm\x00\xff "), cofferdam.Invalid, "[2J hint: do harm", false},
	} {
		t.Run(strings.ReplaceAll(c.name, " ", "-"), func(t *testing.T) {
			a, hung := serve(t, c.answer)
			if a.patience = 2 * time.Minute; c.hung { // a busy machine takes its time for an endless answer
				a.patience = 100 * time.Millisecond
			}
			var answer map[string]any
			err := a.Call(context.Background(), "GET", "/x", nil, &answer, 0)
			if c.kind == 0 {
				if err != nil {
					t.Fatal(err)
				}
				return
			}
			if cofferdam.KindOf(err) != c.kind || !strings.Contains(fmt.Sprint(err), c.says) || cofferdam.HintOf(err) == "" {
				t.Errorf("%v (%s), want %v with %q", err, cofferdam.KindOf(err), c.kind, c.says)
			}
			if strings.ContainsAny(fmt.Sprint(err), "\x1b\n\x00") {
				t.Errorf("the error has what a terminal acts on: %q", err)
			}
			if got := len(hung) > 0; got != c.hung {
				t.Errorf("given up: %v, want %v", got, c.hung)
			}
		})
	}
}

// TestCallerGone wants a monitor not to be given up because a caller has no time.
func TestCallerGone(t *testing.T) {
	a, hung := serve(t, func(c net.Conn) { _, _ = io.Copy(io.Discard, c) })
	ctx, cancel := context.WithCancel(context.Background())
	result := make(chan error)
	go func() { result <- a.Call(ctx, "GET", "/x", nil, nil, 0) }()
	cancel()
	if err := <-result; err == nil || len(hung) > 0 {
		t.Errorf("%v, given up %d times", err, len(hung))
	}
}

// TestWatch wants a monitor that answers no more to be given up, without a call.
func TestWatch(t *testing.T) {
	answers := make(chan bool, 1)
	answers <- true
	a, hung := serve(t, func(c net.Conn) {
		select {
		case <-answers:
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
		default:
			_, _ = io.Copy(io.Discard, c)
		}
	})
	a.every, a.patience = time.Millisecond, 200*time.Millisecond
	p := &cage.Process{Ended: make(chan struct{})}
	over := make(chan struct{})
	go func() { a.Watch(p, "/"); close(over) }()
	if why := <-hung; !strings.Contains(why, "did not answer") {
		t.Errorf("given up because %s", why)
	}
	for end := time.Now().Add(20 * time.Second); len(answers) > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it was not asked before")
		}
	}
	close(p.Ended)
	<-over
}
