package keeper

import (
	"context"
	"sync"

	"cofferdam"
)

// drain counts what keeps a keeper from ending: a keeper that is being replaced
// makes no new boxes and ends with its last one.
type drain struct {
	mu       sync.Mutex
	making   int           // boxes being made; guarded by mu
	draining bool          // guarded by mu
	over     bool          // guarded by mu
	empty    chan struct{} // closed when nothing is left
}

// begin counts a box that is about to be made, unless no more are made.
func (d *drain) begin(subject string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.draining {
		return &cofferdam.Error{
			Op: "keeper.Create", Kind: cofferdam.Unavailable, Subject: subject,
			Reason: "this keeper is being replaced: it makes no new boxes and ends with its last one",
			Hint:   "a server that is started now has a newer keeper",
		}
	}
	d.making++
	return nil
}

func (d *drain) end() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.making--
}

func (d *drain) start() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.draining = true
}

func (d *drain) state() (draining bool, making int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.draining, d.making
}

// settle ends a keeper that drains and has no box. boxes counts those that are
// made; nothing can be made while it does.
func (d *drain) settle(boxes func() (int, error)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.draining || d.over || d.making > 0 {
		return
	}
	if n, err := boxes(); err != nil || n > 0 {
		return // an error is no proof of anything: the next call looks again
	}
	d.over = true
	close(d.empty)
}

// info says who this keeper is.
func (s *server) info(ctx context.Context) (*Info, error) {
	n, err := s.count(ctx)
	if err != nil {
		return nil, err
	}
	draining, making := s.drain.state()
	return &Info{Build: s.o.Build, Process: s.process, State: s.o.State, Boxes: n + making, Draining: draining, Args: s.o.Args}, nil
}

// count is how many boxes there are. A driver of two tiers has them once.
func (s *server) count(ctx context.Context) (int, error) {
	n := 0
	for _, d := range s.each() {
		list, err := d.List(ctx)
		if err != nil {
			return 0, err
		}
		n += len(list)
	}
	return n, nil
}
