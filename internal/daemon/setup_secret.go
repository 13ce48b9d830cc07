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
	"cofferdam/secret"
	"cofferdam/session"
)

// maxSetupSecret bounds the value of a secret of setups, in bytes.
const maxSetupSecret = 4096

// rawSecret reads a secret that the operator grants to the setup of a repository,
// and has every record leave it out from then on.
func (s *server) rawSecret(_ context.Context, repo cofferdam.Repo, name string) (session.RawSecret, error) {
	grant, ok := s.Environments.Secrets[name]
	refuse := func(reason, hint string) (session.RawSecret, error) {
		return session.RawSecret{}, &cofferdam.Error{Op: "daemon.Secret", Kind: cofferdam.Forbidden, Subject: "secret " + name + " for the setup of " + repo.Name, Reason: reason, Hint: hint}
	}
	if !ok || !slices.Contains(grant.Repos, repo.Name) {
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
