package egress_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"math/big"
	mathrand "math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"cofferdam"
	"cofferdam/gateway"
	"cofferdam/gateway/egress"
	"cofferdam/gateway/gatewaytest"
	"cofferdam/gateway/wire"
	"cofferdam/policy"
)

// lab is a box's network, our gateway and the world outside: servers on one
// loopback address that answer for every name in hosts.
type lab struct {
	t       testing.TB
	box     *gatewaytest.Box
	caller  *gateway.Caller
	record  *gatewaytest.Recorder
	end     context.CancelFunc // of the session
	addr    netip.Addr
	dialer  *gateway.Dialer
	wire    *wire.Wire
	bundle  string // file with our CA and the lab's
	root    *x509.Certificate
	ours    *x509.CertPool // our CA alone
	trusted *x509.CertPool // what the gateway trusts outside
	models  models         // stands for the model gateway
	piece   chan string    // what /pieces writes next
	gone    chan struct{}  // closed when the client of /pieces is gone

	written  atomic.Int64           // bytes of /bytes
	trailers atomic.Pointer[string] // X-Late of a request to /trailer

	mu      sync.Mutex
	hosts   map[string][]netip.Addr // guarded by mu
	lookups []string                // names asked of the outside resolver; guarded by mu
	seen    []string                // requests that reached the outside; guarded by mu
	hellos  []string                // "SNI [ALPN]" of TLS that reached the outside; guarded by mu
}

// newLab starts a lab in which good.test, below.good.test and other.test
// exist outside, and the box may reach what allow lists.
func newLab(t testing.TB, allow ...string) *lab {
	t.Helper()
	return newLabFor(t, policy.Grant{Allow: gatewaytest.Allow(t, allow...)})
}

// newLabFor starts a lab whose box has what grant says.
func newLabFor(t testing.TB, grant policy.Grant) *lab {
	t.Helper()
	l := &lab{t: t, box: gatewaytest.NewBox(t), hosts: map[string][]netip.Addr{}, piece: make(chan string), gone: make(chan struct{})}
	l.caller, l.record, l.end = gatewaytest.NewCaller(t, grant)
	if grant.Model != "" {
		l.caller.Model = cofferdam.Model{Name: grant.Model, Provider: "anthropic"}
	}
	l.addr = netip.AddrFrom4([4]byte{127, byte(64 + mathrand.IntN(128)), byte(mathrand.IntN(256)), byte(1 + mathrand.IntN(250))})
	for _, h := range []string{"good.test", "below.good.test", "other.test", "evil.test", "wrong.test", "expired.test", "unknown.test", "modern.test", "mutual.test", "mutual12.test", "api.anthropic.com"} {
		l.hosts[h] = []netip.Addr{l.addr}
	}
	l.dialer = &gateway.Dialer{Allow: []netip.Prefix{netip.PrefixFrom(l.addr, 32)}, Resolver: l}
	ca, err := egress.OpenCA(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	l.serve(ca.PEM())
	l.trusted = x509.NewCertPool()
	l.trusted.AddCert(l.root)
	g := egress.New(egress.Options{Dialer: l.dialer, CA: ca, Roots: l.trusted})
	l.ours = x509.NewCertPool()
	l.ours.AppendCertsFromPEM(ca.PEM())
	l.wire, err = wire.Attach(l.box.Queue(), l.caller, wire.Routes{Others: g, Refused: g.Refusal(), Provider: g.Provider(&l.models)}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.wire.Close(); err != nil {
			t.Error(err)
		}
	})
	for _, name := range []string{"CURL_CA_BUNDLE", "SSL_CERT_FILE", "GIT_SSL_CAINFO", "NODE_EXTRA_CA_CERTS", "REQUESTS_CA_BUNDLE", "PIP_CERT"} {
		l.box.Env = append(l.box.Env, name+"="+l.bundle)
	}
	return l
}

// LookupNetIP is the resolver outside.
func (l *lab) LookupNetIP(_ context.Context, _, host string) ([]netip.Addr, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lookups = append(l.lookups, host)
	addrs, ok := l.hosts[host]
	if !ok {
		return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
	}
	return addrs, nil
}

