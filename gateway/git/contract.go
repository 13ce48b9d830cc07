package git

import (
	"context"
	"fmt"
	"strings"

	"cofferdam"
	"cofferdam/gateway"
	"cofferdam/internal/repo"
)

// RuleScope refuses a push that changes what is not part of the task's scope.
const RuleScope = cofferdam.RuleScope

// fieldBeyond has the paths of a push that go beyond the task's scope.
const fieldBeyond = cofferdam.FieldBeyond

// Bounds of what is told of paths: git, an agent and the record see the first.
const (
	toldPaths     = 5
	recordedPaths = 100
)

// keep judges a push by the scope of its task. It is a refusal, on record, if the
// push goes beyond it; where that is marked only, it puts the paths into the
// fields of req.
func (g *Gateway) keep(ctx context.Context, c *gateway.Caller, req *gateway.Request, u repo.Update, got repo.Received) error {
	if c.Contract == nil || len(c.Contract.Paths) == 0 {
		return nil
	}
	paths, whole, err := repo.Touched(ctx, g.repos, c.Repo.ID, c.Base, u.New, got.Quarantine)
	if err != nil {
		return gateway.Reject(ctx, c, *req, RuleScope, "what it changes cannot be listed: "+repo.OneLine(err.Error()), "push again; a person can look at the repository with git fsck")
	}
	beyond := c.Contract.Beyond(paths)
	if whole && len(beyond) == 0 {
		return nil
	}
	if !whole {
		beyond = append(beyond, "(more files than can be listed)")
	}
	req.Fields[fieldBeyond] = names(beyond, recordedPaths)
	if c.Contract.Mark {
		return nil
	}
	return gateway.Reject(ctx, c, *req, RuleScope, fmt.Sprintf("this task's scope does not have %s", names(beyond, toldPaths)),
		"take the changes of these files out of every commit, also of those before, and push again; the scope is "+names(c.Contract.Paths, toldPaths))
}

// names puts the first of paths into a line.
func names(paths []string, most int) string {
	var shown []string
	for i, p := range paths {
		if i == most {
			shown = append(shown, fmt.Sprintf("and %d more", len(paths)-most))
			break
		}
		shown = append(shown, repo.OneLine(p))
	}
	return strings.Join(shown, ", ")
}
