package service

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"strings"

	"cofferdam"
	"cofferdam/secret"
	"cofferdam/task"
)

// providers maps the protocols to the address that is used when none is given.
func providers() map[string]string {
	return map[string]string{
		"anthropic": "https://api.anthropic.com", "openai": "https://api.openai.com", "gemini": "https://generativelanguage.googleapis.com",
	}
}

// ModelSecret names the sealed key of a model provider.
func ModelSecret(id cofferdam.ModelID) string { return "model/" + string(id) }

// AddModel registers a model provider with its key.
func (s *Service) AddModel(ctx context.Context, r cofferdam.ModelRequest) (cofferdam.Model, error) {
	const op = "service.AddModel"
	if _, err := s.who(ctx, op); err != nil {
		return cofferdam.Model{}, err
	}
	if r.Name == "" {
		r.Name = r.Provider
	}
	m := cofferdam.Model{
		Schema: "cofferdam/model/v1", ID: cofferdam.ModelID(cofferdam.NewID("m")), Scope: s.scope(ctx),
		Name: r.Name, Provider: r.Provider, URL: r.URL, Rehearsal: r.Rehearsal, Default: r.Default, Allow: r.Allow, Alias: r.Alias,
		Fallback: r.Fallback, KeepText: r.KeepText, NoKey: r.NoKey, Created: s.Now().UTC(),
	}
	address, known := providers()[r.Provider]
	if !known {
		return m, invalid(op, "provider", fmt.Sprintf("%.80q is not a protocol that is spoken here", r.Provider), "use anthropic, openai or gemini; a compatible server has the protocol it is compatible with")
	}
	if err := checkName(op, "model name", r.Name); err != nil {
		return m, err
	}
	if m.URL == "" {
		m.URL = address
	}
	if err := errors.Join(checkModelURL(op, m.URL), checkKey(op, r, m.URL == address), checkIDs(op, m)); err != nil {
		return m, first(err)
	}
	if err := checkFallback(ctx, s.Models, op, m); err != nil {
		return m, err
	}
	if _, err := s.Models.FindModel(ctx, s.scope(ctx), r.Name); err == nil {
		return m, &cofferdam.Error{Op: op, Kind: cofferdam.Conflict, Subject: "model " + r.Name, Reason: "there is one of this name", Hint: "choose another name, or remove it first"}
	}
	if !m.NoKey {
		if err := s.Secrets.Put(ctx, s.scope(ctx), ModelSecret(m.ID), secret.NewValue([]byte(r.Key))); err != nil {
			return m, err
		}
	}
	if err := s.Models.AddModel(ctx, m); err != nil {
		return m, join(err, forgotten(s.Secrets.Remove(ctx, s.scope(ctx), ModelSecret(m.ID))))
	}
	return m, nil
}

// checkModelURL allows https anywhere and plain http on loopback only: a key
// never crosses a network in the clear.
func checkModelURL(op, raw string) error {
	u, err := url.Parse(raw)
	if err != nil || len(raw) > 2048 || u.Hostname() == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return invalid(op, "model address", fmt.Sprintf("%.200q is no plain URL", raw), "use https://HOST[:PORT][/PATH]")
	}
	if u.Scheme == "https" {
		return nil
	}
	ip, err := netip.ParseAddr(u.Hostname())
	if u.Scheme == "http" && err == nil && ip.IsLoopback() {
		return nil
	}
	return invalid(op, "model address", "only https may leave this machine", "use https, or http://127.0.0.1:PORT for a server on this machine")
}

// checkKey wants a key, or the word that there is none; the provider's own
// address always asks for one.
func checkKey(op string, r cofferdam.ModelRequest, own bool) error {
	k := string(r.Key)
	switch {
	case r.NoKey && k != "":
		return invalid(op, "key", "there is one, and the request says that the server asks for none", "leave one of the two out")
	case r.NoKey && own:
		return invalid(op, "key", "this provider asks for one", "give it on standard input, or give the --url of the server that asks for none")
	case r.NoKey:
		return nil
	case len(k) < 8 || len(k) > maxSecret || strings.ContainsFunc(k, func(r rune) bool { return r <= ' ' || r > '~' }):
		return invalid(op, "key", "is not 8 or more printable characters in one line", "give it on standard input: cofferdam model add anthropic < key.txt")
	}
	return nil
}

// Model finds a model by name or id.
func (s *Service) Model(ctx context.Context, name string) (cofferdam.Model, error) {
	if err := s.may(ctx, "service.Model"); err != nil {
		return cofferdam.Model{}, err
	}
	return s.Models.FindModel(ctx, s.scope(ctx), name)
}

// ListModels returns the models of the project.
func (s *Service) ListModels(ctx context.Context) ([]cofferdam.Model, error) {
	if err := s.may(ctx, "service.ListModels"); err != nil {
		return nil, err
	}
	return s.Models.Models(ctx, s.scope(ctx))
}

// RemoveModel forgets a model and its key.
func (s *Service) RemoveModel(ctx context.Context, name string) error {
	const op = "service.RemoveModel"
	if _, err := s.who(ctx, op); err != nil {
		return err
	}
	m, err := s.Models.FindModel(ctx, s.scope(ctx), name)
	if err != nil {
		return err
	}
	tasks, err := s.Tasks.List(ctx, s.scope(ctx), task.Filter{})
	if err != nil {
		return err
	}
	for _, t := range tasks {
		if !t.State.Ended() && t.State != cofferdam.InReview && t.Request.Model == m.Name {
			return &cofferdam.Error{Op: op, Kind: cofferdam.Conflict, Subject: "model " + m.Name, Reason: t.Short() + " uses it", Hint: "cofferdam task cancel " + t.Short()}
		}
	}
	if err := isFallback(ctx, s.Models, op, m); err != nil {
		return err
	}
	if err := s.Models.RemoveModel(ctx, s.scope(ctx), m.ID); err != nil {
		return err
	}
	return forgotten(s.Secrets.Remove(ctx, s.scope(ctx), ModelSecret(m.ID)))
}

// forgotten treats a secret that was not there as forgotten.
func forgotten(err error) error {
	if err != nil && cofferdam.KindOf(err) == cofferdam.NotFound {
		return nil
	}
	return err
}

// join keeps err's own words and kind in front.
func join(err, more error) error {
	if more == nil {
		return err
	}
	return errors.Join(err, more)
}
