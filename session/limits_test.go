package session

import (
	"testing"

	"cofferdam"
	"cofferdam/policy"
	"cofferdam/sandbox"
)

// TestLittleMemory: who names little memory, and nothing about what of it is a
// disk, gets a box; who names both gets what was named.
func TestLittleMemory(t *testing.T) {
	var narrow policy.Project
	narrow.Limits.Memory = 2 << 30
	for name, c := range map[string]struct {
		asked   *cofferdam.Limits
		project policy.Project
		temp    int64
	}{
		"nothing":    {temp: sandbox.DefaultLimits.Temp},
		"a gigabyte": {asked: &cofferdam.Limits{Memory: 1 << 30}, temp: 256 << 20},
		"a project":  {project: narrow, temp: 512 << 20},
		"both named": {asked: &cofferdam.Limits{Memory: 1 << 30, Temp: 64 << 20}, temp: 64 << 20},
	} {
		s := sandbox.Spec{Image: sandbox.HostImage, Limits: limits(c.asked, c.project)}
		if err := s.Complete(sandbox.Rules{Tiers: []sandbox.Tier{sandbox.GVisor}, MinMemory: 32 << 20, MaxCPU: 64, State: "/var/lib/nothing"}); s.Limits.Temp != c.temp || err != nil {
			t.Errorf("%s: %d of %d, %v", name, s.Limits.Temp, s.Limits.Memory, err)
		}
	}
}
