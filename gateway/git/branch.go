package git

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"

	"cofferdam"
)

// errTaken is in an error of a branch that somebody else has written meanwhile:
// trying again does not help.
var errTaken = errors.New("the branch is somebody else's")

// FreeBranch returns want, a branch of agents, or, if the upstream of r has it
// already, the first of want-2, want-3 and so on that it has not. A server whose
// state is new counts its tasks from 1, and the branches of an earlier one, or of
// another, are still there. Preconditions: the mirror of r is there.
func (g *Gateway) FreeBranch(ctx context.Context, r cofferdam.Repo, want cofferdam.Ref) (cofferdam.Ref, error) {
	folder := cofferdam.Ref(path.Dir(string(want)))
	c := &carrier{g: g, repo: r}
	refs, _, err := g.repos.UpstreamRefs(ctx, r.ID, c, folder, want+"*")
	if err != nil {
		return "", c.explain("list the branches of "+r.Name, err)
	}
	if _, ok := refs[folder]; ok { // git keeps no branch beside, below or above another
		name := strings.TrimPrefix(string(folder), "refs/heads/")
		return "", &cofferdam.Error{
			Op: "git.FreeBranch", Kind: cofferdam.Conflict, Subject: "write " + string(want),
			Reason: fmt.Sprintf("the upstream has a branch %s, and git keeps none of the name %s/… beside it", name, name),
			Hint:   fmt.Sprintf("rename it in the upstream, for example git branch -m %s %s-old, then cofferdam task retry", name, name),
		}
	}
	taken := map[string]bool{}
	for ref := range refs {
		if rest, ok := strings.CutPrefix(string(ref), string(folder)+"/"); ok {
			first, _, _ := strings.Cut(rest, "/")
			taken[first] = true
		}
	}
	free := path.Base(string(want))
	for n := 2; taken[free]; n++ { // ends: what is taken is finite
		free = fmt.Sprintf("%s-%d", path.Base(string(want)), n)
	}
	return folder + "/" + cofferdam.Ref(free), nil
}
