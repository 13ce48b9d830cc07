package egress_test

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"cofferdam"
	"cofferdam/gateway/egress"
	"cofferdam/gateway/gatewaytest"
	"cofferdam/policy"
)

// TLS to an allowed host is read: method, path and sizes are on record, the
// box sees our certificate, and the host sees a verified TLS client.
func TestTLSIsRead(t *testing.T) {
	l := newLab(t, "good.test")
	out, err := l.box.Run("curl", "-sSf", "-d", "x=12345", "https://good.test/echo?q=1")
	if err != nil || out != "x=12345" {
		t.Fatalf("%v: %s", err, out)
	}
	l.settled()
	events := l.record.Find(cofferdam.EventRequest)
	if len(events) != 2 {
		t.Fatalf("%d events of the request, want decision and outcome: %v", len(events), events)
	}
	if d := events[0]; d.Verdict != cofferdam.Allowed || d.Resource != "POST good.test:443/echo" || d.Fields["query"] != "q=1" || d.Fields["content"] != "" {
		t.Errorf("decision: %+v", d)
	}
	if o := events[1]; o.Outcome != "ok" || o.Fields["status"] != "200" || o.Fields["sent"] != "7" || o.Fields["received"] != "7" || o.Fields["address"] != l.addr.String()+":443" {
		t.Errorf("outcome: %+v", o)
	}
	if got := l.greeted(); len(got) != 1 || got[0] != "good.test [http/1.1]" {
		t.Errorf("the host was greeted by %q", got)
	}
	conn, err := l.box.DialName("good.test", 443)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	c := tls.Client(conn, &tls.Config{ServerName: "good.test", RootCAs: l.ours, NextProtos: []string{"h2", "http/1.1"}})
	if err := c.Handshake(); err != nil {
		t.Fatal(err)
	}
	if s := c.ConnectionState(); s.NegotiatedProtocol != "http/1.1" {
		t.Errorf("speaks %q", s.NegotiatedProtocol)
	}
}

// greeted returns the TLS hellos that reached the outside so far.
func (l *lab) greeted() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.hellos)
}

// A spliced host sees the client itself, whatever it speaks inside, and the
// record says that the content was unseen.
func TestSpliceByRule(t *testing.T) {
	l := newLab(t, "splice:good.test", "other.test")
	conn, err := l.box.DialName("good.test", 443)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	theirs := x509.NewCertPool()
	theirs.AddCert(l.root)
	c := tls.Client(conn, &tls.Config{ServerName: "good.test", RootCAs: theirs, NextProtos: []string{"anything"}})
	fmt.Fprintf(c, "GET /unseen HTTP/1.1\r\nHost: good.test\r\nConnection: close\r\n\r\n")
	if r, err := http.ReadResponse(bufio.NewReader(c), nil); err != nil || r.StatusCode != 200 {
		t.Fatalf("%v, %v", r, err)
	}
	conn.Close()
	l.settled()
	if got := l.greeted(); len(got) != 1 || got[0] != "good.test [anything]" {
		t.Errorf("the host was greeted by %q", got)
	}
	if e := l.record.Find(cofferdam.EventConnect); len(e) != 2 || e[0].Fields["content"] != "unseen" || e[0].Verdict != cofferdam.Allowed || e[1].Fields["received"] == "0" {
		t.Errorf("record: %v", e)
	}
	if e := l.record.Find(cofferdam.EventRequest); len(e) != 0 {
		t.Errorf("requests are on record that nobody saw: %v", e)
	}
	// Plain HTTP to the same host is read, and so is TLS to any other.
	for _, url := range []string{"http://good.test/plain", "https://other.test/tls"} {
		if out, err := l.box.Run("curl", "-sSf", url); err != nil {
			t.Errorf("%s: %v: %s", url, err, out)
		}
	}
	l.settled()
	if e := l.record.Find(cofferdam.EventRequest); len(e) != 4 {
		t.Errorf("%d events of two requests: %v", len(e), e)
	}
}

