package trace

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"cofferdam"
)

// What a log takes, and what it refuses.
func TestRecord(t *testing.T) {
	s := openStore(t, t.TempDir(), testKey(t))
	r := openSession(t, s, "s-1")
	for i, c := range []struct {
		e    cofferdam.Event
		kind cofferdam.Kind // of the error; Internal for none
		seq  uint64
	}{
		{e: cofferdam.Event{Kind: "exec.start"}, seq: 0},
		{e: cofferdam.Event{Kind: "exec.start", Session: "s-2"}, kind: cofferdam.Invalid},
		{e: cofferdam.Event{Kind: "nonsense"}, kind: cofferdam.Invalid},
		{e: cofferdam.Event{Kind: "exec.output", Resource: strings.Repeat("x", MaxEvent)}, kind: cofferdam.Invalid},
		{e: cofferdam.Event{Kind: "exec.output", Fields: map[string]string{"out": "\xff"}, Durable: true}, seq: 1},
	} {
		e, err := r.Record(context.Background(), c.e)
		if (err == nil) != (c.kind == cofferdam.Internal) || err != nil && cofferdam.KindOf(err) != c.kind {
			t.Errorf("event %d: %v", i, err)
		}
		if err != nil {
			continue
		}
		if e.Seq != c.seq || e.Time.IsZero() || e.Scope != testScope || e.Session != "s-1" {
			t.Errorf("event %d came back as %+v", i, e)
		}
	}
}

func TestFollow(t *testing.T) {
	dir, key := t.TempDir(), testKey(t)
	s := openStore(t, dir, key)
	l := openSession(t, s, "s-1")
	const events = 600
	for range 10 {
		record(t, l, "exec.start", "", "")
	}
	seen := make(chan cofferdam.Event)
	done := make(chan error, 1)
	go func() {
		done <- s.Follow(context.Background(), "s-1", 3, func(e cofferdam.Event) error { seen <- e; return nil })
	}()
	var writer sync.WaitGroup
	defer writer.Wait()
	writer.Go(func() {
		for range events - 10 {
			record(t, l, "exec.start", "", "")
		}
		if err := l.Close(); err != nil { // the session's process goes away …
			t.Error(err)
		}
		l, err := s.Session(testScope, "s-1") // … and another goes on
		if err != nil {
			t.Error(err)
			return
		}
		record(t, l, "exec.end", "", "")
		if _, err := l.Seal(context.Background()); err != nil {
			t.Error(err)
		}
	})
	next := uint64(3)
	for {
		select {
		case e := <-seen:
			if e.Seq != next {
				t.Fatalf("event %d after %d", e.Seq, next-1)
			}
			next++
			continue
		case err := <-done:
			if err != nil || next != events+2 {
				t.Errorf("Follow ended with %v after %d events, want %d", err, next, events+2)
			}
		}
		break
	}
}

func TestFollowEnds(t *testing.T) {
	s := openStore(t, t.TempDir(), testKey(t))
	l := openSession(t, s, "s-1")
	record(t, l, "exec.start", "", "")
	ctx, cancel := context.WithCancel(context.Background())
	err := s.Follow(ctx, "s-1", 0, func(cofferdam.Event) error { cancel(); return nil })
	if !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	stop := fmt.Errorf("enough")
	if err := s.Follow(context.Background(), "s-1", 0, func(cofferdam.Event) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("stopped: %v", err)
	}
	if err := s.Follow(context.Background(), "s-9", 0, nil); cofferdam.KindOf(err) != cofferdam.NotFound {
		t.Errorf("unknown session: %v", err)
	}
	if _, err := s.Events(context.Background(), "../host", 0, 0); cofferdam.KindOf(err) != cofferdam.Invalid {
		t.Errorf("path for an id: %v", err)
	}
}

// FuzzScan reads logs that crashed disks leave: what is whole at the start is
// kept, what is not a log is an error, nothing panics.
func FuzzScan(f *testing.F) {
	good := `{"seq":0,"time":"2026-11-29T23:00:00Z","organization":"o","project":"p","actor":{"kind":"","name":""},"source":"","kind":"exec.start"}` + "\n"
	f.Add([]byte(good), uint64(1))
	f.Add([]byte(strings.Replace(good, `"seq":0`, `"seq":1`, 1)), uint64(2))
	f.Add([]byte("\x00\x00\n{}\n"), uint64(3))
	f.Fuzz(func(t *testing.T, tail []byte, seed uint64) {
		n := int(rand.New(rand.NewPCG(seed, 0)).Uint64N(4))
		var log strings.Builder
		for i := range n {
			log.WriteString(strings.Replace(good, `"seq":0`, fmt.Sprintf(`"seq":%d`, i), 1))
		}
		whole := int64(log.Len())
		s, torn, err := scan(strings.NewReader(log.String() + string(tail)))
		if err == nil && s.size+torn != whole+int64(len(tail)) {
			t.Errorf("%d bytes kept and %d cut, of %d", s.size, torn, whole+int64(len(tail)))
		}
		if s.size < whole || s.tree.Size() < uint64(n) {
			t.Errorf("%d events kept, %d were whole", s.tree.Size(), n)
		}
	})
}
