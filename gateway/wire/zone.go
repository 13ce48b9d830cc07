package wire

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"cofferdam"
	"cofferdam/gateway"
)

// Bounds of the names below one wildcard, on one wire. When such a name is dialled a
// resolver outside hears it, and whoever runs the zone can read data in its labels.
// What is bounded is how much that is, however it is written: no guess at what looks
// random could be.
const (
	MaxBelow      = 128  // names
	MaxBelowBytes = 2048 // bytes of all their labels together
)

// Rules by which this room refuses names that policy allows.
const (
	RuleNames = "name-ceiling" // MaxNames, MaxBelow or MaxBelowBytes
)

// errCounted is the refusal of a name that is counted and has no event of its own.
var errCounted = &cofferdam.Error{
	Op: "wire.Resolve", Kind: cofferdam.Denied, Reason: "more names were refused than are put on record one by one",
	Hint: "ask for fewer names", Err: errors.New("counted"),
}

// tooMany refuses a name below a wildcard below which too much was asked already;
// names that are known go on.
func (r *resolver) tooMany(ctx context.Context, req gateway.Request, h cofferdam.Host) error {
	zone := r.wire.caller.Policy.Below(h)
	if zone == "" {
		return nil
	}
	names, bytes := 1, len(h)-len(zone)-1
	for _, known := range r.wire.names.below(zone) {
		if r.wire.caller.Policy.Below(known) == zone {
			names, bytes = names+1, bytes+len(known)-len(zone)-1
		}
	}
	if names <= MaxBelow && bytes <= MaxBelowBytes {
		return nil
	}
	return gateway.Reject(ctx, r.wire.caller, req, RuleNames,
		fmt.Sprintf("below %s this session knows %d names with %d bytes of labels, and knows no more than %d with %d", zone, names-1, bytes-(len(h)-len(zone)-1), MaxBelow, MaxBelowBytes),
		"have a person allow the host by its own name: --allow "+string(h))
}

// below lists the known names below a zone.
func (t *table) below(zone cofferdam.Host) []cofferdam.Host {
	t.mu.RLock()
	defer t.mu.RUnlock()
	var list []cofferdam.Host
	for h := range t.byName {
		if strings.HasSuffix(string(h), "."+string(zone)) {
			list = append(list, h)
		}
	}
	return list
}
