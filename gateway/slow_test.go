package gateway_test

import (
	"io"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"cofferdam/gateway"
	"cofferdam/gateway/gatewaytest"
	"cofferdam/policy"
)

// A header that comes in drops is cut off, and so is a connection that is
// kept open for nothing.
func TestSlowClientsAreCutOff(t *testing.T) {
	for name, c := range map[string]struct {
		first string
		drip  string
		limit time.Duration
	}{
		"header in drops": {"GET / HTTP/1.1\r\nHost: x\r\n", "X: y\r\n", time.Minute},
		"idle":            {"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "", 10 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				caller, _, end := gatewaytest.NewCaller(t, policy.Grant{})
				defer end()
				client, server := net.Pipe()
				go io.Copy(io.Discard, client)
				done := make(chan struct{})
				start := time.Now()
				go func() {
					defer close(done)
					gateway.ServeHTTP(caller, server, http.NotFoundHandler())
				}()
				dripped := make(chan struct{})
				go func() {
					defer close(dripped)
					io.WriteString(client, c.first)
					for c.drip != "" {
						if _, err := io.WriteString(client, c.drip); err != nil {
							return
						}
						time.Sleep(5 * time.Second)
					}
				}()
				<-done
				if d := time.Since(start); d > c.limit {
					t.Errorf("cut off only after %v", d)
				}
				client.Close()
				<-dripped // it may be between two drops
			})
		})
	}
}
