package api

import (
	"net"
	"sync"
)

// bounded is a listener with at most n open connections; more wait in the
// kernel's queue. Of one source, which is not free of it, there are own at most,
// and another is closed at once: a stranger keeps nobody out. Close wakes an
// Accept that waits for room.
type bounded struct {
	net.Listener
	room   chan struct{}
	closed chan struct{}
	once   sync.Once
	own    int
	free   func(source string) bool

	mu sync.Mutex
	of map[string]int // guarded by mu; open connections of each source
}

func newBounded(l net.Listener, n, own int, free func(source string) bool) *bounded {
	return &bounded{Listener: l, room: make(chan struct{}, n), closed: make(chan struct{}), own: own, free: free, of: map[string]int{}}
}

// Accept waits for room first.
func (b *bounded) Accept() (net.Conn, error) {
	select {
	case b.room <- struct{}{}:
	case <-b.closed:
		return nil, net.ErrClosed
	}
	for {
		c, err := b.Listener.Accept()
		if err != nil {
			<-b.room
			return nil, err
		}
		source := sourceOf(c)
		if b.count(source) {
			return &boundedConn{Conn: c, source: source, free: func() { b.gone(source); <-b.room }}, nil
		}
		_ = c.Close() // nobody waits for how that goes
	}
}

// count takes a connection of a source into account; false if it has too many.
func (b *bounded) count(source string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.of[source] >= b.own && !b.free(source) {
		return false
	}
	b.of[source]++
	return true
}

func (b *bounded) gone(source string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.of[source]--; b.of[source] <= 0 {
		delete(b.of, source)
	}
}

// Close ends Accept.
func (b *bounded) Close() error {
	b.once.Do(func() { close(b.closed) })
	return b.Listener.Close()
}

type boundedConn struct {
	net.Conn
	source string
	once   sync.Once
	free   func()
}

// Close gives the room back once.
func (c *boundedConn) Close() error {
	err := c.Conn.Close()
	c.once.Do(c.free)
	return err
}
