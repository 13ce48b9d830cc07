package microvm

import (
	"os"
	"testing"

	"cofferdam/sandbox"
	"cofferdam/sandbox/sandboxtest"
)

// TestSuite takes many machines, each with a copy of the host's programs.
func TestSuite(t *testing.T) {
	if os.Getenv("COFFERDAM_SOAK") == "" {
		t.Skip("not run here: it starts 40 emulated machines; COFFERDAM_SOAK=1 runs it")
	}
	d := newDriver(t)
	sandboxtest.Suite(t, func(*testing.T) sandbox.Driver { return d })
}
