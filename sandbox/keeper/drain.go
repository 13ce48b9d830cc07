package keeper

import (
	"sync"

	"cofferdam"
	"cofferdam/sandbox"
)

// drain knows what keeps a keeper from ending: a keeper that is being replaced
// makes no new boxes and ends with its last one. It asks no driver, for a box
// that hangs may keep the answer.
type drain struct {
	mu       sync.Mutex
	boxes    map[cofferdam.BoxID]bool // that there are, or that are being made; guarded by mu
	draining bool                     // guarded by mu
	over     bool                     // guarded by mu
	empty    chan struct{}            // closed when nothing is left
}

func newDrain() *drain {
	return &drain{boxes: map[cofferdam.BoxID]bool{}, empty: make(chan struct{})}
}

// begin counts a box that is about to be made, unless no more are made. first
// says that it was not counted before: a second one of an id is not made.
func (d *drain) begin(id cofferdam.BoxID) (first bool, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.draining {
		return false, &cofferdam.Error{
			Op: "keeper.Create", Kind: cofferdam.Unavailable, Subject: "create box " + string(id),
			Reason: "this keeper is being replaced: it makes no new boxes and ends with its last one",
			Hint:   "a server that is started now has a newer keeper",
		}
	}
	first = !d.boxes[id]
	d.boxes[id] = true
	return first, nil
}

// has counts boxes that were there before.
func (d *drain) has(list []sandbox.Status) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, s := range list {
		d.boxes[s.ID] = true
	}
}

// gone forgets a box.
func (d *drain) gone(id cofferdam.BoxID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.boxes, id)
}

func (d *drain) start() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.draining = true
}

// settle ends a keeper that drains and has no box.
func (d *drain) settle() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.draining && !d.over && len(d.boxes) == 0 {
		d.over = true
		close(d.empty)
	}
}

// info says who this keeper is.
func (s *server) info() *Info {
	s.drain.mu.Lock()
	defer s.drain.mu.Unlock()
	return &Info{Build: s.o.Build, Process: s.process, State: s.o.State, Boxes: len(s.drain.boxes), Draining: s.drain.draining, Args: s.o.Args}
}
