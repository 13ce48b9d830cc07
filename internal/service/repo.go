package service

import (
	"context"
	"fmt"
	"net/url"
	"path/filepath"
	"regexp"
	"strings"

	"cofferdam"
	"cofferdam/secret"
	"cofferdam/task"
)

// maxSecret bounds a credential or key: tokens are far shorter, certificates
// with a key fit.
const maxSecret = 64 << 10

var thingName = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,62}$`)

// RepoSecret names the sealed credential of a repository.
func RepoSecret(id cofferdam.RepoID) string { return "repo/" + string(id) }

// AddRepo registers a repository after looking at it.
func (s *Service) AddRepo(ctx context.Context, r cofferdam.RepoRequest) (cofferdam.Repo, error) {
	const op = "service.AddRepo"
	if _, err := s.who(ctx, op); err != nil {
		return cofferdam.Repo{}, err
	}
	repo := cofferdam.Repo{
		Schema: "cofferdam/repo/v1", ID: cofferdam.RepoID(cofferdam.NewID("r")), Scope: s.scope(ctx),
		Name: r.Name, Upstream: r.Upstream, User: r.User, Created: s.Now().UTC(),
	}
	if err := checkName(op, "repository name", r.Name); err != nil {
		return repo, err
	}
	if err := checkUpstream(op, r); err != nil {
		return repo, err
	}
	if filepath.IsAbs(r.Upstream) {
		if err := s.ofMachine(ctx, op, "repository at a path of the server"); err != nil {
			return repo, err
		}
	}
	if r.Base != "" {
		ref, err := task.BranchRef(r.Base)
		if err != nil {
			return repo, invalid(op, "base branch", err.Error(), "give the name of a branch, such as main")
		}
		repo.Base = ref
	}
	if _, err := s.Repos.FindRepo(ctx, s.scope(ctx), r.Name); err == nil {
		return repo, &cofferdam.Error{Op: op, Kind: cofferdam.Conflict, Subject: "repository " + r.Name, Reason: "there is one of this name", Hint: "choose another name, or remove it first"}
	}
	var credential secret.Value
	if r.Credential != "" {
		credential = secret.NewValue([]byte(r.Credential))
	}
	base, err := s.CheckUpstream(ctx, repo, credential)
	if err != nil {
		return repo, err
	}
	repo.Base = base
	if r.Credential != "" {
		if err := s.Secrets.Put(ctx, s.scope(ctx), RepoSecret(repo.ID), credential); err != nil {
			return repo, err
		}
	}
	if err := s.Repos.AddRepo(ctx, repo); err != nil {
		if r.Credential != "" {
			err = join(err, s.Secrets.Remove(ctx, s.scope(ctx), RepoSecret(repo.ID)))
		}
		return repo, err
	}
	return repo, nil
}

func checkName(op, noun, name string) error {
	if thingName.MatchString(name) {
		return nil
	}
	return invalid(op, noun, fmt.Sprintf("%.80q is none: 1 to 63 lower-case letters, digits, dots, hyphens and underscores, a letter or digit first", name), "choose another name")
}

func checkUpstream(op string, r cofferdam.RepoRequest) error {
	const hint = "give the absolute path of a bare repository on the server, or an https URL"
	if len(r.Upstream) > 4096 || strings.ContainsFunc(r.Upstream, func(c rune) bool { return c <= ' ' || c == 0x7f || c == '�' }) {
		return invalid(op, "upstream", "holds blanks or control characters, or is too long", hint)
	}
	if len(r.Credential) > maxSecret || len(r.User) > 255 || strings.ContainsAny(string(r.Credential)+r.User, "\x00\r\n") {
		return invalid(op, "credential", "is too long or holds line breaks", "give one line on standard input")
	}
	if filepath.IsAbs(r.Upstream) {
		if r.Credential != "" {
			return invalid(op, "credential", "a path on the server needs none", "leave it away")
		}
		return nil
	}
	u, err := url.Parse(r.Upstream)
	if err != nil || u.Scheme != "https" || u.Hostname() == "" || u.RawQuery != "" || u.Fragment != "" {
		return invalid(op, "upstream", fmt.Sprintf("%.200q is neither an absolute path nor an https URL", r.Upstream), hint)
	}
	if u.User != nil {
		return invalid(op, "upstream", "the URL holds a user name or a password", "give --user NAME, and the password with --credential-file FILE or - for standard input")
	}
	return nil
}

// Repo finds a repository by name or id.
func (s *Service) Repo(ctx context.Context, name string) (cofferdam.Repo, error) {
	if err := s.may(ctx, "service.Repo"); err != nil {
		return cofferdam.Repo{}, err
	}
	return s.Repos.FindRepo(ctx, s.scope(ctx), name)
}

// ListRepos returns the repositories of the project.
func (s *Service) ListRepos(ctx context.Context) ([]cofferdam.Repo, error) {
	if err := s.may(ctx, "service.ListRepos"); err != nil {
		return nil, err
	}
	return s.Repos.Repos(ctx, s.scope(ctx))
}

// RemoveRepo forgets a repository. Its upstream is not touched; a task that
// still works on it is a conflict.
func (s *Service) RemoveRepo(ctx context.Context, name string) error {
	const op = "service.RemoveRepo"
	if _, err := s.who(ctx, op); err != nil {
		return err
	}
	repo, err := s.Repos.FindRepo(ctx, s.scope(ctx), name)
	if err != nil {
		return err
	}
	tasks, err := s.Tasks.List(ctx, s.scope(ctx), task.Filter{Repo: repo.ID})
	if err != nil {
		return err
	}
	for _, t := range tasks {
		if !t.State.Ended() {
			return &cofferdam.Error{Op: op, Kind: cofferdam.Conflict, Subject: "repository " + repo.Name, Reason: t.Short() + " still works on it", Hint: "cofferdam task cancel " + t.Short()}
		}
	}
	if err := s.Repos.RemoveRepo(ctx, s.scope(ctx), repo.ID); err != nil {
		return err
	}
	return forgotten(s.Secrets.Remove(ctx, s.scope(ctx), RepoSecret(repo.ID)))
}
