package proxy_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"cofferdam"
	"cofferdam/gateway"
	"cofferdam/gateway/egress"
	"cofferdam/gateway/gatewaytest"
	"cofferdam/gateway/proxy"
	"cofferdam/gateway/wire"
	"cofferdam/policy"
)

// lab is a proxy, with a world outside that has example.com and nothing else.
type lab struct {
	t          *testing.T
	record     *gatewaytest.Recorder
	end        context.CancelFunc
	addr       net.Addr // of the proxy
	url        string   // of the proxy, with the password
	plain, tls string   // example.com:PORT outside
	bundle     string   // file with the authority that boxes trust
	pool       *x509.CertPool
	ended      chan error
}

// LookupNetIP is the resolver outside.
func (l *lab) LookupNetIP(_ context.Context, _, host string) ([]netip.Addr, error) {
	if host != "example.com" {
		return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
	}
	return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, nil
}

func newLab(t *testing.T) *lab {
	t.Helper()
	l := &lab{t: t, pool: x509.NewCertPool(), ended: make(chan error, 1)}
	hello := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%s %s %v", r.Host, r.URL.Path, r.Header["Proxy-Authorization"])
	})
	plain, secure := httptest.NewServer(hello), httptest.NewTLSServer(hello)
	t.Cleanup(plain.Close)
	t.Cleanup(secure.Close)
	port := func(s *httptest.Server) string {
		_, p, err := net.SplitHostPort(s.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		return "example.com:" + p
	}
	l.plain, l.tls = port(plain), port(secure)
	ca, err := egress.OpenCA(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	l.pool.AppendCertsFromPEM(ca.PEM())
	l.bundle = filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(l.bundle, ca.PEM(), 0o644); err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(secure.Certificate())
	g := egress.New(egress.Options{CA: ca, Roots: roots, Dialer: &gateway.Dialer{Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}, Resolver: l}})
	var c *gateway.Caller
	c, l.record, l.end = gatewaytest.NewCaller(t, policy.Grant{Allow: gatewaytest.Allow(t, l.plain, l.tls)})
	p := &proxy.Proxy{Caller: c, Router: wire.Routes{Others: g, Refused: g.Refusal()}, Password: "secret123"}
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.addr, l.url = listener.Addr(), p.URL(listener.Addr())
	go func() { l.ended <- p.Serve(listener) }()
	return l
}

// get asks for a URL as a client with the proxy of that URL.
func (l *lab) get(through, target string) (int, string, error) {
	l.t.Helper()
	at, err := url.Parse(through)
	if err != nil {
		l.t.Fatal(err)
	}
	tr := &http.Transport{Proxy: http.ProxyURL(at), TLSClientConfig: &tls.Config{RootCAs: l.pool}}
	defer tr.CloseIdleConnections()
	resp, err := (&http.Client{Transport: tr}).Get(target)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(body), err
}

// What policy allows passes, plain and in TLS, and is on record; the password
// stays here.
func TestAllowed(t *testing.T) {
	l := newLab(t)
	for _, target := range []string{"http://" + l.plain + "/a", "https://" + l.tls + "/b"} {
		code, body, err := l.get(l.url, target)
		u, _ := url.Parse(target)
		if err != nil || code != 200 || body != u.Host+" "+u.Path+" []" {
			t.Errorf("%s: %d %q %v", target, code, body, err)
		}
	}
	seen := 0
	for _, e := range l.record.Find(cofferdam.EventRequest) {
		if e.Verdict == cofferdam.Allowed {
			seen++
		}
	}
	if seen != 2 {
		t.Errorf("%d requests on record: %+v", seen, l.record.Events())
	}
}

// The programs that people use find it by the usual variables.
func TestCurl(t *testing.T) {
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("needs curl")
	}
	l := newLab(t)
	cmd := exec.Command("curl", "-sS", "http://"+l.plain+"/a", "https://"+l.tls+"/b", "https://evil.test/c")
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "http_proxy=" + l.url, "https_proxy=" + l.url, "CURL_CA_BUNDLE=" + l.bundle}
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.HasPrefix(string(out), l.plain+" /a []"+l.tls+" /b []") || !strings.Contains(string(out), "evil.test") {
		t.Errorf("%v: %s", err, out)
	}
}

// What policy refuses is refused with the reason, whoever asks how; each is on
// record, and nothing outside hears of it.
func TestRefused(t *testing.T) {
	l := newLab(t)
	_, port, _ := net.SplitHostPort(l.plain)
	for _, target := range []string{
		"http://evil.test/", "https://evil.test/", "http://127.0.0.1:" + port + "/", "http://[::1]:" + port + "/", "http://localhost:" + port + "/",
		"http://example.com:1/", "http://EXAMPLE.com.evil.test/",
	} {
		l.record.Clear()
		code, body, err := l.get(l.url, target)
		if err != nil || code != 403 || len(body) < 10 {
			t.Errorf("%s: %d %q %v", target, code, body, err)
		}
		events := l.record.Events()
		if len(events) == 0 {
			t.Errorf("%s is not on record", target)
		}
		for _, e := range events {
			if e.Verdict != cofferdam.Refused {
				t.Errorf("%s: %+v", target, e)
			}
		}
	}
}