// set makes name lead to addrs.
func (l *lab) set(name string, addrs ...string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.hosts[name] = nil
	for _, a := range addrs {
		l.hosts[name] = append(l.hosts[name], netip.MustParseAddr(a))
	}
}

// reached returns the requests that reached the outside so far.
func (l *lab) reached() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]string(nil), l.seen...)
}

func (l *lab) asked() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]string(nil), l.lookups...)
}

// ServeHTTP is every server outside.
func (l *lab) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	l.mu.Lock()
	l.seen = append(l.seen, fmt.Sprintf("%s %s%s %s", r.Method, r.Host, r.RequestURI, body))
	l.mu.Unlock()
	if err != nil {
		return
	}
	switch {
	case r.URL.Path == "/echo":
		w.Write(body)
	case r.URL.Path == "/break":
		w.Header().Set("Content-Length", "1000")
		io.WriteString(w, "only this")
		http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	case r.URL.Path == "/break-chunked":
		io.WriteString(w, "only this")
		http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	case r.URL.Path == "/pieces":
		l.pieces(w, r)
	case r.URL.Path == "/trailer":
		w.Header().Set("Trailer", "X-Sum")
		io.WriteString(w, "body")
		w.Header().Set("X-Sum", "of the answer")
		late := r.Trailer.Get("X-Late")
		l.trailers.Store(&late)
	case r.URL.Path == "/cookie":
		http.SetCookie(w, &http.Cookie{Name: "sid", Value: "given", Path: "/", HttpOnly: true})
		fmt.Fprintf(w, "cookies %q\n", r.Header["Cookie"])
	case r.URL.Path == "/upgrade":
		upgrade(w, r)
	case strings.HasPrefix(r.URL.Path, "/bytes/"), strings.HasPrefix(r.URL.Path, "/late/bytes/"):
		if strings.HasPrefix(r.URL.Path, "/late") {
			<-r.Context().Done() // the client has said all
		}
		n := 0
		fmt.Sscanf(strings.TrimPrefix(r.URL.Path, "/late"), "/bytes/%d", &n)
		io.Copy(w, io.LimitReader(&counted{n: &l.written}, int64(n)))
	default:
		fmt.Fprintf(w, "hello from %s\n", r.Host)
	}
}

// pieces writes one piece whenever the test says so, and tells the test when
// its client is gone.
func (l *lab) pieces(w http.ResponseWriter, r *http.Request) {
	for {
		select {
		case p, ok := <-l.piece:
			if !ok {
				return
			}
			io.WriteString(w, p)
			http.NewResponseController(w).Flush()
		case <-r.Context().Done():
			close(l.gone)
			return
		}
	}
}

// upgrade echoes lines to a WebSocket client, and tells every other what it
// asked for.
func upgrade(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Upgrade") != "websocket" {
		fmt.Fprintf(w, "upgrade to %q\n", r.Header.Get("Upgrade"))
		return
	}
	conn, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer conn.Close()
	io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
	io.Copy(conn, rw)
}

// counted is endless zeros that says how much of it was taken.
type counted struct{ n *atomic.Int64 }

// Read reads zeros.
func (c *counted) Read(b []byte) (int, error) {
	clear(b)
	c.n.Add(int64(len(b)))
	return len(b), nil
}

