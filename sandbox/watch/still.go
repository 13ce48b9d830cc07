package watch

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// errRunsOn is of a box of which something did not stop.
var errRunsOn = errors.New("something in it does not stop")

// still are the processes of a box that were stopped.
type still struct {
	p    *Processes
	told []string          // to stop, by number in the box, in that order; none that stood already
	at   map[string]string // how often each thread had run when all stood
}

// Still stops all processes of the box but pid 1, which runs nothing of it, and
// returns once none of them runs. One that stood already is left so by GoOn.
//
// They can let each other go on until the last of them stands. So it does not count
// that each was seen to stand, but that all were seen twice and none had run between.
func (p *Processes) Still(ctx context.Context) (Stillness, error) {
	s := &still{p: p}
	for end := time.Now().Add(stillPatience); ; time.Sleep(time.Millisecond) {
		before, stand := s.look(true)
		if stand {
			if s.at, stand = s.look(false); stand && maps.Equal(before, s.at) {
				return s, nil
			}
		}
		err := context.Cause(ctx)
		if err == nil && time.Now().After(end) {
			err = errRunsOn
		}
		if err != nil {
			s.GoOn()
			return nil, err
		}
	}
}

// look says how often each thread of the box has run, and whether all stand; with
// stop, those are told to that do not, each after its parent stands: who waits for a
// child would hear that it was stopped.
func (s *still) look(stop bool) (ran map[string]string, stand bool) {
	ran = map[string]string{}
	run := map[string]string{} // the parents of those that do not stand
	for _, pid := range s.p.pids() {
		if parent, stands := s.threads(pid, ran); !stands {
			run[pid] = parent
		}
	}
	for pid, parent := range run {
		if _, runs := run[parent]; stop && !runs {
			if !slices.Contains(s.told, pid) {
				s.told = append(s.told, pid)
			}
			signal(s.p.Proc, pid, unix.SIGSTOP)
		}
	}
	return ran, len(run) == 0
}

// threads puts into ran how often each thread of a process has run, and says whether
// all of them stand: are stopped, or wait for something as nothing but its end wakes.
func (s *still) threads(pid string, ran map[string]string) (parent string, stand bool) {
	stand = true
	for _, thread := range s.p.names(pid + "/task") {
		path := pid + "/task/" + thread
		text, err := s.p.Proc.ReadFile(path + "/status")
		if err != nil {
			continue // it has ended
		}
		if state := Field(text, "State"); len(state) == 0 || state[0] == 'R' || state[0] == 'S' {
			stand = false
		}
		parent = string(Field(text, "PPid"))
		ran[path] = string(Field(text, "voluntary_ctxt_switches")) + " " + string(Field(text, "nonvoluntary_ctxt_switches"))
	}
	return parent, stand
}

// Kept implements Stillness.
func (s *still) Kept() bool {
	now, stand := s.look(false)
	return stand && maps.Equal(now, s.at)
}

// GoOn implements Stillness.
func (s *still) GoOn() {
	for _, pid := range slices.Backward(s.told) { // as it was: children before their parents
		signal(s.p.Proc, pid, unix.SIGCONT)
	}
}
