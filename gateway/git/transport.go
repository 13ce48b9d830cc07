package git

import (
	"net/http"
	"sync"

	"cofferdam"
)

// transports has one for each organisation: a connection that one has open to a
// host makes nothing faster for another, and the host sees no two of them on one.
type transports struct {
	like *http.Transport

	mu sync.Mutex
	of map[cofferdam.OrganizationID]*http.Transport // guarded by mu; what is idle in one ends by itself
}

func (t *transports) forOne(o cofferdam.OrganizationID) *http.Transport {
	t.mu.Lock()
	defer t.mu.Unlock()
	one := t.of[o]
	if one == nil {
		one = t.like.Clone()
		t.of[o] = one
	}
	return one
}
