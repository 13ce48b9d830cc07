package git

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"cofferdam"
	"cofferdam/internal/repo"
)

// pushed makes a world whose session has pushed one commit, and returns the
// base, the commit and the checkout.
func pushed(t *testing.T) (w *world, base, head cofferdam.Commit, dir string) {
	t.Helper()
	w = newWorld(t, "")
	dir = w.clone()
	base = cofferdam.Commit(must(t, dir, "rev-parse", "HEAD"))
	head = cofferdam.Commit(write(t, dir, "c.txt", "three\n"))
	w.must(dir, "push", "origin", "HEAD:"+string(own))
	return w, base, head, dir
}

// upstreamCommit lets somebody else push to main.
func (w *world) upstreamCommit(name string) cofferdam.Commit {
	w.t.Helper()
	work := filepath.Join(w.t.TempDir(), "other")
	must(w.t, "/", "clone", "--quiet", w.upstream, work)
	c := write(w.t, work, name, "theirs\n")
	must(w.t, work, "push", "--quiet", "origin", "HEAD:main")
	return cofferdam.Commit(c)
}

func TestLand(t *testing.T) {
	w, base, head, _ := pushed(t)
	for range 2 { // the second time it is there already
		if err := w.gateway.Land(t.Context(), w.repo, "refs/heads/main", base, head); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(w.refs(), string(head)+" refs/heads/main") || w.mirrorAt("refs/heads/main") != string(head) {
			t.Errorf("not landed:\n%s", w.refs())
		}
	}
	// Somebody builds on it: still landed.
	w.upstreamCommit("later.txt")
	if err := w.gateway.Land(t.Context(), w.repo, "refs/heads/main", base, head); err != nil {
		t.Errorf("landed and built upon: %v", err)
	}
}

// TestLandMoved: the base branch is where it was when the work began, or
// nothing happens.
func TestLandMoved(t *testing.T) {
	w, base, head, _ := pushed(t)
	w.upstreamCommit("theirs.txt")
	before := w.refs()
	err := w.gateway.Land(t.Context(), w.repo, "refs/heads/main", base, head)
	if cofferdam.KindOf(err) != cofferdam.Conflict || !strings.Contains(err.Error(), "moved") {
		t.Errorf("Land: %v", err)
	}
	if w.refs() != before {
		t.Errorf("refs changed:\n%s", w.refs())
	}
}

// TestLandNotFollowing: only a fast-forward lands.
func TestLandNotFollowing(t *testing.T) {
	w, base, _, dir := pushed(t)
	parent := cofferdam.Commit(must(t, dir, "rev-parse", string(base)+"~1"))
	w.upstreamCommit("x.txt")
	tip := cofferdam.Commit(must(t, w.upstream, "rev-parse", "main"))
	before := w.refs()
	for _, c := range []struct{ old, new cofferdam.Commit }{{tip, cofferdam.Commit(must(t, dir, "rev-parse", "HEAD"))}, {base, cofferdam.Commit(strings.Repeat("1", 40))}, {"x", "y"}, {tip, "main"}} {
		if err := w.gateway.Land(t.Context(), w.repo, "refs/heads/main", c.old, c.new); err == nil {
			t.Errorf("Land(%s, %s) went through", c.old, c.new)
		}
	}
	if err := w.gateway.Land(t.Context(), w.repo, "refs/heads/main", tip, parent); err != nil || w.refs() != before {
		t.Errorf("landing what is part of the base: %v\n%s", err, w.refs())
	}
	if err := w.gateway.Land(t.Context(), w.repo, "main", tip, tip); err == nil {
		t.Error("a short ref was taken")
	}
}

// TestLandRace: a push to the base between the look and the landing loses
// nothing: exactly one of both is there.
func TestLandRace(t *testing.T) {
	w, base, head, _ := pushed(t)
	if err := w.gateway.Sync(t.Context(), w.repo); err != nil {
		t.Fatal(err)
	}
	theirs := w.upstreamCommit("theirs.txt")
	err := w.gateway.carry(t.Context(), w.repo, repo.Update{Ref: "refs/heads/main", Old: base, New: head}, "")
	if cofferdam.KindOf(err) != cofferdam.Conflict {
		t.Errorf("carry over a moved ref: %v", err)
	}
	if !strings.Contains(w.refs(), string(theirs)+" refs/heads/main") {
		t.Errorf("somebody else's commit is lost:\n%s", w.refs())
	}
}

