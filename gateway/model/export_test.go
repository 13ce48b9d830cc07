package model

import "time"

// Bounds that tests try.
const (
	MaxTries = maxTries
	MaxKept  = maxKept
	MaxCalls = maxCalls
	MaxLarge = maxLarge

	LargeRequest = largeRequest
)

// Hurry shortens the pauses between tries.
func (g *Gateway) Hurry() { g.pause = 4 * time.Millisecond }
