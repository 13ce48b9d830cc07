package service

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"cofferdam"
)

// ListAgents returns the agents that tasks may name, by name.
func (s *Service) ListAgents(ctx context.Context) ([]cofferdam.Adapter, error) {
	if err := s.may(ctx, "service.ListAgents"); err != nil {
		return nil, err
	}
	return s.Agents, nil
}

// speaks says whether an agent can speak the protocol of a model.
func (s *Service) speaks(name string, m cofferdam.Model) bool {
	for _, a := range s.Agents {
		if a.Name == name && len(a.Providers) > 0 {
			return slices.Contains(a.Providers, m.Provider)
		}
	}
	return true
}

// mute says that an agent cannot speak the protocol of a model.
func (s *Service) mute(op, name string, m cofferdam.Model) error {
	return invalid(op, "model "+m.Name, fmt.Sprintf("the agent %s does not speak its protocol, %s", name, m.Provider),
		"cofferdam agent list has the protocols of each; name another with --agent or --model")
}

// Agent finds an agent by name.
func (s *Service) Agent(ctx context.Context, name string) (cofferdam.Adapter, error) {
	const op = "service.Agent"
	if err := s.may(ctx, op); err != nil {
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