// Policy of an operator that forbids all connections to a host also holds for
// TLS that would be read.
func TestForbiddenConnection(t *testing.T) {
	l := newLabFor(t, policy.Grant{
		Allow:    gatewaytest.Allow(t, "good.test", "splice:other.test"),
		Operator: `@id("closed") forbid (principal, action == Action::"connect", resource);`,
	})
	for _, url := range []string{"https://good.test/", "https://other.test/"} {
		out, _ := l.box.Run("curl", "-sS", "-i", url)
		contains(t, out, "403 Forbidden", "X-Cofferdam-Rule: closed")
	}
	if got := l.greeted(); len(got) != 0 {
		t.Errorf("greeted: %q", got)
	}
}

// The certificate of the host outside is verified; what is wrong with it is
// told and on record, and no byte of the request is sent.
func TestUpstreamCertificate(t *testing.T) {
	l := newLab(t, "good.test", "unknown.test", "expired.test", "wrong.test", "modern.test", "mutual.test", "mutual12.test", "good.test:80", "other.test:8080")
	for _, c := range []struct{ url, reason string }{
		{"https://unknown.test/secret", "signed by an authority that this machine does not know"},
		{"https://expired.test/secret", "which is not now"},
		{"https://wrong.test/secret", `is for another name ("fine.test", "also\nfine.test")`},
	} {
		out, err := l.box.Run("curl", "-sS", "-i", "-d", "canary", c.url)
		if err != nil {
			t.Errorf("%s: %v", c.url, err)
		}
		contains(t, out, "403 Forbidden", "X-Cofferdam-Rule: upstream-certificate", c.reason, "hint: ")
		host := strings.Split(c.url, "/")[2]
		l.settled()
		if !slices.Contains(l.refusals(), egress.RuleCertificate+" "+host+":443") {
			t.Errorf("%s: refusals on record: %q", host, l.refusals())
		}
		if e := l.record.Find(cofferdam.EventRequest); e[len(e)-1].Outcome != "failed" || !strings.Contains(e[len(e)-1].Reason, c.reason) {
			t.Errorf("%s: outcome %+v", host, e[len(e)-1])
		}
	}
	// A host that speaks no TLS on its port.
	out, _ := l.box.Run("curl", "-sS", "-i", "https://other.test:8080/")
	contains(t, out, "503 ", "it does not speak TLS there")
	// Hosts that a client has to speak to itself.
	for host, reason := range map[string]string{
		"modern.test": "it speaks no HTTP/1.1", "mutual.test": "for want of a certificate of the client", "mutual12.test": "for want of a certificate of the client",
	} {
		out, _ := l.box.Run("curl", "-sS", "-i", "https://"+host+"/")
		contains(t, out, "503 ", reason, "--allow splice:"+host)
	}
	if r := l.reached(); len(r) != 0 {
		t.Errorf("reached the outside: %q", r)
	}
	if out, err := l.box.Run("curl", "-sSf", "https://good.test/"); err != nil {
		t.Errorf("twin: %v: %s", err, out)
	}
}

