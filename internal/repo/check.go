package repo

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"cofferdam"
)

// Check examines a local upstream before it is registered: it must be a
// repository that git can write to without spoiling somebody's checkout, and
// have the branch base. It returns the base branch; with base "" the one that
// HEAD names.
func (r *Repos) Check(ctx context.Context, upstream string, base cofferdam.Ref) (cofferdam.Ref, error) {
	if !filepath.IsAbs(upstream) {
		return "", refuse(upstream, "a local upstream is given as an absolute path", "write "+absolute(upstream))
	}
	p, err := r.Upstream(upstream)
	if err != nil {
		return "", err
	}
	if err := checkShape(p, upstream); err != nil {
		return "", err
	}
	if err := r.checkFormat(ctx, p, upstream); err != nil {
		return "", err
	}
	if base, err = r.checkBase(ctx, p, upstream, base); err != nil {
		return "", err
	}
	return base, r.checkFree(ctx, p, upstream, base)
}

func absolute(path string) string {
	if abs, err := filepath.Abs(path); err == nil {
		return abs
	}
	return "it from the root: /…"
}

func refuse(upstream, reason, hint string) error {
	return &cofferdam.Error{Op: "repo.Check", Kind: cofferdam.Invalid, Subject: "use " + upstream, Reason: reason, Hint: hint}
}

func bareHint(upstream string) string {
	bare := strings.TrimSuffix(filepath.Clean(upstream), ".git") + ".git"
	return fmt.Sprintf("make a bare repository and register that: git clone --bare %s %s", quote(upstream), quote(bare))
}

// quote makes a shell word of s.
func quote(s string) string {
	if strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-+@%") == "" {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// checkShape refuses what is no repository of its own, or borrows from a place
// that a cage cannot see.
func checkShape(p Place, upstream string) error {
	host := p.binds[0].host
	if info, err := os.Lstat(filepath.Join(host, ".git")); err == nil && !info.IsDir() {
		return refuse(upstream, "it is a worktree of another repository", "register the repository itself, or "+bareHint(upstream))
	}
	gitDir := filepath.Join(host, strings.TrimPrefix(p.dir, "/upstream"))
	for _, need := range []string{"HEAD", "objects", "refs"} {
		if _, err := os.Stat(filepath.Join(gitDir, need)); err != nil {
			return refuse(upstream, "it is not a git repository", "make one: git init --bare "+quote(upstream))
		}
	}
	if text, err := os.ReadFile(filepath.Join(gitDir, "objects/info/alternates")); err == nil && len(strings.TrimSpace(string(text))) > 0 {
		return refuse(upstream, "it borrows objects from another repository, which nobody else would see", "make it whole: git -C "+quote(upstream)+" repack -a -d && rm "+quote(filepath.Join(gitDir, "objects/info/alternates")))
	}
	return nil
}

func (r *Repos) checkFormat(ctx context.Context, p Place, upstream string) error {
	out, _, err := r.output(ctx, p, 64, "rev-parse", "--show-object-format")
	if err != nil {
		return refuse(upstream, "git cannot read it: "+OneLine(err.Error()), "git -C "+quote(upstream)+" fsck says more")
	}
	if format := strings.TrimSpace(string(out)); format != "sha1" {
		return refuse(upstream, "its objects are named by "+OneLine(format)+", and only sha1 repositories are supported", "make a sha1 copy with git init --object-format=sha1 and git fast-export | git fast-import")
	}
	// Hooks are the owner's rules. Where a cage does not see them, git would
	// go on without them.
	if out, _, err = r.output(ctx, p, 4096, "config", "--get", "core.hooksPath"); err == nil && strings.TrimSpace(string(out)) != "" {
		return refuse(upstream, "its hooks are elsewhere (core.hooksPath), where they would not run", "move them into "+quote(filepath.Join(upstream, "hooks"))+" and run git -C "+quote(upstream)+" config --unset core.hooksPath")
	}
	return nil
}

// checkBase makes sure that the base branch exists.
func (r *Repos) checkBase(ctx context.Context, p Place, upstream string, base cofferdam.Ref) (cofferdam.Ref, error) {
	if base == "" {
		out, _, err := r.output(ctx, p, 512, "symbolic-ref", "--quiet", "HEAD")
		if err != nil {
			return "", refuse(upstream, "its HEAD names no branch", "name the base branch: --base main")
		}
		base = cofferdam.Ref(strings.TrimSpace(string(out)))
	}
	if err := CheckRef(base); err != nil {
		return "", err
	}
	if _, _, err := r.output(ctx, p, 128, "rev-parse", "--verify", "--quiet", "--end-of-options", string(base)+"^{commit}"); err != nil {
		have, _, lerr := r.output(ctx, p, 400, "for-each-ref", "--count=8", "--format=%(refname:short)", headPrefix)
		hint := "push one commit to it first"
		if names := strings.Join(strings.Fields(string(have)), ", "); lerr == nil && names != "" {
			hint = "it has: " + OneLine(names)
		}
		return "", refuse(upstream, "it has no branch "+strings.TrimPrefix(string(base), headPrefix), hint)
	}
	return base, nil
}

// checkFree refuses a repository where somebody has the base branch checked
// out: landing would move the branch under their feet.
func (r *Repos) checkFree(ctx context.Context, p Place, upstream string, base cofferdam.Ref) error {
	out, _, err := r.output(ctx, p, maxStderr, "worktree", "list", "--porcelain")
	if err != nil {
		return fmt.Errorf("look for checkouts of %s: %w", upstream, err)
	}
	for line := range strings.Lines(string(out)) {
		line = strings.TrimSuffix(line, "\n")
		if line == "branch "+string(base) {
			return refuse(upstream, "its base branch "+strings.TrimPrefix(string(base), headPrefix)+" is checked out, and landing would move it under that checkout", bareHint(upstream))
		}
	}
	return nil
}
