package watch

import (
	"sync"
	"time"
)

// How often the memory of a box is looked at. Source: docs/SPECIFICATION.md, "Boxes
// of an ordinary user's keeper".
const (
	memoryPeriod = 100 * time.Millisecond
	// crowdedPeriod is the same while the box holds more than half of its memory.
	crowdedPeriod = 10 * time.Millisecond
)

// Memory has look called from now on, whether a command runs or not: what one left
// behind can grow. look returns how much the box holds, in bytes, and ends what is
// more than limit. What Memory returns ends that: none is under way once it returns.
func Memory(limit int64, look func() (held int64)) (end func()) {
	over, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		t := time.NewTimer(0)
		defer t.Stop()
		for {
			select {
			case <-over:
				return
			case <-t.C:
			}
			began, pause := time.Now(), memoryPeriod
			if look() > limit/2 {
				pause = max(crowdedPeriod, time.Since(began)) // half of the time at most
			}
			t.Reset(pause)
		}
	}()
	return sync.OnceFunc(func() { close(over); <-done })
}
