package guest

import (
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"cofferdam/sandbox"
)

// TestMeterBlamesWhoRan: a limit that was met while a command ran is in its
// result, also when it was met only between two looks; what was met before it
// or after it is not.
func TestMeterBlamesWhoRan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var now Seen
		set := func(change func(*Seen)) {
			mu.Lock()
			defer mu.Unlock()
			change(&now)
		}
		m := &Meter{Look: func() Seen { mu.Lock(); defer mu.Unlock(); return now }}
		set(func(s *Seen) { s.OOMKills, s.PIDsFull = 3, 3 })
		first := m.Watch("first")
		time.Sleep(time.Second)
		set(func(s *Seen) { s.DiskFull = true })
		time.Sleep(time.Second)
		set(func(s *Seen) { s.DiskFull = false })
		time.Sleep(time.Second)
		second := m.Watch("second")
		time.Sleep(time.Millisecond)
		set(func(s *Seen) { s.OOMKills++ })
		r := sandbox.Result{Signal: 9}
		second(&r)
		if !slices.Equal(r.Exhausted, []sandbox.Exhaustion{sandbox.ExhaustedMemory}) || r.Reason == "" {
			t.Errorf("the second: %+v", r)
		}
		r = sandbox.Result{Exhausted: []sandbox.Exhaustion{sandbox.ExhaustedMemory}, Lost: true}
		first(&r)
		if !slices.Equal(r.Exhausted, []sandbox.Exhaustion{sandbox.ExhaustedMemory, sandbox.ExhaustedDisk}) || r.Reason == "" {
			t.Errorf("the first: %+v", r)
		}
		time.Sleep(time.Second)
		r = sandbox.Result{Signal: 9}
		if m.Watch("third")(&r); len(r.Exhausted) > 0 || r.Reason != "" {
			t.Errorf("the third: %+v", r)
		}
	})
}

// TestMeterLooksWhileCommandsRun, and more often while it is crowded.
func TestMeterLooksWhileCommandsRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var looks, asked atomic.Int64
		var crowded atomic.Bool
		m := &Meter{Look: func() Seen { looks.Add(1); return Seen{} }, Crowded: func() bool { asked.Add(1); return crowded.Load() }}
		during := func(f func()) (int64, int64) {
			l, a := looks.Load(), asked.Load()
			f()
			synctest.Wait()
			return looks.Load() - l, asked.Load() - a
		}
		second := func() { time.Sleep(time.Second) }
		if l, a := during(second); l != 0 || a != 0 {
			t.Errorf("without a command: %d looks, asked %d times", l, a)
		}
		one, two := m.Watch("one"), m.Watch("two")
		if l, a := during(second); l < 9 || l > 11 || a < 9 || a > 11 {
			t.Errorf("with commands: %d looks, asked %d times", l, a)
		}
		crowded.Store(true)
		if l, a := during(second); l < 8 || l > 11 || a < 80 || a > 110 {
			t.Errorf("while it is crowded: %d looks, asked %d times", l, a)
		}
		one(&sandbox.Result{})
		if l, _ := during(second); l < 8 {
			t.Errorf("with one left: %d looks", l)
		}
		two(&sandbox.Result{})
		if l, a := during(second); l != 0 || a != 0 {
			t.Errorf("with none: %d looks, asked %d times", l, a)
		}
	})
}