// A client that does not trust our authority is on record with what to do,
// whenever it looks at the certificate; the host outside hears nothing.
func TestClientThatDoesNotTrustUs(t *testing.T) {
	l := newLab(t, "good.test")
	none := x509.NewCertPool()
	none.AddCert(l.root)
	for name, c := range map[string]*tls.Config{
		"tls 1.3": {ServerName: "good.test", RootCAs: none},
		"tls 1.2": {ServerName: "good.test", RootCAs: none, MaxVersion: tls.VersionTLS12},
	} {
		l.record.Clear()
		conn, err := l.box.DialName("good.test", 443)
		if err != nil {
			t.Fatal(err)
		}
		if err := tls.Client(conn, c).Handshake(); err == nil {
			t.Errorf("%s: the client trusts us", name)
		}
		conn.Close()
		l.untrusted(name)
	}
	bare := "SSL_CERT_FILE=/nonexistent"
	for name, argv := range map[string][]string{
		"curl":   {"env", "-u", "SSL_CERT_FILE", "-u", "CURL_CA_BUNDLE", "curl", "-sS", "https://good.test/"},
		"python": {"env", bare, "python3", "-c", "import urllib.request; urllib.request.urlopen('https://good.test/')"},
		"node":   {"env", "-u", "NODE_EXTRA_CA_CERTS", bare, "node", "-e", "fetch('https://good.test/').catch(e=>{console.error(e.cause);process.exit(1)})"},
	} {
		l.record.Clear()
		if out, err := l.box.Run(argv...); err == nil {
			t.Errorf("%s: trusts us: %s", name, out)
		}
		l.untrusted(name)
	}
	if got := l.greeted(); len(got) != 0 {
		t.Errorf("the host outside was greeted: %q", got)
	}
	// The twin: a client that opens a connection ahead of need and waits.
	l.record.Clear()
	c := l.secure("good.test")
	time.Sleep(50 * time.Millisecond)
	fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: good.test\r\n\r\n")
	if r, err := http.ReadResponse(bufio.NewReader(c), nil); err != nil || r.StatusCode != 200 {
		t.Errorf("twin: %v, %v", r, err)
	}
	if r := l.refusals(); len(r) != 0 {
		t.Errorf("twin: refused %q", r)
	}
}

// untrusted waits for the refusal of a client that does not trust us.
func (l *lab) untrusted(name string) {
	l.t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		for _, e := range l.record.Find(cofferdam.EventConnect) {
			if e.Rule == egress.RuleUntrusted && e.Resource == "good.test:443" && strings.Contains(e.Reason, "good.test is read") {
				contains(l.t, e.Fields["hint"], egress.TrustPath, "--allow splice:good.test")
				return
			}
		}
		if time.Now().After(deadline) {
			l.t.Errorf("%s: no refusal on record: %v", name, l.record.Events())
			return
		}
	}
}

// What is not HTTP/1.1 inside TLS is refused with the entry that would let it
// pass, and none of it leaves.
func TestOtherProtocolsInsideTLS(t *testing.T) {
	l := newLab(t, "good.test", "other.test:8080")
	for name, c := range map[string]struct {
		config *tls.Config
		text   string
		client string // what the client hears
		reason string
	}{
		"http/2 alone": {&tls.Config{NextProtos: []string{"h2"}}, "", "no application protocol", "offers no HTTP/1.1"},
		"mail":         {&tls.Config{NextProtos: []string{"imap"}}, "", "no application protocol", "offers no HTTP/1.1"},
		"old":          {&tls.Config{MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11}, "", "protocol version", "handshake did not come about"},
		"binary":       {&tls.Config{}, "\x00\x01\x02", "", "no HTTP"},
		"small":        {&tls.Config{}, "a001 login x y\r\n", "", "no HTTP"},
	} {
		t.Run(name, func(t *testing.T) {
			l.record.Clear()
			conn, err := l.box.DialName("good.test", 443)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			conn.SetDeadline(time.Now().Add(time.Minute))
			c.config.ServerName, c.config.RootCAs = "good.test", l.ours
			s := tls.Client(conn, c.config)
			err = s.Handshake()
			if c.client != "" && (err == nil || !strings.Contains(err.Error(), c.client)) {
				t.Errorf("the client hears %v", err)
			}
			if err == nil {
				io.WriteString(s, c.text)
				if out, _ := io.ReadAll(s); len(out) != 0 {
					t.Errorf("answered: %q", out)
				}
			}
			for deadline := time.Now().Add(time.Minute); len(l.refusals()) == 0 && time.Now().Before(deadline); {
				time.Sleep(time.Millisecond)
			}
			e := l.record.Find(cofferdam.EventConnect)
			if len(e) != 1 || e[0].Rule != egress.RuleProtocol || !strings.Contains(e[0].Reason, c.reason) || !strings.Contains(e[0].Fields["hint"], "splice:good.test") {
				t.Errorf("record: %v", e)
			}
		})
	}
	if got := l.greeted(); len(got) != 0 {
		t.Errorf("greeted: %q", got)
	}
}
