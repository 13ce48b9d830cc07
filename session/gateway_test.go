package session_test

import (
	"context"
	"net"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"cofferdam"
	"cofferdam/gateway"
	"cofferdam/gateway/git"
	"cofferdam/gateway/wire"
	"cofferdam/internal/repo"
	"cofferdam/sandbox"
	"cofferdam/session"
)

// throughGit makes a bench whose boxes reach their repository through the real
// git gateway, on loopback in place of a wire.
func throughGit(t *testing.T) (*bench, *git.Gateway) {
	t.Helper()
	var (
		gate *git.Gateway
		repo *repo.Repos
		now  atomic.Pointer[gateway.Caller]
	)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	b := newBench(t, func(o *session.Options) {
		if gate == nil {
			repo = openRepos(t, filepath.Join(o.Dir, "..", "repos"))
			gate = git.New(git.Options{Repos: repo})
		}
		o.CloneURL = func(r cofferdam.Repo) string { return "http://" + l.Addr().String() + "/" + r.Name + ".git" }
		o.Resolve, o.ReadFile = gate.Resolve, repo.ReadFile
		o.Connect = func(_ context.Context, _ sandbox.Box, c *gateway.Caller, _ []wire.Name) (session.Wire, error) {
			now.Store(c)
			return &fakeWire{}, nil
		}
	})
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go gate.Serve(now.Load(), conn, gateway.Target{Host: "127.0.0.1", Port: 80})
		}
	}()
	if err := gate.Sync(context.Background(), b.repo); err != nil {
		t.Fatal(err)
	}
	return b, gate
}

func openRepos(t *testing.T, dir string) *repo.Repos {
	t.Helper()
	r, err := repo.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestThroughTheGitGateway(t *testing.T) {
	b, gate := throughGit(t)
	work := b.plan(`git log --oneline origin/main | wc -l
		git commit -q --allow-empty -m first
		git push origin HEAD:refs/heads/main && echo base-moved
		git push origin HEAD:refs/heads/cofferdam/t-8-1 && echo other-branch
		echo "1 + 1 = 2" > calc.txt; git commit -qam mend; git push -q && echo pushed; echo more >> calc.txt`)
	r := b.run(work)
	out := b.output(work, "agent", "stdout")
	if r.Failure != "" || r.Head == "" || !strings.Contains(out, "pushed") {
		t.Fatalf("%+v\n%s\n%s", r, out, b.output(work, "agent", "stderr"))
	}
	if strings.Contains(out, "base-moved") || strings.Contains(out, "other-branch") || r.Usage.Refused < 2 {
		t.Errorf("%d refused\n%s", r.Usage.Refused, out)
	}
	// The base moves on while the task is under way; its commits stay within reach.
	b.commit(map[string]string{"other.txt": "x\n"})
	for name, p := range map[string]session.Plan{
		"head": b.proof(r.Head, "grep -q 2 calc.txt", "git push origin HEAD:refs/heads/cofferdam/t-7-1 HEAD:refs/heads/x"),
		"base": b.proof(b.base, "grep -q 3 calc.txt", "git push origin HEAD:refs/heads/cofferdam/t-7-1 HEAD:refs/heads/x"),
	} {
		got := b.run(p)
		if len(got.Checks) != 2 || got.Checks[0].Exit != 0 {
			t.Errorf("%s: %+v", name, got)
			continue
		}
		if got.Checks[1].Exit == 0 || !strings.Contains(got.Checks[1].Tail, "remote rejected") {
			t.Errorf("%s: a proof session could push: %+v", name, got.Checks[1])
		}
	}
	if at, err := gate.Resolve(context.Background(), b.repo, work.Branch); err != nil || at != r.Head {
		t.Errorf("the branch is at %s: %v", at, err)
	}
	// Another task sees nothing of it.
	other := b.plan("git fetch origin " + string(r.Head) + " || echo refused; git ls-remote origin; echo 'cofferdam: nothing to do'")
	other.Number, other.Branch = 8, "refs/heads/cofferdam/t-8-1"
	b.run(other)
	if out := b.output(other, "agent", "stdout"); !strings.Contains(out, "refused") || strings.Contains(out, "t-7-1") {
		t.Errorf("another task sees this one's branch:\n%s", out)
	}
}

// TestAnUpstreamThatIsAwayForAWhileCostsNoWork holds that what the agent left is
// pushed again once the upstream is back, and that until then it is said why.
func TestAnUpstreamThatIsAwayForAWhileCostsNoWork(t *testing.T) {
	b, _ := throughGit(t)
	gone := b.repo.Upstream + ".gone"
	p := b.plan("echo x > x; mv " + b.repo.Upstream + " " + gone)
	done := b.start(context.Background(), p)
	b.until(p, "capture", "remote: cofferdam: ")
	b.rename(gone, b.repo.Upstream)
	if got := <-done; got.err != nil || got.result.Failure != "" || got.result.Head == "" {
		t.Fatalf("%+v %v", got.result, got.err)
	}
	said := false
	for _, e := range b.events(p) {
		said = said || e.Kind == cofferdam.EventPush && e.Outcome == gateway.Failed && e.Reason != ""
	}
	if !said {
		t.Error("why the push failed is not on record")
	}
}

// TestABranchOfSomebodyElse: whoever writes the attempt's branch in the upstream
// while the agent works is not the agent, and trying again does not help.
func TestABranchOfSomebodyElse(t *testing.T) {
	b, _ := throughGit(t)
	p := b.plan(`echo x > x; cd ` + b.repo.Upstream + `
		at=$(git -c user.name=o -c user.email=o@o commit-tree -m other $(git mktree < /dev/null))
		git update-ref refs/heads/cofferdam/t-7-1 $at && echo written`)
	r := b.run(p)
	if out := b.output(p, "agent", "stdout"); !strings.Contains(out, "written") {
		t.Fatalf("the other did not write: %s\n%s", out, b.output(p, "agent", "stderr"))
	}
	if r.Failure != cofferdam.ReasonRepository || !strings.Contains(r.Reason, "which is not what this push builds on") {
		t.Errorf("%+v", r)
	}
	pushes := 0
	for _, e := range b.events(p) {
		if e.Kind == cofferdam.EventPush && e.Of == nil {
			pushes++
		}
	}
	if pushes != 1 {
		t.Errorf("it was pushed %d times", pushes)
	}
}
