package flow

import (
	"context"

	"cofferdam"
)

// Starter sets tasks in motion. What it is told is only a hint to look: the
// truth is in the store, so calling it too often does no harm.
type Starter interface {
	// Ensure sees to it that the task's present attempt is being worked on.
	Ensure(ctx context.Context, t cofferdam.Task) error
	// Wake makes the attempt look at the store again now: after an approval, a
	// request to land, a cancellation.
	Wake(ctx context.Context, t cofferdam.Task) error
}
