package service

import (
	"context"
	"fmt"
	"math"
	"strings"
	"time"

	"cofferdam"
)

// Environments keeps what boxes are made from. Errors are *cofferdam.Error.
type Environments interface {
	CheckImage(name string) error                                                                            // Invalid if no image can have that name here
	Environments(scope cofferdam.Scope) []cofferdam.Environment                                              // newest first
	RemoveEnvironment(scope cofferdam.Scope, d cofferdam.Digest, why string) error                           // Conflict while a box may use it
	RollbackEnvironment(scope cofferdam.Scope, d cofferdam.Digest, why string) error                         // NotFound if none before it is kept
	PruneEnvironments(scope cofferdam.Scope, age time.Duration, size int64) ([]cofferdam.Environment, error) // what went
}

// ListEnvironments returns what the project's boxes are made from.
func (s *Service) ListEnvironments(ctx context.Context) ([]cofferdam.Environment, error) {
	if err := s.may(ctx, "service.ListEnvironments"); err != nil {
		return nil, err
	}
	return s.Environments.Environments(s.scope(ctx)), nil
}

// shortest is the shortest prefix of a digest that names one, in digits.
const shortest = 4

// Environment finds one by its digest or a unique prefix of it.
func (s *Service) Environment(ctx context.Context, name string) (cofferdam.Environment, error) {
	const op = "service.Environment"
	if err := s.may(ctx, op); err != nil {
		return cofferdam.Environment{}, err
	}
	prefix := strings.TrimPrefix(name, "sha256:")
	if len(prefix) < shortest {
		return cofferdam.Environment{}, invalid(op, fmt.Sprintf("environment %.80q", name), fmt.Sprintf("fewer than %d digits of a digest", shortest), "cofferdam environment list has them")
	}
	var found []cofferdam.Environment
	for _, e := range s.Environments.Environments(s.scope(ctx)) {
		if strings.HasPrefix(strings.TrimPrefix(string(e.Digest), "sha256:"), prefix) {
			found = append(found, e)
		}
	}
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		return cofferdam.Environment{}, &cofferdam.Error{Op: op, Kind: cofferdam.NotFound, Subject: fmt.Sprintf("environment %.80q", name), Reason: "there is none of this digest", Hint: "cofferdam environment list"}
	}
	return cofferdam.Environment{}, invalid(op, fmt.Sprintf("environment %.80q", name), fmt.Sprintf("%d have this prefix", len(found)), "give more digits of the digest")
}

// RemoveEnvironment removes one: the next task that wants it makes it anew.
func (s *Service) RemoveEnvironment(ctx context.Context, name string) error {
	by, err := s.who(ctx, "service.RemoveEnvironment")
	if err != nil {
		return err
	}
	e, err := s.Environment(ctx, name)
	if err != nil {
		return err
	}
	return s.Environments.RemoveEnvironment(s.scope(ctx), e.Digest, by.String()+" removed it")
}

// RollbackEnvironment puts the result of a setup before the last one back.
func (s *Service) RollbackEnvironment(ctx context.Context, name string) error {
	by, err := s.who(ctx, "service.RollbackEnvironment")
	if err != nil {
		return err
	}
	e, err := s.Environment(ctx, name)
	if err != nil {
		return err
	}
	return s.Environments.RollbackEnvironment(s.scope(ctx), e.Digest, by.String()+" went back to it")
}

// PruneEnvironments removes those that are too old, then those unused for
// longest, and returns what went. Without a bound it removes nothing.
func (s *Service) PruneEnvironments(ctx context.Context, r cofferdam.PruneRequest) ([]cofferdam.Environment, error) {
	const op = "service.PruneEnvironments"
	if _, err := s.who(ctx, op); err != nil {
		return nil, err
	}
	if math.IsNaN(r.Age) || r.Age < 0 || r.Age > 100*365*24*60*60 || r.Size < 0 {
		return nil, invalid(op, "bound", "an age or a size below zero, or an age of a century", "give the age in seconds and the size in bytes")
	}
	if r.Age == 0 && r.Size == 0 {
		return nil, invalid(op, "bound", "there is none", "give an age, a size or both")
	}
	return s.Environments.PruneEnvironments(s.scope(ctx), time.Duration(r.Age*float64(time.Second)), r.Size)
}
