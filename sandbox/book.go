package sandbox

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"cofferdam"
)

// Book is the boxes of one driver, by their ids: those that are made, and those
// that are being made. A Driver embeds one and so has Open and List. Safe for
// concurrent use.
type Book[B interface {
	comparable
	Box
}] struct {
	driver string
	mu     sync.Mutex
	boxes  map[cofferdam.BoxID]entry[B] // guarded by mu
	places []bool                       // which are taken; guarded by mu
}

// entry is a box with its place; the box is the zero value while it is made.
type entry[B any] struct {
	box   B
	place int
}

// NewBook makes an empty book of at most most boxes; driver stands in its errors.
func NewBook[B interface {
	comparable
	Box
}](driver string, most int) *Book[B] {
	return &Book[B]{driver: driver, boxes: map[cofferdam.BoxID]entry[B]{}, places: make([]bool, most)}
}

// Reserve takes an id for a box that is about to be made, and a place of its
// own: a number from 0 below the most that there can be. Settle or Forget follows.
func (k *Book[B]) Reserve(id cofferdam.BoxID) (place int, err error) {
	op := k.driver + ".Create"
	if !isID(string(id), "b-") {
		return 0, Refuse(op, fmt.Sprintf("box id %.64q", string(id)), `not "b-" and 32 hexadecimal digits`, "")
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if _, taken := k.boxes[id]; taken {
		return 0, &cofferdam.Error{
			Op: op, Kind: cofferdam.Conflict, Subject: "box " + string(id), Reason: "there is one already", Hint: "open it, or choose another id",
		}
	}
	for i, taken := range k.places {
		if !taken {
			k.places[i], k.boxes[id] = true, entry[B]{place: i}
			return i, nil
		}
	}
	return 0, &cofferdam.Error{
		Op: op, Kind: cofferdam.Exhausted, Subject: "box " + string(id),
		Reason: fmt.Sprintf("%d boxes run on this host already", len(k.places)), Hint: "wait for one to end",
	}
}

// Settle puts a box in the place that was reserved for its id: from now on it
// is found.
func (k *Book[B]) Settle(b B) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if e, ok := k.boxes[b.ID()]; ok {
		e.box = b
		k.boxes[b.ID()] = e
	}
}

// Forget gives up the place of a box; the zero value of B is one that was not
// made. It does nothing if another box has the id by now.
func (k *Book[B]) Forget(id cofferdam.BoxID, b B) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if e, ok := k.boxes[id]; ok && e.box == b {
		delete(k.boxes, id)
		k.places[e.place] = false
	}
}

// Count says how many boxes there are, with those that are being made.
func (k *Book[B]) Count() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.boxes)
}

// All returns the boxes that are made.
func (k *Book[B]) All() []B {
	k.mu.Lock()
	defer k.mu.Unlock()
	var none B
	list := make([]B, 0, len(k.boxes))
	for _, e := range k.boxes {
		if e.box != none {
			list = append(list, e.box)
		}
	}
	return list
}

// Open implements Driver: it finds a box that this process made.
func (k *Book[B]) Open(_ context.Context, id cofferdam.BoxID) (Box, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	var none B
	if e := k.boxes[id]; e.box != none {
		return e.box, nil
	}
	return nil, &cofferdam.Error{
		Op: k.driver + ".Open", Kind: cofferdam.NotFound, Subject: fmt.Sprintf("box %.64q", string(id)),
		Reason: "there is no such box", Hint: "a box ends with its keeper; start a new one",
	}
}

// List implements Driver.
func (k *Book[B]) List(ctx context.Context) ([]Status, error) {
	boxes := k.All()
	list := make([]Status, 0, len(boxes))
	for _, b := range boxes {
		s, err := b.Status(ctx)
		if err != nil {
			return nil, err
		}
		list = append(list, s)
	}
	return list, nil
}

// DestroyAll destroys every box that is made.
func (k *Book[B]) DestroyAll(ctx context.Context) error {
	var errs []error
	for _, b := range k.All() {
		errs = append(errs, b.Destroy(ctx))
	}
	return errors.Join(errs...)
}
