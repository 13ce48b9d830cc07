package egress_test

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"
)

// raw serves TLS on port 8443: what path a client asks for is written back as
// answers has it, byte for byte, and the connection ends.
func (l *lab) raw(answers map[string]string) {
	l.t.Helper()
	cert := l.certificate(time.Now().Add(time.Hour), "good.test")
	l.trusted.AddCert(cert.Leaf)
	listener, err := tls.Listen("tcp", netip.AddrPortFrom(l.addr, 8443).String(), &tls.Config{Certificates: []tls.Certificate{cert}})
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				r, err := http.ReadRequest(bufio.NewReader(conn))
				if err != nil {
					return
				}
				io.WriteString(conn, answers[strings.Trim(r.URL.Path, "/")])
				if strings.Contains(r.URL.Path, "upgrade") {
					io.Copy(io.Discard, conn) // until the other side gives up
				}
			}()
		}
	}()
}

// An allowed host is no friend: what it answers is bounded and has one meaning,
// or the box is told that the answer was none.
func TestHostileAnswers(t *testing.T) {
	const body = "\r\nContent-Length: 2\r\n\r\nok"
	for name, c := range map[string]struct {
		answer string
		code   int // of what the box gets; 0: the answer breaks off
	}{
		"good":             {"HTTP/1.1 200 OK" + body, 200},
		"nothing":          {"", 503},
		"garbage":          {"\x00\x01\x02\r\n\r\n", 503},
		"huge header":      {"HTTP/1.1 200 OK\r\nX: " + strings.Repeat("a", 2<<20) + body, 503},
		"many headers":     {"HTTP/1.1 200 OK" + strings.Repeat("\r\nX: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", 1<<16) + body, 503},
		"two lengths":      {"HTTP/1.1 200 OK\r\nContent-Length: 3" + body, 503},
		"length below":     {"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\nok", 503},
		"interim":          {strings.Repeat("HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n", 1000) + "HTTP/1.1 200 OK" + body, 200},
		"upgrade":          {"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n", 503},
		"cut":              {"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nok", 0},
		"cut chunk":        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n", 0},
		"bad chunk":        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nok\r\n0\r\n\r\n", 0},
		"second answer":    {"HTTP/1.1 200 OK" + body + "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nhidden", 200},
		"length and chunk": {"HTTP/1.1 200 OK\r\nContent-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n", 200},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t, "good.test:8443")
			path := strings.ReplaceAll(name, " ", "-")
			l.raw(map[string]string{path: c.answer})
			conn, err := l.box.DialName("good.test", 8443)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			conn.SetDeadline(time.Now().Add(20 * time.Second))
			s := tls.Client(conn, &tls.Config{ServerName: "good.test", RootCAs: l.ours})
			fmt.Fprintf(s, "GET /%s HTTP/1.1\r\nHost: good.test:8443\r\nConnection: close\r\n\r\n", path)
			r := bufio.NewReader(s)
			resp, err := http.ReadResponse(r, nil)
			for err == nil && resp.StatusCode == http.StatusEarlyHints {
				resp, err = http.ReadResponse(r, nil)
			}
			if err != nil {
				if c.code != 0 {
					t.Fatal(err)
				}
				return // it broke off before its head was out
			}
			got, err := io.ReadAll(resp.Body)
			switch {
			case c.code == 0 && err == nil:
				t.Errorf("the box took %q for whole", got)
			case c.code != 0 && (err != nil || resp.StatusCode != c.code):
				t.Errorf("%s: %.200q, %v", resp.Status, got, err)
			case c.code == 200 && string(got) != "ok":
				t.Errorf("%q", got)
			}
			if rest, _ := io.ReadAll(r); len(rest) != 0 {
				t.Errorf("then came %.200q", rest)
			}
			conn.Close()
			l.settled()
		})
	}
}
