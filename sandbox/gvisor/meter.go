package gvisor

import (
	"context"
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
	// memoryPeriod is the same while the box holds more than half of its
	// memory: a hog must be met within the reserve.
	memoryPeriod = 10 * time.Millisecond
	// relievePause is how long the largest process has to be gone before the
	// next one is ended.
	relievePause = 100 * time.Millisecond
)

// meter remembers when each limit of a box was last seen to be met.
type meter struct {
	mu       sync.Mutex
	running  int                              // commands
	stop     chan struct{}                    // ends the sampling
	met      map[sandbox.Exhaustion]time.Time // last time
	last     events                           // counters when last read
	relieved time.Time                        // last time that pid 1 was asked to end a process
}

func newMeter() *meter { return &meter{met: map[sandbox.Exhaustion]time.Time{}} }

// watch is called when a command starts; what it returns completes the result.
func (b *box) watch(cofferdam.ExecID) func(*sandbox.Result) {
	m := b.meter
	b.sample() // so that what others did before is not blamed on this one
	began := time.Now()
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
		for _, e := range []sandbox.Exhaustion{sandbox.ExhaustedMemory, sandbox.ExhaustedDisk, sandbox.ExhaustedPIDs} {
			if m.met[e].After(began) && !slices.Contains(r.Exhausted, e) {
				r.Exhausted = append(r.Exhausted, e)
			}
		}
		explain(r)
	}
}

// explain says in words when a command ended for want of memory.
func explain(r *sandbox.Result) {
	switch {
	case !slices.Contains(r.Exhausted, sandbox.ExhaustedMemory):
	case r.Lost:
		r.Reason = "the whole box ended: it needed more memory than its limit"
	case r.Signal == 9 && !r.TimedOut:
		r.Reason = "ended because the box needed more memory than its limit"
	}
}

func (b *box) sampleUntil(stop <-chan struct{}) {
	t := time.NewTimer(samplePeriod)
	defer t.Stop()
	for {
		select {
		case <-stop:
			return
		case <-t.C:
		}
		b.sample()
		period := samplePeriod
		for until := time.Now().Add(samplePeriod); time.Now().Before(until) && b.crowded(); {
			select {
			case <-stop:
				return
			case <-time.After(memoryPeriod):
			}
			period = memoryPeriod
		}
		t.Reset(period)
	}
}

// crowded says whether the box holds more than half of its memory, and has the
// largest process ended when it holds more than all of it.
func (b *box) crowded() bool {
	held := b.held(b.d.cgroups.memory(string(b.name)))
	if held > b.spec.Limits.Memory {
		m := b.meter
		m.mu.Lock()
		due := time.Since(m.relieved) > relievePause
		if due {
			m.relieved = time.Now()
			m.met[sandbox.ExhaustedMemory] = m.relieved
		}
		m.mu.Unlock()
		if due {
			ctx, cancel := context.WithTimeout(context.Background(), relievePause)
			defer cancel()
			_ = b.host.Relieve(ctx) // the box may end meanwhile; what does not help is asked again
		}
	}
	return held > b.spec.Limits.Memory/2
}

// sample looks at what the host can see of the box.
func (b *box) sample() {
	now := b.d.cgroups.events(string(b.name))
	full := isFull(b.path("work")) || b.project != 0 && isFull(b.dir) || b.spec.SetupPhase && isFull(b.path("env"))
	m := b.meter
	m.mu.Lock()
	defer m.mu.Unlock()
	if now.oomKills > m.last.oomKills {
		m.met[sandbox.ExhaustedMemory] = time.Now()
	}
	if now.pidsFull > m.last.pidsFull {
		m.met[sandbox.ExhaustedPIDs] = time.Now()
	}
	m.last = now
	if full {
		m.met[sandbox.ExhaustedDisk] = time.Now()
	}
}
