package local

import (
	"context"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"cofferdam"
)

// maxRefused bounds the hosts that a run is told it was refused.
const maxRefused = 16

// refusals is a Recorder that remembers which hosts were refused.
type refusals struct {
	cofferdam.Recorder

	mu    sync.Mutex
	hosts []string // in the order they were refused, at most maxRefused; guarded by mu
}

// Record implements cofferdam.Recorder.
func (r *refusals) Record(ctx context.Context, e cofferdam.Event) (cofferdam.Event, error) {
	e, err := r.Recorder.Record(ctx, e)
	if e.Verdict == cofferdam.Refused {
		switch e.Kind {
		case cofferdam.EventDNS, cofferdam.EventConnect, cofferdam.EventRequest:
			r.note(hostIn(e.Resource))
		case cofferdam.EventDrop:
			r.note(addressIn(e.Resource))
		}
	}
	return e, err
}

func (r *refusals) note(host string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if host != "" && len(r.hosts) < maxRefused && !slices.Contains(r.hosts, host) {
		r.hosts = append(r.hosts, host)
	}
}

// list returns the hosts.
func (r *refusals) list() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.hosts)
}

// addressIn finds the address in "address ADDRESS:PORT" and "udp ADDRESS:PORT",
// which is what a wire says of what a program sent to one that stands for no name.
// Of what else it drops (what a kernel sends by itself, above all) the trace tells.
func addressIn(resource string) string {
	kind, to, _ := strings.Cut(resource, " ")
	at, err := netip.ParseAddrPort(to)
	if err != nil || kind != "address" && kind != "udp" || at.Addr().IsMulticast() {
		return ""
	}
	return at.Addr().String()
}

// hostIn finds the host in [METHOD ]HOST[:PORT][/PATH].
func hostIn(resource string) string {
	if _, rest, ok := strings.Cut(resource, " "); ok {
		resource = rest
	}
	if inner, _, ok := strings.Cut(strings.TrimPrefix(resource, "["), "]"); ok && strings.HasPrefix(resource, "[") {
		return inner
	}
	if i := strings.IndexAny(resource, ":/"); i >= 0 {
		resource = resource[:i]
	}
	return resource
}
