package guest_test

import (
	"context"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"cofferdam"
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

// TestQuietOfWhoWentAway: who asked pid 1 to be quiet goes away before it answers, and
// it is told to go on. Its answer comes late and ends nothing; who asks next waits for
// an answer of their own.
func TestQuietOfWhoWentAway(t *testing.T) {
	s := newScripted(t, `{"version":2,"pid":1}`)
	if err := s.Ready(testContext(t)); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		s.Hold("it is at rest")
		ctx, cancel := context.WithCancel(testContext(t))
		first := make(chan error, 1)
		go func() { first <- s.Quiet(ctx) }()
		s.want(t, guest.KindQuiet)
		cancel()
		if err := <-first; err == nil {
			t.Error("a quiet without an answer")
		}
		s.want(t, guest.KindWake)
		woken := make(chan error, 1)
		go func() { woken <- s.Wake(testContext(t), guest.Identity{}) }()
		s.want(t, guest.KindWake)
		quiet := make(chan error, 1)
		s.say(guest.KindIsQuiet, 0, "")
		s.say(guest.KindAwake, 0, "{}")
		if err := <-woken; err != nil {
			t.Fatal(err)
		}
		go func() { quiet <- s.Quiet(testContext(t)) }()
		s.want(t, guest.KindQuiet)
		s.say(guest.KindAwake, 0, "{}")
		s.say(guest.KindIsQuiet, 0, "")
		if err := <-quiet; err != nil {
			t.Fatal(err)
		}
		go func() { woken <- s.Wake(testContext(t), guest.Identity{}) }()
		s.want(t, guest.KindWake)
		s.say(guest.KindAwake, 0, "{}")
		if err := <-woken; err != nil {
			t.Fatal(err)
		}
		s.Release()
	}
}

// TestLateQuietIsNotTheNext: the late answer to one quiet is not taken for that of
// the next, which would copy a box that still speaks.
func TestLateQuietIsNotTheNext(t *testing.T) {
	s := newScripted(t, `{"version":2,"pid":1}`)
	if err := s.Ready(testContext(t)); err != nil {
		t.Fatal(err)
	}
	s.Hold("it is at rest")
	ctx, cancel := context.WithCancel(testContext(t))
	quiet := make(chan error, 1)
	go func() { quiet <- s.Quiet(ctx) }()
	s.want(t, guest.KindQuiet)
	cancel()
	<-quiet
	s.want(t, guest.KindWake)
	go func() { quiet <- s.Quiet(testContext(t)) }()
	s.want(t, guest.KindQuiet)
	s.say(guest.KindIsQuiet, 0, "") // of the first
	s.say(guest.KindAwake, 0, "{}")
	select {
	case err := <-quiet:
		t.Fatalf("it is taken for quiet, which it never said: %v", err)
	case <-time.After(50 * time.Millisecond): // it would be at once
	}
	s.say(guest.KindIsQuiet, 0, "")
	if err := <-quiet; err != nil {
		t.Error(err)
	}
}

// TestCopyIsWokenFirst: a copy hears who it is before anything else. What else it
// heard it could not take, in the middle of making a process, and would hear no more.
func TestCopyIsWokenFirst(t *testing.T) {
	st := guest.State{Hello: guest.Hello{Version: guest.Version, PID: 1}}
	for _, id := range []cofferdam.ExecID{"a", "b"} {
		st.Commands = append(st.Commands, guest.CommandState{ID: id})
	}
	for range 100 {
		toInit, w := pipe(t)
		r, fromInit := pipe(t)
		h, err := guest.RestoreHost(w, r, filepath.Join(t.TempDir(), "j"), guest.Options{Config: guest.Config{UID: 1, GID: 1}}, st)
		if err != nil {
			t.Fatal(err)
		}
		runtime.Gosched() // let it say what it has to say
		woken := make(chan error, 1)
		go func() { woken <- h.Wake(testContext(t), guest.Identity{}) }()
		in := guest.NewReader(toInit, guest.MaxStart)
		if f, err := in.Next(); err != nil || f.Kind != guest.KindWake {
			t.Fatalf("the first word is of kind %d, %v", f.Kind, err)
		}
		fromInit.Write(guest.AppendFrame(nil, guest.Frame{Kind: guest.KindAwake, Payload: []byte("{}")}))
		if err := <-woken; err != nil {
			t.Fatal(err)
		}
		if f, err := in.Next(); err != nil || f.Kind != guest.KindLimit {
			t.Fatalf("control: then it may print, but hears kind %d, %v", f.Kind, err)
		}
		h.Close("test over")
		toInit.Close()
		fromInit.Close()
	}
}
