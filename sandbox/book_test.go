package sandbox

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"cofferdam"
)

// named is a box that is nothing but a name.
type named struct {
	Box
	id cofferdam.BoxID
}

func (n *named) ID() cofferdam.BoxID                    { return n.id }
func (n *named) Status(context.Context) (Status, error) { return Status{ID: n.id}, nil }

func boxID(n int) cofferdam.BoxID { return cofferdam.BoxID(fmt.Sprintf("b-%032x", n)) }

func TestBook(t *testing.T) {
	k := NewBook[*named]("test", 2)
	for _, bad := range []cofferdam.BoxID{"", "b-1", "../../../../../etc/passwd", boxID(1) + "\n", cofferdam.BoxID("b-" + strings.Repeat("A", 32))} {
		if _, err := k.Reserve(bad); cofferdam.KindOf(err) != cofferdam.Invalid {
			t.Errorf("%q: %v", bad, err)
		}
	}
	first, err := k.Reserve(boxID(1))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := k.Open(t.Context(), boxID(1)); cofferdam.KindOf(err) != cofferdam.NotFound || len(k.All()) != 0 || k.Count() != 1 {
		t.Errorf("one that is being made: %v, %v", err, k.All())
	}
	if _, err := k.Reserve(boxID(1)); cofferdam.KindOf(err) != cofferdam.Conflict {
		t.Errorf("twice: %v", err)
	}
	b := &named{id: boxID(1)}
	k.Settle(b)
	if got, err := k.Open(t.Context(), b.id); err != nil || got != Box(b) {
		t.Errorf("%v, %v", got, err)
	}
	second, err := k.Reserve(boxID(2))
	if err != nil || second == first {
		t.Errorf("places %d and %d, %v", first, second, err)
	}
	if _, err := k.Reserve(boxID(3)); cofferdam.KindOf(err) != cofferdam.Exhausted {
		t.Errorf("a third: %v", err)
	}
	k.Forget(boxID(2), nil)
	k.Forget(boxID(1), nil) // it is made: who only reserved cannot take it
	if list, err := k.List(t.Context()); err != nil || len(list) != 1 || list[0].ID != b.id {
		t.Errorf("%v, %v", list, err)
	}
	k.Forget(b.id, b)
	if place, err := k.Reserve(b.id); err != nil || place != first {
		t.Errorf("the place that is free again: %d, %v", place, err)
	}
	again := &named{id: b.id}
	k.Settle(again)
	k.Forget(b.id, b) // an old handle
	if got, err := k.Open(t.Context(), b.id); err != nil || got != Box(again) {
		t.Errorf("the new one: %v, %v", got, err)
	}
}

// TestBookHasOnePlaceForEach: no two boxes have a place at the same time.
func TestBookHasOnePlaceForEach(t *testing.T) {
	const most = 4
	k := NewBook[*named]("test", most)
	var taken [most]sync.Mutex
	var all sync.WaitGroup
	for i := range 16 {
		all.Go(func() {
			for range 200 {
				place, err := k.Reserve(boxID(i))
				if err != nil {
					if cofferdam.KindOf(err) != cofferdam.Exhausted {
						t.Error(err)
					}
					continue
				}
				if !taken[place].TryLock() {
					t.Errorf("place %d is another's", place)
					return
				}
				b := &named{id: boxID(i)}
				if i%2 == 0 {
					k.Settle(b)
				} else {
					b = nil
				}
				taken[place].Unlock()
				k.Forget(boxID(i), b)
			}
		})
	}
	all.Wait()
	if k.Count() != 0 {
		t.Errorf("%d are left", k.Count())
	}
}
