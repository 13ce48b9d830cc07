package process

import (
	"testing"

	"cofferdam"
	"cofferdam/sandbox"
	"cofferdam/sandbox/sandboxtest"
)

// TestSoak: see sandboxtest.Soak.
func TestSoak(t *testing.T) {
	d := newDriver(t)
	rests := 100
	if isUser() {
		rests = 0 // nothing stops a box without a control group
	}
	sandboxtest.Soak{
		Root: d.o.Root, Cycles: 500, Rests: rests, AtOnce: 60,
		Change: func(s *sandbox.Spec) {
			s.Limits = cofferdam.Limits{Memory: 256 << 20, Disk: 64 << 20, Temp: 32 << 20, CPU: 2, PIDs: 128, OpenFiles: 256}
		},
	}.Run(t, d)
}
