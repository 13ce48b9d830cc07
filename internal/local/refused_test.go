package local

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"cofferdam"
)

// said is a Recorder that records nothing.
type said struct{}

func (said) Record(_ context.Context, e cofferdam.Event) (cofferdam.Event, error) { return e, nil }

// TestRefusedHosts: each refused host is remembered once, whatever was asked of
// it; drops of packets and what was allowed are not, and there is a bound.
func TestRefusedHosts(t *testing.T) {
	r := &refusals{Recorder: said{}}
	put := func(kind, resource string, v cofferdam.Verdict) {
		if _, err := r.Record(t.Context(), cofferdam.Event{Kind: kind, Resource: resource, Verdict: v}); err != nil {
			t.Fatal(err)
		}
	}
	put(cofferdam.EventDNS, "a.test", cofferdam.Refused)
	put(cofferdam.EventConnect, "a.test:443", cofferdam.Refused)
	put(cofferdam.EventRequest, "GET b.test:80/x?y", cofferdam.Refused)
	put(cofferdam.EventDrop, "ipv6 ff02::16", cofferdam.Refused)
	put(cofferdam.EventDrop, "address 192.0.2.7:443", cofferdam.Refused)
	put(cofferdam.EventDrop, "address 192.0.2.7:80", cofferdam.Refused)
	put(cofferdam.EventDrop, "address (more)", cofferdam.Refused)
	put(cofferdam.EventDrop, "udp 192.0.2.8:53", cofferdam.Refused)
	put(cofferdam.EventDrop, "udp 224.0.0.251:5353", cofferdam.Refused)
	put(cofferdam.EventDrop, "icmp 192.0.2.9", cofferdam.Refused)
	put(cofferdam.EventConnect, "[2001:db8::1]:443", cofferdam.Refused) // as a proxy is asked
	put(cofferdam.EventRequest, "GET c.test:80/", cofferdam.Allowed)
	if got := r.list(); !slices.Equal(got, []string{"a.test", "b.test", "192.0.2.7", "192.0.2.8", "2001:db8::1"}) {
		t.Errorf("refused: %q", got)
	}
	for i := range 2 * maxRefused {
		put(cofferdam.EventDNS, fmt.Sprintf("h%d.test", i), cofferdam.Refused)
	}
	if n := len(r.list()); n != maxRefused {
		t.Errorf("%d are remembered", n)
	}
}
