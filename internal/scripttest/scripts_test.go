package scripttest

import (
	"os"
	"testing"
)

// TestAttacks runs the adversarial scripts; -run 'TestAttacks/EGR' one boundary.
func TestAttacks(t *testing.T) { Run(t, "attacks") }

// TestEveryday runs what ordinary use breaks.
func TestEveryday(t *testing.T) { Run(t, "everyday") }

// TestProduct runs the product as its users do: first use, demo, bad input.
func TestProduct(t *testing.T) { Run(t, "product") }

// TestSoak runs what takes too long for every change, such as the agents with
// fewer users.
func TestSoak(t *testing.T) {
	if os.Getenv("COFFERDAM_SOAK") == "" {
		t.Skip("takes long: make soak runs it, or COFFERDAM_SOAK=1")
	}
	Run(t, "soak")
}
