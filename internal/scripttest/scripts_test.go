package scripttest

import "testing"

// TestAttacks runs the adversarial scripts; -run 'TestAttacks/EGR' one boundary.
func TestAttacks(t *testing.T) { Run(t, "attacks") }

// TestEveryday runs what ordinary use breaks.
func TestEveryday(t *testing.T) { Run(t, "everyday") }

// TestProduct runs the product as its users do: first use, demo, bad input.
func TestProduct(t *testing.T) { Run(t, "product") }
