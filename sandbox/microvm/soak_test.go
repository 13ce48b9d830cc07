package microvm

import (
	"os"
	"testing"

	"cofferdam"
	"cofferdam/sandbox"
	"cofferdam/sandbox/sandboxtest"
)

// TestSoak: see sandboxtest.Soak. An emulated machine needs seconds to
// start: TestMachine looks for what a few of them leave.
func TestSoak(t *testing.T) {
	if os.Getenv("COFFERDAM_SOAK") == "" {
		t.Skip("not run here: it starts 500 emulated machines; COFFERDAM_SOAK=1 runs it")
	}
	d := newDriver(t)
	image := smallImage(t)
	sandboxtest.Soak{
		Root: d.o.Root, Cycles: 500, Rests: 100, AtOnce: 8,
		Change: func(s *sandbox.Spec) {
			s.Image = image
			s.Limits = cofferdam.Limits{Memory: 256 << 20, Disk: 64 << 20, Temp: 32 << 20, CPU: 1, PIDs: 128, OpenFiles: 256}
		},
	}.Run(t, d)
}
