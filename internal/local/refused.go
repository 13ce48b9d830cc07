package local

import (
	"context"
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
	if e.Verdict == cofferdam.Refused && (e.Kind == cofferdam.EventDNS || e.Kind == cofferdam.EventConnect || e.Kind == cofferdam.EventRequest) {
		r.note(hostIn(e.Resource))
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

// hostIn finds the host in [METHOD ]HOST[:PORT][/PATH].
func hostIn(resource string) string {
	if _, rest, ok := strings.Cut(resource, " "); ok {
		resource = rest
	}
	if i := strings.IndexAny(resource, ":/"); i >= 0 {
		resource = resource[:i]
	}
	return resource
}
