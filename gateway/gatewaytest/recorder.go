// Package gatewaytest offers what tests of gateways share: a record in memory,
// a caller that uses it, a way to serve it and the network of a box.
//
// It never leaves the machine, and it is linked into tests only. The invariant:
// the record keeps events in the order in which they were recorded, and can be
// told to fail, as a full disk would.
package gatewaytest

import (
	"context"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"cofferdam"
	"cofferdam/gateway"
	"cofferdam/policy"
)

// Recorder is a cofferdam.Recorder in memory. The zero Recorder is ready.
type Recorder struct {
	mu     sync.Mutex
	events []cofferdam.Event             // guarded by mu
	fail   func(e cofferdam.Event) error // guarded by mu
}

// Record implements cofferdam.Recorder.
func (r *Recorder) Record(ctx context.Context, e cofferdam.Event) (cofferdam.Event, error) {
	if err := ctx.Err(); err != nil {
		return e, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.fail != nil {
		if err := r.fail(e); err != nil {
			return e, err
		}
	}
	e.Seq = uint64(len(r.events))
	if e.Time.IsZero() {
		e.Time = time.Now()
	}
	r.events = append(r.events, e)
	return e, nil
}

// FailWhen makes Record fail with the error that f returns; nil: never.
func (r *Recorder) FailWhen(f func(e cofferdam.Event) error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fail = f
}

// Events returns what is on record.
func (r *Recorder) Events() []cofferdam.Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.events)
}

// Wait returns what is on record as soon as that is n events: an outcome may go
// on record after the client has its answer.
func (r *Recorder) Wait(t testing.TB, n int) []cofferdam.Event {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		events := r.Events()
		if len(events) >= n {
			return events
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d events on record, want %d", len(events), n)
		}
	}
}

// Clear forgets what was recorded.
func (r *Recorder) Clear() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = nil
}

// Find returns the recorded events of a kind, in order.
func (r *Recorder) Find(kind string) []cofferdam.Event {
	var out []cofferdam.Event
	for _, e := range r.Events() {
		if e.Kind == kind {
			out = append(out, e)
		}
	}
	return out
}

// NewCaller returns a caller with the grant's policy, a Recorder and a life
// that ends with the test or with the returned function.
func NewCaller(t testing.TB, g policy.Grant) (*gateway.Caller, *Recorder, context.CancelFunc) {
	t.Helper()
	set, err := policy.New(g)
	if err != nil {
		t.Fatal(err)
	}
	live, end := context.WithCancel(context.Background())
	t.Cleanup(end)
	rec := new(Recorder)
	return &gateway.Caller{
		Scope:   cofferdam.Scope{Organization: "o-test", Project: "p-test"},
		Task:    "t-test",
		Session: cofferdam.SessionID(cofferdam.NewID("s")),
		Actor:   cofferdam.Principal{Kind: cofferdam.Agent, Name: "test"},
		Phase:   gateway.Work,
		Branch:  g.Branch,
		Policy:  gateway.NewRules(set),
		Record:  rec,
		Live:    live,
	}, rec, end
}

// Serve lets a gateway serve connections to an address of this machine as if a
// box had made them to a name, until the test ends, and returns the address.
func Serve(t testing.TB, h gateway.Handler, c *gateway.Caller, to gateway.Target) string {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	live, end := context.WithCancel(c.Live)
	c.Live = live
	var serving sync.WaitGroup
	t.Cleanup(func() { l.Close(); end(); serving.Wait() })
	serving.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			serving.Go(func() { h.Serve(c, conn, to) })
		}
	})
	return l.Addr().String()
}

// Allow parses an allow list that must be right.
func Allow(t testing.TB, list ...string) []policy.Rule {
	t.Helper()
	rules, err := policy.ParseAllow(list, nil)
	if err != nil {
		t.Fatal(err)
	}
	return rules
}
