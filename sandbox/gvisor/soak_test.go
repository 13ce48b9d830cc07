package gvisor

import (
	"testing"

	"cofferdam/sandbox"
	"cofferdam/sandbox/sandboxtest"
)

// TestSoak: see sandboxtest.Soak.
func TestSoak(t *testing.T) {
	d := newDriver(t)
	sandboxtest.Soak{
		Root: d.o.Root, Cycles: 500, Rests: 100, AtOnce: 60, Change: func(s *sandbox.Spec) { s.Limits = small() },
	}.Run(t, d)
}
