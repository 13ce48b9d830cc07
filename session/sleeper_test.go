package session_test

import (
	"context"
	"sync"
	"time"

	"cofferdam"
	"cofferdam/sandbox"
)

// sleeper is a driver whose boxes can be suspended, as far as a session can
// tell: a suspended one takes no call, and its state has a sequence.
type sleeper struct {
	sandbox.Driver

	mu       sync.Mutex
	asleep   map[cofferdam.BoxID]int64 // sequence of its last change, if it is
	changes  int64
	suspends int
	resumes  int
	refuses  string // why no box is resumed; it has failed then
	cannot   bool   // suspend at all
	pauses   bool   // instead
	full     bool   // the disk is, and it pauses
	awake    map[cofferdam.BoxID]bool
	most     int // boxes awake at a time
}

// up and down keep which boxes run, from before each does until it does not.
func (d *sleeper) up(id cofferdam.BoxID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.awake == nil {
		d.awake = map[cofferdam.BoxID]bool{}
	}
	d.awake[id] = true
	d.most = max(d.most, len(d.awake))
}

func (d *sleeper) down(id cofferdam.BoxID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.awake, id)
}

func (d *sleeper) Offers(context.Context) ([]sandbox.Offer, error) {
	o := sandbox.Offer{Tier: sandbox.None}
	if !d.cannot {
		o.Can = []sandbox.Capability{sandbox.CanSuspend}
	}
	if d.pauses {
		o.Can = []sandbox.Capability{sandbox.CanPause}
	}
	if d.full {
		o.Can = []sandbox.Capability{sandbox.CanPause, sandbox.CanSuspend}
	}
	return []sandbox.Offer{o}, nil
}

func (d *sleeper) Create(ctx context.Context, s sandbox.Spec) (sandbox.Box, error) {
	d.up(s.ID)
	b, err := d.Driver.Create(ctx, s)
	if err != nil {
		d.down(s.ID)
	}
	return sleepy{b, d}, err
}

func (d *sleeper) Open(ctx context.Context, id cofferdam.BoxID) (sandbox.Box, error) {
	b, err := d.Driver.Open(ctx, id)
	return sleepy{b, d}, err
}

// rests says whether any box is suspended.
func (d *sleeper) rests() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.asleep) > 0
}

func (d *sleeper) counts() (suspends, resumes int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.suspends, d.resumes
}

type sleepy struct {
	sandbox.Box
	d *sleeper
}

func (b sleepy) awake() error {
	b.d.mu.Lock()
	defer b.d.mu.Unlock()
	if _, ok := b.d.asleep[b.ID()]; ok {
		return &cofferdam.Error{Op: "test", Kind: cofferdam.Conflict, Subject: "box", Reason: "it is suspended"}
	}
	return nil
}

func (b sleepy) Status(ctx context.Context) (sandbox.Status, error) {
	st, err := b.Box.Status(ctx)
	b.d.mu.Lock()
	defer b.d.mu.Unlock()
	if n, ok := b.d.asleep[b.ID()]; ok && err == nil {
		st.State, st.Reason = sandbox.Suspended, "its memory is on disk"
		if b.d.refuses != "" && b.d.resumes > 0 {
			st.State, st.Reason = sandbox.Failed, b.d.refuses
		}
		st.Changes = append(st.Changes, sandbox.Change{Sequence: n, State: st.State, Reason: st.Reason, Actor: sandbox.ByCaller, Time: time.Now()})
	}
	return st, err
}

func (b sleepy) Start(ctx context.Context, c sandbox.Command) error {
	if err := b.awake(); err != nil {
		return err
	}
	return b.Box.Start(ctx, c)
}

func (b sleepy) Kill(ctx context.Context, id cofferdam.ExecID) error {
	if err := b.awake(); err != nil {
		return err
	}
	return b.Box.Kill(ctx, id)
}

func (b sleepy) Suspend(ctx context.Context) error {
	if b.d.pauses {
		panic("a box is suspended whose tier cannot")
	}
	if b.d.full {
		return &cofferdam.Error{Op: "test", Kind: cofferdam.Exhausted, Subject: "box", Reason: "the disk is full"}
	}
	return b.rest(ctx)
}

func (b sleepy) rest(ctx context.Context) error {
	st, err := b.Box.Status(ctx)
	if err != nil {
		return err
	}
	b.d.mu.Lock()
	defer b.d.mu.Unlock()
	if st.State == sandbox.Busy {
		panic("a busy box is suspended")
	}
	delete(b.d.awake, b.ID())
	b.d.suspends++
	b.d.changes++
	b.d.asleep[b.ID()] = 1000 + b.d.changes
	return nil
}

func (b sleepy) Pause(ctx context.Context) error {
	if !b.d.pauses && !b.d.full {
		panic("a box is paused whose tier can suspend")
	}
	return b.rest(ctx)
}

func (b sleepy) Resume(context.Context) error {
	b.d.up(b.ID())
	b.d.mu.Lock()
	defer b.d.mu.Unlock()
	b.d.resumes++
	if b.d.refuses != "" {
		return &cofferdam.Error{Op: "test", Kind: cofferdam.Unavailable, Subject: "box", Reason: b.d.refuses}
	}
	delete(b.d.asleep, b.ID())
	return nil
}

func (b sleepy) Destroy(ctx context.Context) error {
	b.d.mu.Lock()
	delete(b.d.asleep, b.ID())
	b.d.mu.Unlock()
	defer b.d.down(b.ID())
	return b.Box.Destroy(ctx)
}