// TestUpstreamHooks: the upstream's own hooks are asked, for pushes and
// landings, and their word is shown.
func TestUpstreamHooks(t *testing.T) {
	w, base, head, dir := pushed(t)
	hook := filepath.Join(w.upstream, "hooks", "pre-receive")
	if err := os.MkdirAll(filepath.Dir(hook), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(hook, []byte("#!/bin/sh\necho no releases on a Sunday >&2\nexit 1\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	before := w.refs()
	err := w.gateway.Land(t.Context(), w.repo, "refs/heads/main", base, head)
	if cofferdam.KindOf(err) != cofferdam.Conflict || !strings.Contains(err.Error(), "no releases on a Sunday") {
		t.Errorf("Land: %v", err)
	}
	write(t, dir, "d.txt", "four\n")
	out, err := w.git(dir, "push", "origin", "HEAD:"+string(own))
	if err == nil || !strings.Contains(out, "no releases on a Sunday") {
		t.Errorf("push: %v\n%s", err, out)
	}
	if w.refs() != before || w.mirrorAt(own) != string(head) {
		t.Errorf("refs changed:\n%s", w.refs())
	}
	if got := w.pushes(); got != "allowed ok allowed failed" {
		t.Errorf("record: %q", got)
	}
	if err := os.Remove(hook); err != nil {
		t.Fatal(err)
	}
	w.must(dir, "push", "origin", "HEAD:"+string(own)) // the same push, later
}

// TestInterruptedPush: a server that died after the upstream had the push and
// before the mirror did goes on with the next one.
func TestInterruptedPush(t *testing.T) {
	for _, again := range []string{"the same commit", "a further commit"} {
		t.Run(again, func(t *testing.T) {
			w, _, first, dir := pushed(t)
			second := write(t, dir, "d.txt", "four\n")
			// As if carried and then cut off: upstream at second, mirror at first.
			must(t, dir, "push", "--quiet", w.upstream, "HEAD:"+string(own))
			if w.mirrorAt(own) != string(first) {
				t.Fatal("the mirror moved")
			}
			if again == "a further commit" {
				second = write(t, dir, "e.txt", "five\n")
			}
			w.must(dir, "push", "origin", "HEAD:"+string(own))
			if w.mirrorAt(own) != second || !strings.Contains(w.refs(), second+" "+string(own)) {
				t.Errorf("not caught up:\n%s", w.refs())
			}
		})
	}
}

// TestForeignBranch: a branch of our name that somebody else made upstream is
// not overwritten.
func TestForeignBranch(t *testing.T) {
	w := newWorld(t, "")
	dir := w.clone()
	work := filepath.Join(t.TempDir(), "other")
	must(t, "/", "clone", "--quiet", w.upstream, work)
	write(t, work, "x.txt", "theirs\n")
	must(t, work, "push", "--quiet", "origin", "HEAD:"+string(own))
	before := w.refs()
	write(t, dir, "c.txt", "mine\n")
	out, err := w.git(dir, "push", "origin", "HEAD:"+string(own))
	if err == nil || !strings.Contains(out, "is not what this push builds on") {
		t.Errorf("push: %v\n%s", err, out)
	}
	if w.refs() != before || w.mirrorAt(own) != "" {
		t.Errorf("refs changed:\n%s", w.refs())
	}
}

// TestSyncPrunes: branches that are gone upstream go, agents' branches stay.
func TestSyncPrunes(t *testing.T) {
	w, _, head, dir := pushed(t)
	must(t, dir, "push", "--quiet", w.upstream, "HEAD:refs/heads/side", "HEAD:refs/tags/v1")
	for _, step := range []struct {
		args []string
		want string
	}{{nil, string(head)}, {[]string{"push", "--quiet", w.upstream, ":refs/heads/side", ":refs/tags/v1", ":" + string(own)}, ""}} {
		if step.args != nil {
			must(t, dir, step.args...)
		}
		if err := w.gateway.Sync(t.Context(), w.repo); err != nil {
			t.Fatal(err)
		}
		if side, tag := w.mirrorAt("refs/heads/side"), w.mirrorAt("refs/tags/v1"); side != step.want || tag != step.want {
			t.Errorf("side %q, tag %q; want %q", side, tag, step.want)
		}
		if got := w.mirrorAt(own); got != string(head) {
			t.Errorf("the agent's branch is at %q, want %s", got, head)
		}
	}
}
