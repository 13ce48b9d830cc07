package git

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"cofferdam"
	"cofferdam/internal/repo"
	"cofferdam/secret"
)

// Check examines the upstream of r before it is registered, with a credential
// that is not sealed yet (zero: none), and returns its base branch: r.Base, or
// the one that HEAD names.
func (g *Gateway) Check(ctx context.Context, r cofferdam.Repo, credential secret.Value) (cofferdam.Ref, error) {
	if local(r) {
		if !credential.IsZero() {
			return "", checkFailed(r, "a local path takes no credential", "leave the credential out")
		}
		return g.repos.Check(ctx, r.Upstream, r.Base)
	}
	if _, err := parseUpstream(r); err != nil {
		return "", err
	}
	// A mirror for this look alone: git needs one to speak from.
	look := r
	look.ID = cofferdam.RepoID(strings.Replace(cofferdam.NewID("r"), "r-", repo.LookPrefix, 1))
	if err := g.repos.Ensure(ctx, look.ID, "refs/heads/main"); err != nil {
		return "", err
	}
	defer g.repos.Remove(context.WithoutCancel(ctx), look.ID)
	as := &Gateway{repos: g.repos, clients: g.clients, credential: func(context.Context, cofferdam.Repo) (secret.Value, bool, error) {
		return credential, !credential.IsZero(), nil
	}}
	c := &carrier{g: as, repo: look}
	refs, head, err := g.repos.UpstreamRefs(ctx, look.ID, c)
	if err != nil {
		return "", c.explain("use "+r.Upstream, err)
	}
	return checkBase(r, refs, head)
}

func checkFailed(r cofferdam.Repo, reason, hint string) error {
	return &cofferdam.Error{Op: "git.Check", Kind: cofferdam.Invalid, Subject: "use " + r.Upstream, Reason: reason, Hint: hint}
}

// checkBase makes sure that the upstream has the base branch, with object ids
// of the supported kind.
func checkBase(r cofferdam.Repo, refs map[cofferdam.Ref]cofferdam.Commit, head cofferdam.Ref) (cofferdam.Ref, error) {
	base := r.Base
	if base == "" {
		if base = head; base == "" {
			return "", checkFailed(r, "its HEAD names no branch", "name the base branch: --base main")
		}
	}
	if err := repo.CheckRef(base); err != nil {
		return "", err
	}
	at := refs[base]
	if at == "" {
		var names []string
		for ref := range refs {
			if name, ok := strings.CutPrefix(string(ref), "refs/heads/"); ok {
				names = append(names, name)
			}
		}
		slices.Sort(names)
		hint := "push one commit to it first"
		if len(names) > 0 {
			hint = "it has: " + repo.OneLine(strings.Join(names[:min(8, len(names))], ", "))
		}
		return "", checkFailed(r, "it has no branch "+strings.TrimPrefix(string(base), "refs/heads/"), hint)
	}
	if len(at) != 40 {
		return "", checkFailed(r, fmt.Sprintf("its object ids have %d digits, and only sha1 repositories are supported", len(at)), "make a sha1 copy of it")
	}
	return base, nil
}
