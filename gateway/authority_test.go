package gateway_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"cofferdam"
	"cofferdam/gateway"
	"cofferdam/gateway/gatewaytest"
	"cofferdam/policy"
)

// Every request on a connection that stands for one name has to name it, the
// second as the first; each that does not is on record and ends the connection.
func TestNamedConnection(t *testing.T) {
	to := gateway.Target{Host: "good.test", Port: 443}
	for name, c := range map[string]struct {
		requests []string
		codes    []int
		rule     string
	}{
		"honest":          {[]string{"GET /1 HTTP/1.1\r\nHost: good.test\r\n\r\n", "GET /2 HTTP/1.1\r\nHost: Good.test:443\r\n\r\n"}, []int{200, 200}, ""},
		"another":         {[]string{"GET / HTTP/1.1\r\nHost: evil.test\r\n\r\n"}, []int{403}, gateway.RuleHost},
		"another, second": {[]string{"GET / HTTP/1.1\r\nHost: good.test\r\n\r\n", "GET / HTTP/1.1\r\nHost: evil.test\r\n\r\n"}, []int{200, 403}, gateway.RuleHost},
		"another port":    {[]string{"GET / HTTP/1.1\r\nHost: good.test:80\r\n\r\n"}, []int{403}, gateway.RuleHost},
		"none":            {[]string{"GET / HTTP/1.0\r\n\r\n"}, []int{403}, gateway.RuleHost},
		"absolute":        {[]string{"GET https://good.test/ HTTP/1.1\r\nHost: good.test\r\n\r\n"}, []int{403}, gateway.RuleProxy},
		"connect":         {[]string{"CONNECT good.test:443 HTTP/1.1\r\nHost: good.test:443\r\n\r\n"}, []int{403}, gateway.RuleProxy},
	} {
		t.Run(name, func(t *testing.T) {
			caller, record, end := gatewaytest.NewCaller(t, policy.Grant{})
			defer end()
			client, server := net.Pipe()
			defer client.Close()
			done := make(chan struct{})
			go func() {
				defer close(done)
				gateway.ServeHTTP(caller, &gateway.Named{Conn: server, To: to}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					fmt.Fprintln(w, "served")
				}))
			}()
			client.SetDeadline(time.Now().Add(20 * time.Second))
			r := bufio.NewReader(client)
			for i, text := range c.requests {
				go io.WriteString(client, text)
				resp, err := http.ReadResponse(r, nil)
				if err != nil || resp.StatusCode != c.codes[i] {
					t.Fatalf("request %d: %v, %v", i+1, resp, err)
				}
				if _, err := io.ReadAll(resp.Body); err != nil {
					t.Fatal(err)
				}
			}
			if c.rule == "" {
				if e := record.Events(); len(e) != 0 {
					t.Errorf("on record: %v", e)
				}
				return
			}
			finished(t, done)
			e := record.Events()
			if len(e) != 1 || e[0].Rule != c.rule || e[0].Kind != cofferdam.EventRequest || e[0].Verdict != cofferdam.Refused {
				t.Errorf("on record: %v", e)
			}
		})
	}
}

// Each protocol that a model may speak has its provider's name; nothing else
// has one, so that an empty name never stands for a provider.
func TestProviderHosts(t *testing.T) {
	for _, protocol := range []string{"anthropic", "openai", "gemini"} {
		if h := gateway.ProviderHost(protocol); policy.CheckHost(h) != nil {
			t.Errorf("%s: %q", protocol, h)
		}
	}
	for _, protocol := range []string{"", "Anthropic", "other"} {
		if h := gateway.ProviderHost(protocol); h != "" {
			t.Errorf("%s: %q", protocol, h)
		}
	}
}
