package egress_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"testing"
)

// The wire against direct loopback, in one run. A sub-benchmark of each pair
// differs in nothing but the network it runs in; TLS is terminated on the wire,
// and beside it spliced.
func BenchmarkRequest(b *testing.B) {
	l := newLab(b, "good.test", "splice:other.test")
	lookup := func(name string) string {
		addrs, err := l.box.Lookup(context.Background(), name)
		if err != nil {
			b.Fatal(err)
		}
		return addrs[0]
	}
	ways := []struct {
		name string
		to   endpoint
		run  func(func() error) error
	}{
		{"direct", endpoint{l.addr.String(), "good.test"}, func(f func() error) error {
			runtime.LockOSThread() // as Inside does
			defer runtime.UnlockOSThread()
			return f()
		}},
		{"wire", endpoint{lookup("good.test"), "good.test"}, l.box.Inside},
		{"spliced", endpoint{lookup("other.test"), "other.test"}, l.box.Inside},
	}
	for _, kind := range []struct {
		name string
		loop func(b *testing.B, to endpoint) error
	}{
		{"new-http", func(b *testing.B, to endpoint) error { return newConnections(b, to, false) }},
		{"keep-alive-http", func(b *testing.B, to endpoint) error { return keptAlive(b, to, false) }},
		{"new-tls", func(b *testing.B, to endpoint) error { return newConnections(b, to, true) }},
		{"keep-alive-tls", func(b *testing.B, to endpoint) error { return keptAlive(b, to, true) }},
		{"download-http", func(b *testing.B, to endpoint) error { return download(b, to, false) }},
		{"download-tls", func(b *testing.B, to endpoint) error { return download(b, to, true) }},
	} {
		for _, way := range ways {
			if way.name == "spliced" && !strings.HasSuffix(kind.name, "-tls") {
				continue
			}
			b.Run(kind.name+"/"+way.name, func(b *testing.B) {
				if err := way.run(func() error { return kind.loop(b, way.to) }); err != nil {
					b.Fatal(err)
				}
			})
		}
	}
}

// endpoint is an address and the name that stands for it.
type endpoint struct{ addr, name string }

func connect(to endpoint, secure bool) (net.Conn, error) {
	if !secure {
		return net.Dial("tcp", to.addr+":80")
	}
	conn, err := net.Dial("tcp", to.addr+":443")
	if err != nil {
		return nil, err
	}
	return tls.Client(conn, &tls.Config{ServerName: to.name, InsecureSkipVerify: true}), nil
}

func get(conn net.Conn, r *bufio.Reader, to endpoint, path string) (int64, error) {
	if _, err := fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: %s\r\n\r\n", path, to.name); err != nil {
		return 0, err
	}
	resp, err := http.ReadResponse(r, nil)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	return io.Copy(io.Discard, resp.Body)
}

func newConnections(b *testing.B, to endpoint, secure bool) error {
	for b.Loop() {
		conn, err := connect(to, secure)
		if err != nil {
			return err
		}
		if _, err := get(conn, bufio.NewReader(conn), to, "/"); err != nil {
			return err
		}
		conn.Close()
	}
	return nil
}

func keptAlive(b *testing.B, to endpoint, secure bool) error {
	conn, err := connect(to, secure)
	if err != nil {
		return err
	}
	defer conn.Close()
	r := bufio.NewReader(conn)
	for b.Loop() {
		if _, err := get(conn, r, to, "/"); err != nil {
			return err
		}
	}
	return nil
}

func download(b *testing.B, to endpoint, secure bool) error {
	conn, err := connect(to, secure)
	if err != nil {
		return err
	}
	defer conn.Close()
	r := bufio.NewReaderSize(conn, 256<<10)
	const size = 64 << 20
	b.SetBytes(size)
	for b.Loop() {
		if n, err := get(conn, r, to, fmt.Sprintf("/bytes/%d", size)); err != nil || n != size {
			return fmt.Errorf("%d bytes: %w", n, err)
		}
	}
	return nil
}
