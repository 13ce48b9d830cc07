package egress_test

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"cofferdam/gateway"
	"cofferdam/gateway/egress"
	"cofferdam/gateway/gatewaytest"
	"cofferdam/policy"
)

const providerName = "api.anthropic.com"

// withModel is a box with a model, whose allow list holds its provider's name
// too: neither opens a way outside.
func withModel(t *testing.T) *lab {
	return newLabFor(t, policy.Grant{
		Model: "main", Provider: providerName,
		Allow: gatewaytest.Allow(t, providerName, "splice:*.anthropic.com", "good.test"),
	})
}

// The provider's own name leads to the model gateway, for every client and
// every request on a connection that names it.
func TestProviderNameLeadsToTheModel(t *testing.T) {
	l := withModel(t)
	out, err := l.box.Run("curl", "-sSf", "-d", "{}", "https://"+providerName+"/v1/messages")
	if err != nil || out != "the model gateway for "+providerName+":443\n" {
		t.Fatalf("%v: %s", err, out)
	}
	conn := l.secure(providerName)
	conn.SetDeadline(time.Now().Add(20 * time.Second))
	r := bufio.NewReader(conn)
	for _, host := range []string{providerName, providerName + ":443", "API.Anthropic.com"} {
		fmt.Fprintf(conn, "GET /v1/models HTTP/1.1\r\nHost: %s\r\n\r\n", host)
		resp, err := http.ReadResponse(r, nil)
		if err != nil || resp.StatusCode != 200 {
			t.Fatalf("%s: %v, %v", host, resp, err)
		}
		resp.Body.Close()
		r.Discard(r.Buffered())
	}
	l.outsideIsUntouched()
}

func (l *lab) outsideIsUntouched() {
	l.t.Helper()
	if r, h, a := l.reached(), l.greeted(), l.asked(); len(r)+len(h)+len(a) != 0 {
		l.t.Errorf("reached the outside: requests %q, hellos %q, names %q", r, h, a)
	}
}

// CRD-04 and EGR-04 at the name that gets a key attached: whoever names another
// host, in the handshake or in a request, reaches neither.
func TestProviderNameIsOneName(t *testing.T) {
	l := withModel(t)
	for name, request := range map[string]string{
		"other host":       "GET / HTTP/1.1\r\nHost: evil.test\r\n\r\n",
		"our own name":     "GET / HTTP/1.1\r\nHost: model.cofferdam.internal\r\n\r\n",
		"other port":       "GET / HTTP/1.1\r\nHost: " + providerName + ":80\r\n\r\n",
		"brackets":         "GET / HTTP/1.1\r\nHost: [evil.test]\r\n\r\n",
		"absolute":         "GET https://evil.test/ HTTP/1.1\r\nHost: " + providerName + "\r\n\r\n",
		"connect":          "CONNECT evil.test:443 HTTP/1.1\r\nHost: " + providerName + "\r\n\r\n",
		"second request":   "GET /1 HTTP/1.1\r\nHost: " + providerName + "\r\n\r\nGET /2 HTTP/1.1\r\nHost: evil.test\r\n\r\n",
		"no host, old way": "GET / HTTP/1.0\r\n\r\n",
	} {
		out := l.sendTLS(providerName, request)
		if !strings.Contains(out, "403 Forbidden") || strings.Count(out, "the model gateway for") > strings.Count(request, "GET /1") {
			t.Errorf("%s: %s", name, out)
		}
	}
	for _, m := range l.models.seen {
		if m != "GET "+providerName+"/1 for "+providerName+":443" {
			t.Errorf("reached the model gateway: %s", m)
		}
	}
	if len(l.models.seen) != 1 {
		t.Errorf("the model gateway saw %q", l.models.seen)
	}
	for _, sni := range []string{"evil.test", "good.test", ""} {
		r, _, err := l.handshake(providerName, sni)
		if err == nil && r.Header.Get("X-Cofferdam-Rule") != gateway.RuleHost {
			t.Errorf("server name %q: %v", sni, r)
		}
	}
	// Another name's address, with the provider's name in the handshake.
	if r, _, err := l.handshake("good.test", providerName); err != nil || r.Header.Get("X-Cofferdam-Rule") != gateway.RuleHost {
		t.Errorf("provider's name at another address: %v, %v", r, err)
	}
	// Without TLS, on either port.
	if out, err := l.box.Run("curl", "-sS", "http://"+providerName+"/v1/messages"); err == nil {
		t.Errorf("port 80: %s", out)
	}
	out, _ := l.box.Run("curl", "-sS", "-i", "http://"+providerName+":443/v1/messages")
	contains(t, out, "403 Forbidden", "X-Cofferdam-Rule: protocol", "in TLS alone")
	l.outsideIsUntouched()
}

// Without a model the name is like any other: refused, or an ordinary host.
func TestProviderNameWithoutAModel(t *testing.T) {
	l := newLab(t, "good.test")
	out, _ := l.box.Run("curl", "-sS", "-i", "https://"+providerName+"/v1/messages")
	contains(t, out, "403 Forbidden", "X-Cofferdam-Rule: default-deny")
	l.outsideIsUntouched()
	l = newLab(t, providerName)
	if out, err := l.box.Run("curl", "-sSf", "https://"+providerName+"/v1/messages"); err != nil || out != "hello from "+providerName+"\n" {
		t.Errorf("%v: %s", err, out)
	}
	if len(l.models.seen) != 0 || !slices.Equal(l.reached(), []string{"GET " + providerName + "/v1/messages "}) {
		t.Errorf("the model gateway saw %q, the outside %q", l.models.seen, l.reached())
	}
}

// A client of the provider that does not trust us is on record like any other.
func TestProviderClientThatDoesNotTrustUs(t *testing.T) {
	l := withModel(t)
	conn, err := l.box.DialName(providerName, 443)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if tls.Client(conn, &tls.Config{ServerName: providerName}).Handshake() == nil {
		t.Error("trusts us")
	}
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		for _, e := range l.record.Events() {
			if e.Rule == egress.RuleUntrusted && e.Resource == providerName+":443" {
				contains(t, e.Fields["hint"], egress.TrustPath, "http://model.cofferdam.internal")
				return
			}
		}
	}
	t.Errorf("refusals: %q", l.refusals())
}
