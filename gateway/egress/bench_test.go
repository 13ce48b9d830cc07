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
	"testing"
)

// The wire against direct loopback, in one run. A sub-benchmark of each pair
// differs in nothing but the network it runs in.
func BenchmarkRequest(b *testing.B) {
	l := newLab(b, "good.test")
	addrs, err := l.box.Lookup(context.Background(), "good.test")
	if err != nil {
		b.Fatal(err)
	}
	ways := []struct {
		name string
		addr string
		run  func(func() error) error
	}{
		{"direct", l.addr.String(), func(f func() error) error {
			runtime.LockOSThread() // as Inside does
			defer runtime.UnlockOSThread()
			return f()
		}},
		{"wire", addrs[0], l.box.Inside},
	}
	for _, kind := range []struct {
		name string
		loop func(b *testing.B, addr string) error
	}{
		{"new-http", func(b *testing.B, addr string) error { return newConnections(b, addr, false) }},
		{"keep-alive-http", func(b *testing.B, addr string) error { return keptAlive(b, addr, false) }},
		{"new-tls", func(b *testing.B, addr string) error { return newConnections(b, addr, true) }},
		{"keep-alive-tls", func(b *testing.B, addr string) error { return keptAlive(b, addr, true) }},
		{"download-http", func(b *testing.B, addr string) error { return download(b, addr, false) }},
		{"download-tls", func(b *testing.B, addr string) error { return download(b, addr, true) }},
	} {
		for _, way := range ways {
			b.Run(kind.name+"/"+way.name, func(b *testing.B) {
				if err := way.run(func() error { return kind.loop(b, way.addr) }); err != nil {
					b.Fatal(err)
				}
			})
		}
	}
}

func connect(addr string, secure bool) (net.Conn, error) {
	if !secure {
		return net.Dial("tcp", addr+":80")
	}
	conn, err := net.Dial("tcp", addr+":443")
	if err != nil {
		return nil, err
	}
	return tls.Client(conn, &tls.Config{ServerName: "good.test", InsecureSkipVerify: true}), nil
}

func get(conn net.Conn, r *bufio.Reader, path string) (int64, error) {
	if _, err := fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: good.test\r\n\r\n", path); err != nil {
		return 0, err
	}
	resp, err := http.ReadResponse(r, nil)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	return io.Copy(io.Discard, resp.Body)
}

func newConnections(b *testing.B, addr string, secure bool) error {
	for b.Loop() {
		conn, err := connect(addr, secure)
		if err != nil {
			return err
		}
		if _, err := get(conn, bufio.NewReader(conn), "/"); err != nil {
			return err
		}
		conn.Close()
	}
	return nil
}

func keptAlive(b *testing.B, addr string, secure bool) error {
	conn, err := connect(addr, secure)
	if err != nil {
		return err
	}
	defer conn.Close()
	r := bufio.NewReader(conn)
	for b.Loop() {
		if _, err := get(conn, r, "/"); err != nil {
			return err
		}
	}
	return nil
}

func download(b *testing.B, addr string, secure bool) error {
	conn, err := connect(addr, secure)
	if err != nil {
		return err
	}
	defer conn.Close()
	r := bufio.NewReaderSize(conn, 256<<10)
	const size = 64 << 20
	b.SetBytes(size)
	for b.Loop() {
		if n, err := get(conn, r, fmt.Sprintf("/bytes/%d", size)); err != nil || n != size {
			return fmt.Errorf("%d bytes: %w", n, err)
		}
	}
	return nil
}
