package api

import (
	"net"
	"sync"
)

// bounded is a listener with at most n open connections; more wait in the
// kernel's queue. Close wakes an Accept that waits for room.
type bounded struct {
	net.Listener
	room   chan struct{}
	closed chan struct{}
	once   sync.Once
}

func newBounded(l net.Listener, n int) *bounded {
	return &bounded{Listener: l, room: make(chan struct{}, n), closed: make(chan struct{})}
}

// Accept waits for room first.
func (b *bounded) Accept() (net.Conn, error) {
	select {
	case b.room <- struct{}{}:
	case <-b.closed:
		return nil, net.ErrClosed
	}
	c, err := b.Listener.Accept()
	if err != nil {
		<-b.room
		return nil, err
	}
	return &boundedConn{Conn: c, free: func() { <-b.room }}, nil
}

// Close ends Accept.
func (b *bounded) Close() error {
	b.once.Do(func() { close(b.closed) })
	return b.Listener.Close()
}

type boundedConn struct {
	net.Conn
	once sync.Once
	free func()
}

// Close gives the room back once.
func (c *boundedConn) Close() error {
	err := c.Conn.Close()
	c.once.Do(c.free)
	return err
}
