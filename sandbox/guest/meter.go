package guest

import (
	"slices"
	"sync"
	"time"

	"cofferdam"
	"cofferdam/sandbox"
)

const (
	// samplePeriod is how often a box with running commands is looked at; a
	// look takes about 0.1 ms.
	samplePeriod = 100 * time.Millisecond
	// crowdedPeriod is the same while the box is crowded.
	crowdedPeriod = 10 * time.Millisecond
)

// Seen is what the host sees of a box.
type Seen struct {
	OOMKills int64 // processes that ended for want of memory, so far
	PIDsFull int64 // forks that the host refused, so far
	DiskFull bool  // now
}

// Meter remembers when each limit of a box was last seen to be met: it looks
// while commands run. Its Watch is for Options.
type Meter struct {
	// Look looks at the box.
	Look func() Seen
	// Crowded, if not nil, is asked after each look whether the box has to be
	// looked at more often.
	Crowded func() bool

	mu      sync.Mutex
	running int                              // commands; guarded by mu
	stop    chan struct{}                    // ends the looking; guarded by mu
	met     map[sandbox.Exhaustion]time.Time // last time; guarded by mu
	last    Seen                             // guarded by mu
}

// Watch is called when a command starts; what it returns completes the result.
func (m *Meter) Watch(cofferdam.ExecID) func(*sandbox.Result) {
	m.sample() // so that what others did before is not blamed on this one
	began := time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.running++; m.running == 1 {
		m.stop = make(chan struct{})
		go m.sampleUntil(m.stop)
	}
	return func(r *sandbox.Result) {
		m.sample()
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.running--; m.running == 0 {
			close(m.stop)
		}
		for _, e := range []sandbox.Exhaustion{sandbox.ExhaustedMemory, sandbox.ExhaustedDisk, sandbox.ExhaustedPIDs} {
			if m.met[e].After(began) && !slices.Contains(r.Exhausted, e) {
				r.Exhausted = append(r.Exhausted, e)
			}
		}
		Explain(r)
	}
}

// Explain says in words when a command ended for want of memory.
func Explain(r *sandbox.Result) {
	switch {
	case !slices.Contains(r.Exhausted, sandbox.ExhaustedMemory):
	case r.Lost:
		r.Reason = "the whole box ended: it needed more memory than its limit"
	case r.Signal == 9 && !r.TimedOut:
		r.Reason = "ended because the box needed more memory than its limit"
	}
}

// Met says that a limit is met now.
func (m *Meter) Met(e sandbox.Exhaustion) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.meet(e)
}

// meet is Met; mu is held.
func (m *Meter) meet(e sandbox.Exhaustion) {
	if m.met == nil {
		m.met = map[sandbox.Exhaustion]time.Time{}
	}
	m.met[e] = time.Now()
}

func (m *Meter) sampleUntil(stop <-chan struct{}) {
	t := time.NewTimer(samplePeriod)
	defer t.Stop()
	for looked := time.Now(); ; {
		select {
		case <-stop:
			return
		case <-t.C:
		}
		if time.Since(looked) >= samplePeriod {
			m.sample()
			looked = time.Now()
		}
		if m.Crowded != nil && m.Crowded() {
			t.Reset(crowdedPeriod)
		} else {
			t.Reset(samplePeriod)
		}
	}
}

// sample looks once.
func (m *Meter) sample() {
	now := m.Look()
	m.mu.Lock()
	defer m.mu.Unlock()
	if now.OOMKills > m.last.OOMKills {
		m.meet(sandbox.ExhaustedMemory)
	}
	if now.PIDsFull > m.last.PIDsFull {
		m.meet(sandbox.ExhaustedPIDs)
	}
	if m.last = now; now.DiskFull {
		m.meet(sandbox.ExhaustedDisk)
	}
}