// serve starts the servers on ports 80, 443 and 8080.
func (l *lab) serve(ours []byte) {
	now := time.Now()
	cert := l.certificate(now.Add(time.Hour), "good.test", "below.good.test", "other.test", "modern.test", "mutual.test", "mutual12.test", "api.anthropic.com")
	unknown, expired := l.certificate(now.Add(time.Hour), "unknown.test"), l.certificate(now.Add(-time.Minute), "expired.test")
	wrong := l.certificate(now.Add(time.Hour), "fine.test", "also\nfine.test")
	l.root = cert.Leaf
	l.bundle = filepath.Join(l.t.TempDir(), "ca.pem")
	roots := append(bytes.Clone(ours), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: l.root.Raw})...)
	if err := os.WriteFile(l.bundle, roots, 0o644); err != nil {
		l.t.Fatal(err)
	}
	for _, port := range []uint16{80, 443, 8080} {
		ln, err := net.Listen("tcp", netip.AddrPortFrom(l.addr, port).String())
		if err != nil {
			l.t.Fatal(err)
		}
		if port == 443 {
			ln = tls.NewListener(ln, &tls.Config{GetConfigForClient: peculiar(&cert), GetCertificate: func(i *tls.ClientHelloInfo) (*tls.Certificate, error) {
				l.mu.Lock()
				defer l.mu.Unlock()
				l.hellos = append(l.hellos, fmt.Sprintf("%s %v", i.ServerName, i.SupportedProtos))
				switch i.ServerName {
				case "unknown.test":
					return &unknown, nil
				case "expired.test":
					return &expired, nil
				case "wrong.test":
					return &wrong, nil
				}
				return &cert, nil
			}})
		}
		srv := &http.Server{Handler: l, ErrorLog: log.New(io.Discard, "", 0)}
		go srv.Serve(ln)
		l.t.Cleanup(func() { srv.Close() })
	}
}

// peculiar returns the settings of hosts that ask more of a client than most.
func peculiar(cert *tls.Certificate) func(*tls.ClientHelloInfo) (*tls.Config, error) {
	return func(i *tls.ClientHelloInfo) (*tls.Config, error) {
		c := &tls.Config{Certificates: []tls.Certificate{*cert}}
		switch i.ServerName {
		case "modern.test":
			c.NextProtos = []string{"other"} // Go lets HTTP/1.1 pass beside h2
		case "mutual12.test":
			c.MaxVersion = tls.VersionTLS12
			fallthrough
		case "mutual.test":
			c.ClientAuth = tls.RequireAnyClientCert
		default:
			return nil, nil
		}
		return c, nil
	}
}

// certificate returns one that signs itself.
func (l *lab) certificate(until time.Time, names ...string) tls.Certificate {
	l.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		l.t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "lab"}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: until, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		DNSNames: names,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		l.t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		l.t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
}

// models stands for the model gateway: it tells what it is asked.
type models struct {
	mu   sync.Mutex
	seen []string // requests; guarded by mu
}

// Serve implements gateway.Handler.
func (m *models) Serve(c *gateway.Caller, conn net.Conn, to gateway.Target) {
	gateway.ServeHTTP(c, conn, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		m.mu.Lock()
		m.seen = append(m.seen, r.Method+" "+r.Host+r.URL.Path+" for "+to.String())
		m.mu.Unlock()
		fmt.Fprintf(w, "the model gateway for %s\n", to)
	}))
}

// refusals returns "rule resource" of every refusal on record.
func (l *lab) refusals() []string {
	var out []string
	for _, e := range l.record.Events() {
		if e.Verdict == cofferdam.Refused {
			out = append(out, e.Rule+" "+e.Resource)
		}
	}
	return out
}

// settled waits until every allowed decision has its outcome on record, so
// that what follows sees all of it.
func (l *lab) settled() {
	l.t.Helper()
	deadline := time.Now().Add(time.Minute)
	for {
		open := map[uint64]bool{}
		for _, e := range l.record.Events() {
			if e.Verdict == cofferdam.Allowed {
				open[e.Seq] = true
			}
			if e.Of != nil {
				delete(open, *e.Of)
			}
		}
		if len(open) == 0 {
			return
		}
		if time.Now().After(deadline) {
			l.t.Fatalf("decisions without outcome: %v", open)
		}
		time.Sleep(time.Millisecond)
	}
}

// contains fails the test unless text has every part.
func contains(t testing.TB, text string, parts ...string) {
	t.Helper()
	for _, p := range parts {
		if !strings.Contains(text, p) {
			t.Errorf("%q is missing in:\n%s", p, text)
		}
	}
}
