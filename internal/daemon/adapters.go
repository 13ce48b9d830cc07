package daemon

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"

	"cofferdam"
	"cofferdam/agent"
	"cofferdam/agent/loop"
	"cofferdam/gateway/model"
	"cofferdam/internal/api"
	"cofferdam/internal/repo"
	"cofferdam/internal/service"
	"cofferdam/internal/store"
	"cofferdam/policy"
)

// reposOf forgets a repository's mirror with the repository.
type reposOf struct {
	*store.Store
	mirror *repo.Repos
}

// RemoveRepo implements service.Repos.
func (r reposOf) RemoveRepo(ctx context.Context, scope cofferdam.Scope, id cofferdam.RepoID) error {
	if err := r.Store.RemoveRepo(ctx, scope, id); err != nil {
		return err
	}
	return r.mirror.Remove(ctx, id)
}

// attachKey adds a provider's key to an outgoing request, in the header that
// its protocol has for it.
func (s *server) attachKey(ctx context.Context, m cofferdam.Model, h http.Header) error {
	if m.NoKey {
		return nil
	}
	name, format, ok := model.KeyHeader(m.Provider)
	if !ok {
		return &cofferdam.Error{Op: "daemon.attachKey", Kind: cofferdam.Internal, Subject: "model " + m.Name, Reason: "nobody speaks its protocol " + m.Provider}
	}
	v, err := s.vault.Get(ctx, m.Scope, service.ModelSecret(m.ID))
	if err != nil {
		return err
	}
	return v.SetHeader(h, name, format)
}

// readAgents reads the operator's folder of adapters; a bad one ends the start.
func (s *server) readAgents(context.Context) (err error) {
	if s.Agents != "" {
		if s.agents, err = agent.Read(s.Agents); err != nil {
			return err
		}
	}
	for _, name := range s.agents.Names() {
		a, err := s.agents.Load(name)
		if err != nil {
			return err
		}
		g := cofferdam.Adapter{
			Schema: "cofferdam/agent/v1", Name: a.Name, Title: a.Title, Version: a.Version, Providers: a.Providers, Place: "box",
			Setup: a.Setup, Reaches: a.Allow, Command: a.Argv, Resumes: a.Resumes(), Reader: a.Reader, Added: s.agents.Added(name),
		}
		if a.Brain {
			g.Place = "server"
			for _, name := range loop.Tools() {
				g.Tools = append(g.Tools, policy.OwnTools+":"+name)
			}
		}
		if a.Shell != "" {
			g.Command = []string{a.Shell}
		}
		for _, c := range a.Contacts {
			g.Contacts = append(g.Contacts, cofferdam.Contact(c))
		}
		s.known = append(s.known, g)
	}
	return nil
}

func (s *server) needsModel(name string) (bool, error) {
	a, err := s.agents.Load(name)
	return len(a.Providers) > 0, err
}

// hears says whether an agent can be told something while it runs.
func (s *server) hears(name string) (bool, error) {
	a, err := s.agents.Load(name)
	return a.Resumes(), err
}

// listen opens the unix socket and, unless it is off, the loopback address.
func (s *server) listen() ([]net.Listener, error) {
	l, err := api.ListenUnix(s.Socket)
	if err != nil {
		return nil, err
	}
	list := []net.Listener{l}
	if s.Listen == "" {
		return list, nil
	}
	l, err = net.Listen("tcp", s.Listen)
	if err != nil {
		return nil, errors.Join(&cofferdam.Error{
			Op: "daemon.listen", Kind: cofferdam.Unavailable, Subject: "address " + s.Listen, Hint: "choose another with --listen, or --listen off", Err: err,
		}, list[0].Close())
	}
	return append(list, l), nil
}

// crash is the knob by which tests end server or engine at a named step, once:
// COFFERDAM_DEBUG_CRASH=[engine:]STEP:before|after. The file of that name in the
// state folder says that it has happened.
func (s *server) crash() func(string) {
	point, engine := strings.CutPrefix(s.CrashPoint, "engine:")
	if point == "" {
		return nil
	}
	return func(name string) {
		if name != point {
			return
		}
		f, err := os.OpenFile(s.State+"/crashed", os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
		if err != nil {
			return // it has happened
		}
		f.Close()
		pid := os.Getpid()
		if engine {
			pid = s.engine.PID()
		}
		_ = syscall.Kill(pid, syscall.SIGKILL) // a knob of tests; if it fails the test does
	}
}
