package sandbox

import (
	"context"
	"errors"
	"testing"
	"time"

	"cofferdam"
)

func TestLifeMovesByTheTable(t *testing.T) {
	for from, next := range moves {
		for _, to := range next {
			if _, ok := moves[to]; !ok {
				t.Errorf("%s leads to %s, which is no state", from, to)
			}
		}
	}
	l := NewLife()
	for _, to := range []BoxState{Ready, Busy, Idle, Suspending, Suspended, Idle, Stopping, Stopped, Deleted} {
		if err := l.Move(to, "test", ByCaller); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Move(Ready, "again", ByCaller); cofferdam.KindOf(err) != cofferdam.Conflict {
		t.Errorf("a deleted box was moved: %v", err)
	}
	for i, c := range l.Changes() {
		if c.Sequence != int64(i)+1 || c.Reason == "" || c.Actor == "" || c.Time.IsZero() {
			t.Errorf("change %d is %+v", i, c)
		}
	}
}

func TestLifeForgetsTheOldest(t *testing.T) {
	l := NewLife()
	if err := l.Move(Ready, "made", ByDriver); err != nil {
		t.Fatal(err)
	}
	for range 10 * keptChanges {
		if err := errors.Join(l.Move(Busy, "a", ByCaller), l.Move(Idle, "b", ByBox)); err != nil {
			t.Fatal(err)
		}
	}
	all := l.Changes()
	if len(all) != keptChanges || all[len(all)-1].Sequence != 2+20*keptChanges || all[0].Sequence != 2+20*keptChanges-keptChanges+1 {
		t.Errorf("%d changes, from %d to %d", len(all), all[0].Sequence, all[len(all)-1].Sequence)
	}
}

func TestLifeWaits(t *testing.T) {
	l := NewLife()
	got := make(chan Change, 1)
	go func() {
		c, err := l.Wait(context.Background(), Suspended)
		if err != nil {
			t.Error(err)
		}
		got <- c
	}()
	short, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	if _, err := l.Wait(short, Busy); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("waiting for ever ended with %v", err)
	}
	if err := errors.Join(l.Move(Failed, "no memory", ByHost)); err != nil {
		t.Fatal(err)
	}
	if c := <-got; c.State != Failed || c.Reason != "no memory" {
		t.Errorf("who waits for what never comes got %+v", c)
	}
}

func TestTiersSatisfy(t *testing.T) {
	for _, c := range []struct {
		have, least Tier
		want        bool
	}{
		{Process, Process, true},
		{GVisor, Process, true},
		{MicroVM, GVisor, true},
		{Process, GVisor, false},
		{GVisor, MicroVM, false},
		{Emulated, MicroVM, false},
		{Emulated, Process, false},
		{Emulated, Emulated, true},
		{MicroVM, Emulated, false},
		{None, Process, false},
		{Process, None, false},
		{"", Process, false},
		{MicroVM, "", false},
		{"", "", false},
	} {
		if got := c.have.Satisfies(c.least); got != c.want {
			t.Errorf("%q for %q: %v", c.have, c.least, got)
		}
	}
}
