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

// TestAgents runs one script for each of the agents with the most users.
func TestAgents(t *testing.T) {
	for name, provider := range map[string]string{"claude": "anthropic", "codex": "openai"} {
		t.Run(name, func(t *testing.T) { Run(t, "agent", "AGENT="+name, "PROVIDER="+provider) })
	}
}

// TestSoak runs what takes too long for every change, such as the agents with
// fewer users.
func TestSoak(t *testing.T) {
	if os.Getenv("COFFERDAM_SOAK") == "" {
		t.Skip("takes long: make soak runs it, or COFFERDAM_SOAK=1")
	}
	Run(t, "soak")
	for _, tier := range []string{"process", "microvm-emulated"} {
		t.Run(tier, func(t *testing.T) { runFiles(t, scripts([]string{"product/both-killed"}), "TIER="+tier) })
	}
}
