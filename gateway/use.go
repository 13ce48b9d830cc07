package gateway

import (
	"context"

	"cofferdam"
	"cofferdam/policy"
)

// Names of credentials, as policy is asked about their use.
const (
	ModelSecret = "model:" // and the name of the registration whose key it is
	RepoSecret  = "repo:"  // and the name of the repository
	SetupSecret = "setup:" // and its name: one that a setup has in its own hands
)

// Use asks whether a session may have a credential attached to what was let
// through, and calls do if so. It is an act of its own, synced before do: what
// a task was made with passes by a built-in rule, and a policy can deny it, or ask.
// Its errors are those of Handle.
func Use(ctx context.Context, c *Caller, name string, do func(context.Context) error) error {
	return Handle(ctx, c, Request{
		Source: "secret", Kind: cofferdam.EventSecret, Resource: name, Query: policy.Query{Action: policy.Use, Name: name}, Durable: true,
	}, func(ctx context.Context) (Outcome, error) { return Outcome{}, do(ctx) })
}
