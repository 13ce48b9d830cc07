package git

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"

	"cofferdam"
	"cofferdam/gateway"
	"cofferdam/internal/repo"
)

// checkWants reads a request of protocol version 2 and returns it, if it asks
// for nothing that only other tasks' branches have. Version 2 of git itself
// serves any object to whoever knows its id; versions 0 and 1 do not.
func (g *Gateway) checkWants(ctx context.Context, c *gateway.Caller, body io.Reader) (io.Reader, error) {
	var seen bytes.Buffer
	in := &packets{r: bufio.NewReader(io.TeeReader(body, &seen)), left: maxWants, sections: true}
	whole := 0
	var wants []cofferdam.Commit
	for first := true; ; first = false {
		line, err := in.next()
		if err != nil {
			return nil, badFetch(err.Error())
		}
		text := strings.TrimSuffix(string(line), "\n")
		if first && text != "command=fetch" && text != "command=ls-refs" {
			return nil, badFetch("it is neither fetch nor ls-refs")
		}
		if line == nil {
			whole += 4
			break
		}
		whole += 4 + len(line)
		id, isWant := strings.CutPrefix(text, "want ")
		if strings.HasPrefix(text, "want-ref ") || isWant && repo.CheckCommit(cofferdam.Commit(id)) != nil {
			return nil, badFetch(fmt.Sprintf("%q is no want", repo.OneLine(text)))
		}
		if isWant {
			wants = append(wants, cofferdam.Commit(id))
		}
	}
	// What follows the request is not part of it, and git would not read it.
	request := bytes.NewReader(seen.Bytes()[:whole])
	return request, g.mayHave(ctx, c, wants)
}

func badFetch(why string) error {
	return &cofferdam.Error{Op: "git.Serve", Kind: cofferdam.Invalid, Reason: "the fetch cannot be read: " + why, Hint: "send it as git does"}
}

// mayHave refuses what the session's refs do not reach and others' do.
func (g *Gateway) mayHave(ctx context.Context, c *gateway.Caller, wants []cofferdam.Commit) error {
	if len(wants) == 0 {
		return nil
	}
	refs, err := g.repos.Refs(ctx, c.Repo.ID)
	if err != nil {
		return err
	}
	tips := map[cofferdam.Commit]bool{}
	for ref, at := range refs {
		if ref == c.Branch || !strings.HasPrefix(string(ref), repo.AgentRefs) {
			tips[at] = true
		}
	}
	var inner []cofferdam.Commit // wants of a partial clone, say
	for _, w := range wants {
		if !tips[w] {
			inner = append(inner, w)
		}
	}
	if len(inner) == 0 {
		return nil
	}
	hidden, err := g.repos.Hidden(ctx, c.Repo.ID, c.Branch)
	if err != nil {
		return err
	}
	for _, w := range inner {
		if hidden[w] {
			return &cofferdam.Error{Op: "git.Serve", Kind: cofferdam.Denied, Reason: fmt.Sprintf("object %s is not part of what this session may read", w), Hint: "fetch branches by name"}
		}
	}
	return nil
}