// Another program of the machine, which does not know the password, reaches no
// gateway, and leaves nothing in the record of this box.
func TestOthers(t *testing.T) {
	l := newLab(t)
	for _, through := range []string{"http://" + l.addr.String(), "http://cofferdam@" + l.addr.String(), "http://cofferdam:secret12@" + l.addr.String(), "http://other:secret123@" + l.addr.String()} {
		code, body, err := l.get(through, "http://"+l.plain+"/a")
		if err != nil || code != http.StatusProxyAuthRequired || strings.Contains(body, "example.com") {
			t.Errorf("%s: %d %q %v", through, code, body, err)
		}
		if _, _, err := l.get(through, "https://"+l.tls+"/a"); err == nil {
			t.Errorf("%s opened a tunnel", through)
		}
	}
	if events := l.record.Events(); len(events) != 0 {
		t.Errorf("on record: %+v", events)
	}
	if (&proxy.Proxy{}).Serve(fakeListener{}) == nil {
		t.Error("a proxy without a password serves")
	}
}

type fakeListener struct{ net.Listener }

func (fakeListener) Close() error { return nil }

// say sends text to the proxy over one connection and returns the answers.
func (l *lab) say(text string) string {
	l.t.Helper()
	conn, err := net.Dial("tcp", l.addr.String())
	if err != nil {
		l.t.Fatal(err)
	}
	defer conn.Close()
	text = strings.ReplaceAll(text, "AUTH", "Proxy-Authorization: Basic Y29mZmVyZGFtOnNlY3JldDEyMw==")
	if _, err := io.WriteString(conn, strings.ReplaceAll(text, "\n", "\r\n")); err != nil {
		l.t.Fatal(err)
	}
	all, err := io.ReadAll(bufio.NewReader(conn))
	if err != nil {
		l.t.Fatal(err)
	}
	return string(all)
}

func TestRawClients(t *testing.T) {
	l := newLab(t)
	request := "GET http://HOST/x HTTP/1.1\nHost: HOST\nAUTH\n\n"
	for name, c := range map[string]struct{ send, want string }{
		"two hosts on one connection": {strings.ReplaceAll(request, "HOST", l.plain) + strings.ReplaceAll(request, "HOST", "evil.test"), l.plain + " /x []HTTP/1.1 403 "},
		"tunnel and request at once":  {"CONNECT " + l.plain + " HTTP/1.1\nHost: " + l.plain + "\nAUTH\n\nGET /y HTTP/1.1\nHost: " + l.plain + "\nConnection: close\n\n", l.plain + " /y []"},
		"another host in the tunnel":  {"CONNECT " + l.plain + " HTTP/1.1\nHost: " + l.plain + "\nAUTH\n\nGET /y HTTP/1.1\nHost: evil.test\nConnection: close\n\n", "403 "},
		"no proxy request":            {"GET /x HTTP/1.1\nHost: " + l.plain + "\nAUTH\nConnection: close\n\n", "403 "},
		"https in the clear":          {"GET https://" + l.tls + "/x HTTP/1.1\nHost: " + l.tls + "\nAUTH\nConnection: close\n\n", "403 "},
		"tunnel without a port":       {"CONNECT example.com HTTP/1.1\nHost: example.com\nAUTH\nConnection: close\n\n", "403 "},
		"tunnel to port 0":            {"CONNECT example.com:0 HTTP/1.1\nHost: example.com:0\nAUTH\nConnection: close\n\n", "403 "},
		"tunnel to port 65536":        {"CONNECT example.com:65536 HTTP/1.1\nHost: example.com:65536\nAUTH\nConnection: close\n\n", "403 "},
		"no HTTP":                     {"\x16\x03\x01 nonsense\n\n", "400 "},
	} {
		if got := l.say(c.send); !strings.Contains(got, c.want) {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// With the session all connections end, and Serve returns.
func TestEndOfSession(t *testing.T) {
	l := newLab(t)
	conn, err := net.Dial("tcp", l.addr.String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "CONNECT %s HTTP/1.1\r\nHost: %s\r\nProxy-Authorization: Basic Y29mZmVyZGFtOnNlY3JldDEyMw==\r\n\r\n", l.plain, l.plain)
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil || !strings.Contains(line, "200") {
		t.Fatalf("%q %v", line, err)
	}
	l.end()
	if err := <-l.ended; err != nil {
		t.Error(err)
	}
	if _, err := io.Copy(io.Discard, conn); err != nil && !strings.Contains(err.Error(), "reset") {
		t.Error(err)
	}
	if _, err := net.Dial("tcp", l.addr.String()); err == nil {
		t.Error("it still listens")
	}
}
