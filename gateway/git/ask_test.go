package git

import (
	"context"
	"strings"
	"sync"
	"testing"

	"cofferdam"
	"cofferdam/gateway"
	"cofferdam/policy"
)

// people answer as a test says, and keep what they were asked.
type people struct {
	mu    sync.Mutex
	no    error
	asked []cofferdam.Question
}

func (p *people) Ask(_ context.Context, q cofferdam.Question) (cofferdam.Question, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked = append(p.asked, q)
	q.ID, q.State = "a-1", cofferdam.QuestionAllowed
	return q, p.no
}

func (p *people) Use(context.Context, cofferdam.QuestionID, cofferdam.Digest) error { return nil }

func (p *people) UseOpening(context.Context, cofferdam.QuestionID, int) error { return nil }

func (p *people) TakeBytes(context.Context, cofferdam.QuestionID, int64, int64) error {
	return &cofferdam.Error{Kind: cofferdam.Conflict, Reason: "nothing is open"}
}

func (p *people) EndOpening(context.Context, cofferdam.Scope, cofferdam.QuestionID, string) error {
	return nil
}

// TestAskedPush: a push that policy asks about is shown with its commits, lands
// once a person allows it, and not before; a no is told to git. Nobody is asked
// about a push that is refused anyway, or that git does not take.
func TestAskedPush(t *testing.T) {
	w := newWorld(t, "")
	d, err := policy.ParseDocument(policy.ProjectName, []byte("[git]\nask = [\"push:refs/heads/**\"]\n"), nil)
	if err != nil {
		t.Fatal(err)
	}
	p := &people{}
	set, err := policy.New(policy.Grant{Repo: w.repo.ID, Branch: own, Project: &d})
	if err != nil {
		t.Fatal(err)
	}
	w.caller.Policy, w.caller.Ask = gateway.NewRules(set), p
	dir := w.clone()
	first := write(t, dir, "c.txt", "three\n")
	w.must(dir, "push", "origin", "HEAD:"+string(own))
	if len(p.asked) != 1 || !strings.Contains(string(p.asked[0].Bytes), first+" "+string(own)) || p.asked[0].Resource != string(own) {
		t.Fatalf("asked: %+v", p.asked)
	}
	if !strings.Contains(w.refs(), first+" "+string(own)) {
		t.Errorf("what a person allowed is not there:\n%s", w.refs())
	}
	write(t, dir, "d.txt", "four\n")
	p.no = &cofferdam.Error{Kind: cofferdam.Denied, Reason: "ann said no", Hint: "do something else"}
	if out, err := w.git(dir, "push", "origin", "HEAD:"+string(own)); err == nil || !strings.Contains(out, "ann said no") {
		t.Errorf("%v\n%s", err, out)
	}
	if !strings.Contains(w.refs(), first+" "+string(own)) || w.mirrorAt(own) != first {
		t.Errorf("written without an answer:\n%s", w.refs())
	}
	n := len(p.asked)
	for _, ref := range []string{"HEAD:refs/heads/main", ":" + string(own)} {
		if out, err := w.git(dir, "push", "origin", ref); err == nil {
			t.Errorf("%s passed: %s", ref, out)
		}
	}
	if len(p.asked) != n {
		t.Errorf("asked about what is refused anyway: %+v", p.asked[n:])
	}
	if got := w.pushes(); !strings.HasPrefix(got, "asked allowed ok asked refused refused") {
		t.Errorf("record: %q", got)
	}
}
