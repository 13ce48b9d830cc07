package session

import (
	"strings"
	"testing"

	"cofferdam/sandbox"
)

// TestEngine: a box that cannot have a container engine names a tier that can,
// and one that can is told nothing.
func TestEngine(t *testing.T) {
	for tier, named := range map[sandbox.Tier]bool{sandbox.Process: true, sandbox.GVisor: true, sandbox.MicroVM: false, sandbox.Emulated: false} {
		got := strings.Join(engine(tier), " ")
		if named != strings.Contains(got, "DOCKER_HOST=unix:///run/no-containers-in-tier-"+string(tier)+"-ask-for-tier-microvm") || !named && got != "" {
			t.Errorf("%s: %q", tier, got)
		}
	}
}
