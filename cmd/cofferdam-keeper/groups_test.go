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
// one is in any control group of another, with which it would be bounded and end.
func TestBoxesShareNoGroup(t *testing.T) {
	const each = 12
	p := newPlace(t)
	p.start(t)
	c := p.dial(t)
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
