package daemon

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"cofferdam"
	"cofferdam/sandbox"
)

// tier says which tier the boxes of a task get that asks for one: never one
// that is weaker than the operator's, and none that the keeper does not have.
func (s *server) tier(ctx context.Context, asked string) (string, error) {
	if asked == "" {
		asked = string(s.Tier)
	}
	offers, err := s.boxes.Offers(ctx)
	if err != nil {
		return "", err
	}
	return asked, tierFits(sandbox.Tier(asked), s.Tier, offers)
}

// tierFits says why a task that asks for a tier cannot have it.
func tierFits(asked, least sandbox.Tier, offers []sandbox.Offer) error {
	var have []string
	for _, o := range offers {
		if o.Tier.Satisfies(least) { // no other could be had either
			have = append(have, string(o.Tier))
		}
	}
	slices.Sort(have)
	have = slices.Compact(have) // two monitors can offer one tier
	switch {
	case !slices.Contains(sandbox.Tiers(), asked):
		return &cofferdam.Error{
			Op: "daemon.tier", Kind: cofferdam.Invalid, Subject: fmt.Sprintf("tier %.32q", string(asked)), Reason: "there is no such tier",
			Hint: "give one of " + strings.Join(have, ", "),
		}
	case !asked.Satisfies(least):
		return &cofferdam.Error{
			Op: "daemon.tier", Kind: cofferdam.Invalid, Subject: "tier " + string(asked),
			Reason: "the server's boxes are of tier " + string(least) + " or a stronger one", Hint: "leave --tier out, or ask the operator to change tier in the server's settings",
		}
	case !slices.Contains(have, string(asked)):
		return &cofferdam.Error{
			Op: "daemon.tier", Kind: cofferdam.Unavailable, Subject: "tier " + string(asked), Reason: "this host does not have it",
			Hint: "cofferdam doctor names each missing layer with its fix; this host has " + strings.Join(have, ", "),
		}
	}
	return nil
}
