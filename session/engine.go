package session

import (
	"slices"

	"cofferdam/sandbox"
)

// engine says where clients of container engines look. In a box that cannot
// have an engine nobody is there, and all that docker, compose and
// Testcontainers print is the address they tried: so the address says which
// tier can. In a box that can, whoever starts the engine says where it is.
func engine(t sandbox.Tier) []string {
	if slices.Contains(sandbox.OfferOf(t).Can, sandbox.CanNest) {
		return nil
	}
	for _, able := range sandbox.Tiers() {
		if slices.Contains(sandbox.OfferOf(able).Can, sandbox.CanNest) {
			address := "unix:///run/no-containers-in-tier-" + string(t) + "-ask-for-tier-" + string(able)
			return []string{"DOCKER_HOST=" + address, "CONTAINER_HOST=" + address}
		}
	}
	return nil
}
