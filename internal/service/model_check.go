package service

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"cofferdam"
)

// Bounds of what a registration may say of model ids.
const (
	maxModelID    = 256 // bytes of one, as the gateway has it
	maxModelIDs   = 100 // of a list of allowed ones, and of aliases
	maxFallbacks  = 8
	hintOfModelID = "give it as the provider has it, such as claude-sonnet-4-5 or gpt-5"
)

// checkIDs checks default, allow list and aliases: each id by itself, and that
// what is used is also allowed.
func checkIDs(op string, m cofferdam.Model) error {
	if m.Default != "" {
		if err := checkModelID(op, "default model", m.Default); err != nil {
			return err
		}
	}
	if len(m.Allow) > maxModelIDs || len(m.Alias) > maxModelIDs {
		return invalid(op, "allowed models", fmt.Sprintf("there are more than %d", maxModelIDs), "a * at the end of one stands for the rest")
	}
	for _, p := range m.Allow {
		if err := checkModelID(op, "allowed model", strings.TrimSuffix(p, "*")); err != nil && p != "*" {
			return err
		}
	}
	for name, target := range m.Alias {
		if err := errors.Join(checkModelID(op, "alias", name), checkModelID(op, "model of an alias", target)); err != nil {
			return first(err)
		}
		if _, further := m.Alias[target]; further {
			return invalid(op, "alias "+name, target+" is an alias as well, and only one step is taken", "name the provider's own id")
		}
		if !allows(m, target) {
			return invalid(op, "alias "+name, target+" is not among the allowed models", "add it with --allow "+target)
		}
	}
	target := m.Default
	if to, ok := m.Alias[target]; ok {
		target = to
	}
	if target != "" && !allows(m, target) {
		return invalid(op, "default model", target+" is not among the allowed models", "add it with --allow "+target)
	}
	return nil
}

func checkModelID(op, what, id string) error {
	switch {
	case id == "":
		return invalid(op, what, "is empty", hintOfModelID)
	case len(id) > maxModelID:
		return invalid(op, what, fmt.Sprintf("is longer than %d bytes", maxModelID), hintOfModelID)
	case strings.Contains(id, "*"):
		return invalid(op, what, fmt.Sprintf("%.100q has a * that is not at the end of an allowed model", id), hintOfModelID)
	case strings.ContainsFunc(id, func(r rune) bool { return r <= ' ' || r > '~' || strings.ContainsRune("\"\\,=", r) }):
		return invalid(op, what, fmt.Sprintf("%.100q has a character that no model's id has", id), hintOfModelID)
	}
	return nil
}

// allows is what the gateway does with a list of allowed models.
func allows(m cofferdam.Model, id string) bool {
	return len(m.Allow) == 0 || slices.ContainsFunc(m.Allow, func(p string) bool {
		head, open := strings.CutSuffix(p, "*")
		return p == id || open && strings.HasPrefix(id, head)
	})
}

// checkFallback wants fallbacks that are there and speak the same protocol. A
// registration is never changed, so those that are there cannot lead back here.
func checkFallback(ctx context.Context, models Models, op string, m cofferdam.Model) error {
	if len(m.Fallback) > maxFallbacks {
		return invalid(op, "fallback", fmt.Sprintf("there are more than %d", maxFallbacks), "name the first few")
	}
	for i, name := range m.Fallback {
		subject := fmt.Sprintf("fallback %.80q", name)
		if name == m.Name {
			return invalid(op, subject, "is the model itself", "name another one")
		}
		if slices.Contains(m.Fallback[:i], name) {
			return invalid(op, subject, "is named twice", "name each once, in the order they are tried")
		}
		other, err := models.FindModel(ctx, m.Scope, name)
		switch {
		case err != nil && cofferdam.KindOf(err) == cofferdam.NotFound || err == nil && other.Name != name:
			return invalid(op, subject, "there is no model of this name", "add it first with cofferdam model add; cofferdam model list shows those that are there")
		case err != nil:
			return err
		case other.Provider != m.Provider:
			return invalid(op, subject, "it speaks "+other.Provider+", and "+m.Name+" speaks "+m.Provider, "a fallback has the same protocol, since requests go to it as they are")
		}
	}
	return nil
}

// isFallback refuses to remove what another model falls back to.
func isFallback(ctx context.Context, models Models, op string, m cofferdam.Model) error {
	all, err := models.Models(ctx, m.Scope)
	if err != nil {
		return err
	}
	for _, other := range all {
		if slices.Contains(other.Fallback, m.Name) {
			return &cofferdam.Error{Op: op, Kind: cofferdam.Conflict, Subject: "model " + m.Name, Reason: other.Name + " falls back to it", Hint: "cofferdam model remove " + other.Name}
		}
	}
	return nil
}

// first returns the first of errors that were joined: people mend one at a time.
func first(err error) error {
	if list, ok := err.(interface{ Unwrap() []error }); ok && len(list.Unwrap()) > 0 {
		return list.Unwrap()[0]
	}
	return err
}
