package repo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"cofferdam"
)

// Touched returns the paths of all that tip would change on the branch base, and
// of all that a commit of it changes that no branch of the mirror has but those
// of attempts: what one commit writes and the next takes back is there too. Of a
// merge it is what is like none of its parents. New objects may be in quarantine.
// Not whole if there is more than can be listed.
func Touched(ctx context.Context, r *Repos, id cofferdam.RepoID, base cofferdam.Ref, tip cofferdam.Commit, quarantine string) (paths []string, whole bool, err error) {
	p, err := r.mirror(id)
	if err != nil {
		return nil, false, err
	}
	if err := errors.Join(CheckRef(base), CheckCommit(tip)); err != nil {
		return nil, false, err
	}
	list := func(args ...string) ([]byte, bool, error) {
		out := &head{max: maxFiles + 1}
		c := p.child(args...)
		if quarantine != "" {
			c.env = append(c.env, p.quarantined(quarantine)...)
		}
		c.stdout = &stopper{head: out, limit: maxFiles}
		err := r.run(ctx, c)
		if out.buf.Len() > maxFiles {
			return nil, true, nil
		}
		return out.buf.Bytes(), false, err
	}
	from := emptyTree
	common, _, err := list("merge-base", string(base), string(tip))
	switch {
	case err == nil:
		from = string(bytes.TrimSpace(common))
	case !isExit(err, 1): // 1: no common history, so everything is new
		return nil, false, fmt.Errorf("find where the push left %s: %w", base, err)
	}
	net, more, err := list(append(diffOptions(), "-z", "--name-only", from, string(tip))...)
	if err != nil || more {
		return nil, false, err
	}
	each, more, err := list("log", "-z", "--format=", "--name-only", "--no-renames", "--ignore-submodules=none", "--root", "--diff-merges=combined", "--no-ext-diff", "--no-textconv",
		string(tip), "--not", "--exclude="+strings.TrimPrefix(AgentRefs, headPrefix)+"*", "--branches") // the pattern is of names below refs/heads/
	if err != nil || more {
		return nil, false, err
	}
	for _, name := range bytes.Split(append(net, each...), []byte{0}) {
		if len(name) > 0 { // byte by byte: a line break can be part of a name
			paths = append(paths, string(name))
		}
	}
	slices.Sort(paths)
	return slices.Compact(paths), true, nil
}
