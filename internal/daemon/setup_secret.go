package daemon

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"cofferdam"
	"cofferdam/internal/redact"
	"cofferdam/internal/service"
	"cofferdam/secret"
	"cofferdam/session"
)

// maxSetupSecret bounds the value of a secret of setups, in bytes.
const maxSetupSecret = 4096

// grants says whether a list of the operator means a repository: by its name one of
// the server's own project, by PROJECT/NAME one of another project of its
// organisation. Whoever has a project names repositories there as they like, so a
// name alone must mean no other project's, and nothing means another organisation's.
func grants(ctx context.Context, projects service.Projects, own cofferdam.Scope, list []string, repo cofferdam.Repo) (bool, error) {
	switch {
	case repo.Scope == own:
		return slices.Contains(list, repo.Name), nil
	case repo.Organization != own.Organization:
		return false, nil
	}
	all, err := projects.Projects(ctx, repo.Organization)
	return slices.ContainsFunc(all, func(p cofferdam.Project) bool {
		return p.Scope == repo.Scope && slices.Contains(list, p.Name+"/"+repo.Name)
	}), err
}

// rawSecret reads a secret that the operator grants to the setup of a repository,
// and has every record leave it out from then on.
func (s *server) rawSecret(ctx context.Context, repo cofferdam.Repo, name string) (session.RawSecret, error) {
	grant, ok := s.Environments.Secrets[name]
	refuse := func(reason, hint string) (session.RawSecret, error) {
		return session.RawSecret{}, &cofferdam.Error{Op: "daemon.Secret", Kind: cofferdam.Forbidden, Subject: "secret " + name + " for the setup of " + repo.Name, Reason: reason, Hint: hint}
	}
	if ok {
		var err error
		if ok, err = grants(ctx, s.store, s.scope, grant.Repos, repo); err != nil {
			return session.RawSecret{}, err
		}
	}
	if !ok {
		return refuse("the operator grants it to none, or not to this repository", "its operator names it in the table [environments.secrets] of the configuration file")
	}
	const hint = "it must be a plain file of the server's user that nobody else can read (chmod 600), with 8 to 4096 bytes of text"
	f, err := os.OpenFile(grant.File, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return refuse("its file cannot be opened", hint)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() || info.Mode()&0o077 != 0 {
		return refuse("its file is no plain file, or others can read it", hint)
	}
	text, err := io.ReadAll(io.LimitReader(f, maxSetupSecret+2))
	text = bytes.TrimRight(text, "\r\n")
	if err != nil || len(text) < redact.MinLength || len(text) > maxSetupSecret || bytes.IndexByte(text, 0) >= 0 {
		return refuse("its file holds nothing that could be one", hint)
	}
	value := secret.NewValue(text)
	if err := s.vault.Watch("setup/"+name, value); err != nil {
		return session.RawSecret{}, err
	}
	look := redact.New(nil)
	if err := look.Set([]redact.Secret{value.Matcher(name)}); err != nil {
		return session.RawSecret{}, fmt.Errorf("looking for secret %s: %w", name, err)
	}
	return session.RawSecret{Name: name, Variable: value.Variable(name), Found: look.Found}, nil
}
