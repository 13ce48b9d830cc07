package main

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"cofferdam/sandbox"
)

// TestBoxesShareNoGroup makes boxes of two tiers at the same time: no process of
// one is in any control group of another, with which it would be bounded and end, and
// no thread of the keeper is in one meanwhile.
func TestBoxesShareNoGroup(t *testing.T) {
	const each = 12
	p := newPlace(t)
	pid := p.start(t)
	c := p.dial(t)
	made, looked := make(chan struct{}), make(chan int)
	go func() { looked <- stayOut(t, pid, made) }()
	var all sync.WaitGroup
	var mu sync.Mutex
	boxes := map[string]bool{} // guarded by mu
	for _, tier := range []sandbox.Tier{sandbox.GVisor, sandbox.Process} {
		for range 3 {
			all.Go(func() {
				for range each / 3 {
					b := createOf(t, c, tier)
					mu.Lock()
					boxes[string(b.ID())] = true
					mu.Unlock()
				}
			})
		}
	}
	all.Wait()
	close(made)
	if n := <-looked; n < each {
		t.Errorf("control: the keeper was looked at %d times", n)
	}
	found := 0
	groups, err := filepath.Glob("/proc/[0-9]*/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range groups {
		data, err := os.ReadFile(path)
		if err != nil {
			continue // it has just ended
		}
		in := map[string]bool{}
		for line := range strings.Lines(string(data)) {
			if name := filepath.Base(strings.TrimSpace(line)); boxes[name] {
				in[name] = true
			}
		}
		if len(in) > 0 {
			found++
		}
		if len(in) > 1 {
			t.Errorf("%s: it is in groups of several boxes:\n%s", path, data)
		}
	}
	if found < 2*each {
		t.Errorf("control: %d processes of %d boxes were found", found, 2*each)
	}
}

// stayOut looks at the threads of a keeper until over is closed, and counts how often: in
// the group of a box they would be charged to it, and end with it.
func stayOut(t *testing.T, keeper int, over <-chan struct{}) (looks int) {
	for {
		select {
		case <-over:
			return looks
		default:
		}
		list, err := filepath.Glob("/proc/" + pidText(keeper) + "/task/*/cgroup")
		if err != nil || len(list) == 0 {
			t.Errorf("the keeper has threads %q, %v", list, err)
			return looks
		}
		for _, path := range list {
			data, err := os.ReadFile(path)
			if err == nil && strings.Contains(string(data), "/cofferdam-") && strings.Contains(string(data), "/b-") {
				t.Errorf("%s: the keeper is in the group of a box:\n%s", path, data)
				return looks
			}
		}
		looks++
	}
}
