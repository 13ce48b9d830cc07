package git

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"cofferdam"
)

// One organisation's connection to a host is none of another's: what it has open
// makes nothing faster for the other, and is not shared with it.
func TestConnectionsAreOfOneOrganization(t *testing.T) {
	var made atomic.Int32
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			made.Add(1)
		}
	}
	s.Start()
	defer s.Close()
	g := New(Options{})
	g.clients.like.DialContext = (&net.Dialer{}).DialContext // the gateways' own dialer refuses this machine
	for _, c := range []struct {
		organization cofferdam.OrganizationID
		made         int32
	}{{"o-a", 1}, {"o-a", 1}, {"o-b", 2}, {"o-a", 2}, {"o-b", 2}} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := g.clients.forOne(c.organization).RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, answer.Body)
		answer.Body.Close()
		if made.Load() != c.made {
			t.Errorf("after a request of %s: %d connections, not %d", c.organization, made.Load(), c.made)
		}
	}
	for _, one := range g.clients.of {
		one.CloseIdleConnections()
	}
}
