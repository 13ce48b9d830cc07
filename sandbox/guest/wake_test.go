package guest_test

import (
	"context"
	"testing"

	"cofferdam/sandbox/guest"
)

// TestWokenTwice: who had no answer in time tells pid 1 again, and both answers may
// come; a third that nobody asked for ends the box.
func TestWokenTwice(t *testing.T) {
	s := newScripted(t, `{"version":2,"pid":1}`)
	if err := s.Ready(testContext(t)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(testContext(t))
	first := make(chan error, 1)
	go func() { first <- s.Wake(ctx, guest.Identity{}) }()
	s.want(t, guest.KindWake)
	cancel()
	if err := <-first; err == nil {
		t.Error("a wake without an answer")
	}
	second := make(chan error, 1)
	go func() { second <- s.Wake(testContext(t), guest.Identity{}) }()
	s.want(t, guest.KindWake)
	s.say(guest.KindAwake, 0, "{}")
	if err := <-second; err != nil {
		t.Error(err)
	}
	s.say(guest.KindAwake, 0, "{}")
	go func() { second <- s.Wake(testContext(t), guest.Identity{}) }() // the talk goes on
	s.want(t, guest.KindWake)
	s.say(guest.KindAwake, 0, "{}")
	if err := <-second; err != nil {
		t.Error(err)
	}
	s.say(guest.KindAwake, 0, "{}")
	<-s.Done()
}
