package gvisor

import (
	"slices"
	"sync"
	"time"

	"cofferdam"
	"cofferdam/sandbox"
)

// samplePeriod is how often a box with running commands is looked at: short
// enough that a disk does not fill and empty unseen by much, at 20 µs a look.
const samplePeriod = 100 * time.Millisecond

// meter remembers when each limit of a box was last seen to be met.
type meter struct {
	mu      sync.Mutex
	running int                              // commands
	stop    chan struct{}                    // ends the sampling
	met     map[sandbox.Exhaustion]time.Time // last time
	last    events                           // counters when last read
}

func newMeter() *meter { return &meter{met: map[sandbox.Exhaustion]time.Time{}} }

// watch is called when a command starts; what it returns completes the result.
func (b *box) watch(cofferdam.ExecID) func(*sandbox.Result) {
	began := time.Now()
	m := b.meter
	b.sample() // so that what others did before is not blamed on this one
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.running++; m.running == 1 {
		m.stop = make(chan struct{})
		go b.sampleUntil(m.stop)
	}
	return func(r *sandbox.Result) {
		b.sample()
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.running--; m.running == 0 {
			close(m.stop)
		}
		for _, e := range []sandbox.Exhaustion{
			sandbox.ExhaustedMemory, sandbox.ExhaustedDisk, sandbox.ExhaustedTemp, sandbox.ExhaustedPIDs, sandbox.ExhaustedFiles,
		} {
			if m.met[e].After(began) && !slices.Contains(r.Exhausted, e) {
				r.Exhausted = append(r.Exhausted, e)
			}
		}
		b.explain(r)
	}
}

// explain says in words when a command ended for want of memory.
func (b *box) explain(r *sandbox.Result) {
	if !slices.Contains(r.Exhausted, sandbox.ExhaustedMemory) {
		return
	}
	switch {
	case r.Lost:
		r.Reason = "the whole box ended: it needed more memory than its limit"
	case r.Signal == 9 && !r.TimedOut:
		r.Reason = "ended by the kernel: the box needed more memory than its limit"
	}
}

func (b *box) sampleUntil(stop <-chan struct{}) {
	t := time.NewTicker(samplePeriod)
	defer t.Stop()
	for {
		select {
		case <-stop:
			return
		case <-t.C:
			b.sample()
		}
	}
}

// sample looks at what the host can see of the box.
func (b *box) sample() {
	now := b.d.cgroups.events(string(b.spec.ID))
	_, full, err := space(b.path("work"))
	m := b.meter
	m.mu.Lock()
	defer m.mu.Unlock()
	seen := time.Now()
	if now.oomKills > m.last.oomKills {
		m.met[sandbox.ExhaustedMemory] = seen
	}
	if now.pidsFull > m.last.pidsFull {
		m.met[sandbox.ExhaustedPIDs] = seen
	}
	m.last = now
	if full && err == nil {
		m.met[sandbox.ExhaustedDisk] = seen
	}
}
