package gateways

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"testing"

	"cofferdam"
	"cofferdam/gateway/egress"
	"cofferdam/gateway/proxy"
	"cofferdam/internal/local/network"
)

// TestSameNames: what package network has twice, so that a run need not link it, is
// what the gateways have.
func TestSameNames(t *testing.T) {
	if network.CAFile != egress.CAFile {
		t.Errorf("%s, %s", network.CAFile, egress.CAFile)
	}
	at := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1234}
	if ours, theirs := network.ProxyURL("word", at), (&proxy.Proxy{Password: "word"}).URL(at); ours != theirs {
		t.Errorf("%s, %s", ours, theirs)
	}
}

// pair is a run and what serves it, without a box.
func pair(t *testing.T) (run net.Conn, r *remote) {
	t.Helper()
	run, talk := net.Pipe()
	t.Cleanup(func() { run.Close(); talk.Close() })
	r = &remote{talk: talk, answers: make(chan network.Answer, 1)}
	go r.listen()
	return run, r
}

// TestRecordOfTheRun: what the gateways put on record is what the run answers, with
// the wish to have it on disk; what the run could not write is an error; and once
// the run is gone nothing is on record any more, however often it is asked for.
func TestRecordOfTheRun(t *testing.T) {
	run, r := pair(t)
	type got struct {
		event cofferdam.Event
		err   error
	}
	record := func(resource string, durable bool) chan got {
		c := make(chan got, 1)
		go func() {
			e, err := r.Record(context.Background(), cofferdam.Event{Kind: cofferdam.EventConnect, Resource: resource, Durable: durable})
			c <- got{e, err}
		}()
		return c
	}
	answer := func(a network.Answer) network.Entry {
		t.Helper()
		var e network.Entry
		if err := network.Receive(run, &e); err != nil {
			t.Fatal(err)
		}
		a.Event.Resource = e.Event.Resource
		if err := network.Send(run, a); err != nil {
			t.Fatal(err)
		}
		return e
	}
	c := record("good.test:443", true)
	if e := answer(network.Answer{Event: cofferdam.Event{Seq: 7}}); !e.Durable || e.Event.Resource != "good.test:443" {
		t.Errorf("%+v", e)
	}
	if g := <-c; g.err != nil || g.event.Seq != 7 {
		t.Errorf("%+v", g)
	}
	c = record("other.test:443", false)
	if e := answer(network.Answer{Error: "the disk is full"}); e.Durable {
		t.Errorf("%+v", e)
	}
	if g := <-c; g.err == nil || !strings.Contains(g.err.Error(), "disk is full") {
		t.Errorf("what is not on record passed: %+v", g)
	}
	run.Close()
	for range 2 {
		if g := <-record("late.test:443", false); g.err == nil {
			t.Error("something passed that nobody records")
		}
	}
}

// early is a way out whose box has sent something before it is connected.
type early struct {
	network.Way
	connected func() error
}

func (e early) Connect(network.Box) error { return e.connected() }

// TestFirstEntry: nothing goes on record before the run knows that it is served, nor
// after it heard that it is not.
func TestFirstEntry(t *testing.T) {
	for _, failure := range []error{nil, errors.New("no device")} {
		run, r := pair(t)
		recorded := make(chan error, 1)
		connecting := make(chan bool, 1)
		go func() {
			served, err := r.connect(early{connected: func() error {
				if r.mu.TryLock() {
					r.mu.Unlock()
					t.Error("something can go on record before the word that this serves")
				}
				go func() {
					_, err := r.Record(context.Background(), cofferdam.Event{Kind: cofferdam.EventConnect, Resource: "first.test:443"})
					recorded <- err
				}()
				return failure
			}}, nil)
			if err != nil {
				t.Error(err)
			}
			connecting <- served
		}()
		var e network.Entry
		if err := network.Receive(run, &e); err != nil || e.Event.Kind != "" || (e.Error == "") != (failure == nil) {
			t.Errorf("%+v, %v", e, err)
		}
		if served := <-connecting; served != (failure == nil) {
			t.Errorf("served: %v, %v", served, failure)
		}
		if failure != nil {
			if <-recorded == nil {
				t.Error("on record of a run that is not served")
			}
			continue
		}
		if err := network.Receive(run, &e); err != nil || e.Event.Resource != "first.test:443" {
			t.Errorf("%+v, %v", e, err)
		}
		if err := network.Send(run, network.Answer{Event: e.Event}); err != nil {
			t.Error(err)
		}
		if err := <-recorded; err != nil {
			t.Error(err)
		}
	}
}

// TestOtherRelease: a run of another release is told so, and is not served.
func TestOtherRelease(t *testing.T) {
	run, talk := net.Pipe()
	defer run.Close()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	served := make(chan error, 1)
	go func() { served <- Serve(context.Background(), talk, r) }()
	if err := network.Send(run, network.Setup{Version: network.Version + 1}); err != nil {
		t.Fatal(err)
	}
	var e network.Entry
	if err := network.Receive(run, &e); err != nil || !strings.Contains(e.Error, "another release") {
		t.Errorf("%+v, %v", e, err)
	}
	if err := <-served; err != nil {
		t.Error(err)
	}
	if err := network.Receive(run, &e); !errors.Is(err, io.EOF) {
		t.Errorf("the talk goes on: %v", err)
	}
	if _, err := r.Stat(); !errors.Is(err, os.ErrClosed) {
		t.Error("the device is still open")
	}
}

// TestNoOtherPolicy: the gateways serve no policy but the one on record.
func TestNoOtherPolicy(t *testing.T) {
	_, err := Here{}.Open(context.Background(), network.Setup{Keys: t.TempDir(), Policy: "sha256:other"}, nil)
	if err == nil || !strings.Contains(err.Error(), "not the one on record") {
		t.Error(err)
	}
}

// TestFrames: what is longer than a frame may be, cut short or no JSON is an error,
// and the end of a talk is its end.
func TestFrames(t *testing.T) {
	for text, want := range map[string]string{
		"": "EOF", "\x00\x00": "unexpected EOF", "\x00\x00\x00\x02{": "unexpected EOF", "\xff\xff\xff\xff": "longer", "\x00\x00\x00\x01{": "read message",
	} {
		var a network.Answer
		if err := network.Receive(strings.NewReader(text), &a); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", text, err)
		}
	}
}
