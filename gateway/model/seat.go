package model

import (
	"context"
	"sync"

	"cofferdam"
)

// maxCalls bounds the calls of one session that are served at once; more wait.
// It bounds the memory that one box can take with large requests, and agents
// with many helpers stay below it.
const maxCalls = 32

// maxLarge of them may have a request larger than largeRequest, which stays in
// memory until its answer has come.
const maxLarge = 8

// largeRequest is what most requests are below, in bytes.
const largeRequest = 1 << 20

// Reading a request takes up to seventy times the memory that the request has,
// for moments, so all but small ones are read a few at a time, whoever's they are.
const (
	maxReaders = 4
	readAlone  = 64 << 10 // bytes
)

// readers are the places at which large requests are read.
type readers chan struct{}

// wait waits for a place, and returns how to leave it; small requests need none.
func (r readers) wait(ctx context.Context, size int) (leave func(), err error) {
	if size < readAlone {
		return func() {}, nil
	}
	select {
	case r <- struct{}{}:
		return func() { <-r }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// seats hands out places of the calls of a session. The zero seats is ready.
type seats struct {
	mu       sync.Mutex
	sessions map[cofferdam.SessionID]*seating // guarded by mu; one per session that has a call
}

type seating struct {
	taken, large chan struct{}
	users        int // guarded by seats.mu; who sits or waits
}

// seat is the place of one call.
type seat struct {
	own   *seating
	gone  func()
	large bool
}

// grow waits until the call may have a large request.
func (s *seat) grow(ctx context.Context) error {
	select {
	case s.own.large <- struct{}{}:
		s.large = true
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *seat) leave() {
	if s.large {
		<-s.own.large
	}
	<-s.own.taken
	s.gone()
}

// sit waits for one of the session's seats.
func (s *seats) sit(ctx context.Context, id cofferdam.SessionID) (*seat, error) {
	s.mu.Lock()
	own := s.sessions[id]
	if own == nil {
		if s.sessions == nil {
			s.sessions = map[cofferdam.SessionID]*seating{}
		}
		own = &seating{taken: make(chan struct{}, maxCalls), large: make(chan struct{}, maxLarge)}
		s.sessions[id] = own
	}
	own.users++
	s.mu.Unlock()
	gone := func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if own.users--; own.users == 0 {
			delete(s.sessions, id)
		}
	}
	select {
	case own.taken <- struct{}{}:
		return &seat{own: own, gone: gone}, nil
	case <-ctx.Done():
		gone()
		return nil, ctx.Err()
	}
}
