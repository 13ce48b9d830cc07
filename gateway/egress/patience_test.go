package egress

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"cofferdam"
	"cofferdam/gateway"
	"cofferdam/gateway/gatewaytest"
	"cofferdam/policy"
)

// What a client does after the handshake tells whether it trusts us: one that
// closes at once does not; one that closes later had no need of the connection,
// and one that says nothing is given up.
func TestClientsThatAskNothing(t *testing.T) {
	ca, err := OpenCA(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name  string
		after time.Duration
		rule  string
	}{
		{"closes at once", 0, RuleUntrusted},
		{"closes just in time", distrustTimeout - time.Millisecond, RuleUntrusted},
		{"closes later", distrustTimeout, ""},
		{"never closes", time.Hour, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				caller, record, end := gatewaytest.NewCaller(t, policy.Grant{Allow: gatewaytest.Allow(t, "good.test")})
				defer end()
				client, server := net.Pipe()
				defer client.Close()
				begun := time.Now()
				go func() {
					s := tls.Client(client, &tls.Config{ServerName: "good.test", InsecureSkipVerify: true}) // the clock stands in another century
					if err := s.Handshake(); err != nil {
						t.Error(err)
					}
					timer := time.AfterFunc(c.after, func() { client.Close() })
					defer timer.Stop()
					io.Copy(io.Discard, s)
				}()
				New(Options{Dialer: new(gateway.Dialer), CA: ca}).Serve(caller, server, gateway.Target{Host: "good.test", Port: 443})
				if d := time.Since(begun); d > firstByteTimeout+time.Second {
					t.Errorf("given up only after %v", d)
				}
				rule := ""
				for _, e := range record.Events() {
					rule += e.Rule
				}
				if rule != c.rule {
					t.Errorf("rule %q, want %q", rule, c.rule)
				}
			})
		})
	}
}

// A host that takes the connection and does not go on with TLS is given up, and
// the end of the session ends the attempt at once.
func TestUpstreamHandshakeIsBounded(t *testing.T) {
	for name, live := range map[string]time.Duration{"silent": time.Hour, "session ends": time.Second} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				caller, _, end := gatewaytest.NewCaller(t, policy.Grant{})
				defer end()
				timer := time.AfterFunc(live, end)
				defer timer.Stop()
				near, far := net.Pipe()
				defer far.Close()
				go io.Copy(io.Discard, far)
				begun := time.Now()
				f := &forwarder{gateway: New(Options{}), caller: caller, to: gateway.Target{Host: "good.test", Port: 443}}
				conn, err := f.secure(context.Background(), near)
				if conn != nil || cofferdam.KindOf(err) != cofferdam.Unavailable {
					t.Errorf("%v, %v", conn, err)
				}
				if d := time.Since(begun); d > min(upstreamTimeout, live) {
					t.Errorf("given up only after %v", d)
				}
				if _, err := near.Write([]byte("x")); !errors.Is(err, io.ErrClosedPipe) {
					t.Errorf("the connection is left open: %v", err)
				}
			})
		})
	}
}
