package service

import (
	"context"
	"fmt"
	"strings"

	"cofferdam"
)

// ListAgents returns the agents that tasks may name, by name.
func (s *Service) ListAgents(ctx context.Context) ([]cofferdam.Adapter, error) {
	if err := may(ctx, "service.ListAgents"); err != nil {
		return nil, err
	}
	return s.Agents, nil
}

// Agent finds an agent by name.
func (s *Service) Agent(ctx context.Context, name string) (cofferdam.Adapter, error) {
	const op = "service.Agent"
	if err := may(ctx, op); err != nil {
		return cofferdam.Adapter{}, err
	}
	var names []string
	for _, a := range s.Agents {
		if a.Name == name {
			return a, nil
		}
		names = append(names, a.Name)
	}
	return cofferdam.Adapter{}, &cofferdam.Error{
		Op: op, Kind: cofferdam.NotFound, Subject: fmt.Sprintf("agent %q", name), Reason: "there is none of this name",
		Hint: "choose one of: " + strings.Join(names, ", "),
	}
}
