package service

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"time"

	"cofferdam"
	"cofferdam/secret"
)

// CheckImage implements Environments: there is one of the name web.
func (m *Memory) CheckImage(name string) error {
	if name != "web" {
		return invalid("service.CheckImage", "image "+name, "there is none of this name", "leave it away")
	}
	return nil
}

// Environments implements Environments: one of each kind.
func (m *Memory) Environments(scope cofferdam.Scope) []cofferdam.Environment {
	return []cofferdam.Environment{
		{Schema: "cofferdam/environment/v1", Digest: "sha256:aaaa1111", Kind: "setup", Scope: scope, Name: "shop/command"},
		{Schema: "cofferdam/environment/v1", Digest: "sha256:aaaa2222", Kind: "image", Scope: scope, Name: "web"},
	}
}

// RemoveEnvironment implements Environments.
func (m *Memory) RemoveEnvironment(cofferdam.Scope, cofferdam.Digest, string) error { return m.Fail }

// RollbackEnvironment implements Environments.
func (m *Memory) RollbackEnvironment(cofferdam.Scope, cofferdam.Digest, string) error { return m.Fail }

// PruneEnvironments implements Environments.
func (m *Memory) PruneEnvironments(scope cofferdam.Scope, _ time.Duration, _ int64) ([]cofferdam.Environment, error) {
	return m.Environments(scope), m.Fail
}

// AddRepo implements Repos.
func (m *Memory) AddRepo(_ context.Context, r cofferdam.Repo) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.repos = append(m.repos, r)
	return m.Fail
}

// FindRepo implements Repos.
func (m *Memory) FindRepo(_ context.Context, _ cofferdam.Scope, name string) (cofferdam.Repo, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range m.repos {
		if r.Name == name || string(r.ID) == name {
			return r, m.Fail
		}
	}
	return cofferdam.Repo{}, notFound("repo", name)
}

// Repos implements Repos.
func (m *Memory) Repos(context.Context, cofferdam.Scope) ([]cofferdam.Repo, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.repos), m.Fail
}

// RemoveRepo implements Repos.
func (m *Memory) RemoveRepo(_ context.Context, _ cofferdam.Scope, id cofferdam.RepoID) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.repos = slices.DeleteFunc(m.repos, func(r cofferdam.Repo) bool { return r.ID == id })
	return m.Fail
}

// AddModel implements Models.
func (m *Memory) AddModel(_ context.Context, v cofferdam.Model) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.models = append(m.models, v)
	return m.Fail
}

// FindModel implements Models.
func (m *Memory) FindModel(_ context.Context, _ cofferdam.Scope, name string) (cofferdam.Model, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, v := range m.models {
		if v.Name == name || string(v.ID) == name {
			return v, m.Fail
		}
	}
	return cofferdam.Model{}, notFound("model", name)
}

// Models implements Models.
func (m *Memory) Models(context.Context, cofferdam.Scope) ([]cofferdam.Model, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.models), m.Fail
}

// RemoveModel implements Models.
func (m *Memory) RemoveModel(_ context.Context, _ cofferdam.Scope, id cofferdam.ModelID) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.models = slices.DeleteFunc(m.models, func(v cofferdam.Model) bool { return v.ID == id })
	return m.Fail
}

// Put implements Secrets.
func (m *Memory) Put(_ context.Context, _ cofferdam.Scope, name string, value secret.Value) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	h := http.Header{}
	if err := value.SetHeader(h, "Secret", "%s"); err != nil {
		return err
	}
	m.secrets[name] = h.Get("Secret")
	return m.Fail
}

// Remove implements Secrets.
func (m *Memory) Remove(_ context.Context, _ cofferdam.Scope, name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.secrets, name)
	return m.Fail
}

// Session implements Sessions.
func (m *Memory) Session(_ context.Context, _ cofferdam.Scope, name string) (cofferdam.Session, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, s := range m.sessions {
		if len(name) > 3 && strings.HasPrefix(string(s.ID), name) {
			return s, m.Fail
		}
	}
	return cofferdam.Session{}, notFound("session", name)
}

// Sessions implements Sessions.
func (m *Memory) Sessions(_ context.Context, _ cofferdam.Scope, t cofferdam.TaskID, limit int) ([]cofferdam.Session, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []cofferdam.Session
	for _, s := range slices.Backward(m.sessions) {
		if (t == "" || s.Task == t) && len(out) < limit {
			out = append(out, s)
		}
	}
	return out, m.Fail
}
