package git

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"cofferdam"
)

// scoped makes a world whose session has a scope.
func scoped(t *testing.T, mark bool, paths ...string) *world {
	t.Helper()
	w := newWorld(t, "")
	w.caller.Base, w.caller.Contract = "refs/heads/main", &cofferdam.Contract{Paths: paths, Mark: mark}
	return w
}

// commit writes a file, also in a folder, and commits it.
func commit(t *testing.T, dir, name, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, dir, name, text)
}

// TestPushBeyondTheScope: what the task's scope does not have reaches neither
// mirror nor upstream, whether the last commit has it or one before, and in
// whatever way a commit brings it; what it has does.
func TestPushBeyondTheScope(t *testing.T) {
	for name, c := range map[string]struct {
		make  func(t *testing.T, w *world, dir string)
		takes bool
	}{
		"within": {func(t *testing.T, _ *world, dir string) {
			commit(t, dir, "src/new.txt", "x\n")
			commit(t, dir, "README", "x\n")
		}, true},
		"another file":          {func(t *testing.T, _ *world, dir string) { commit(t, dir, "other.txt", "x\n") }, false},
		"a name that begins so": {func(t *testing.T, _ *world, dir string) { commit(t, dir, "README.md", "x\n") }, false},
		"another spelling":      {func(t *testing.T, _ *world, dir string) { commit(t, dir, "SRC/new.txt", "x\n") }, false},
		"a name with a line in it": {func(t *testing.T, _ *world, dir string) {
			commit(t, dir, "src\nother.txt", "x\n")
		}, false},
		"a folder that begins with a line break": {func(t *testing.T, _ *world, dir string) { commit(t, dir, "\nsrc/x", "x\n") }, false},
		"a name that ends with one":              {func(t *testing.T, _ *world, dir string) { commit(t, dir, "README\n", "x\n") }, false},
		"taken back": {func(t *testing.T, _ *world, dir string) {
			commit(t, dir, "ci.yml", "x\n")
			must(t, dir, "rm", "-q", "ci.yml")
			must(t, dir, "commit", "-qm", "without")
			commit(t, dir, "src/new.txt", "x\n")
		}, false},
		"a move out": {func(t *testing.T, _ *world, dir string) {
			commit(t, dir, "src/new.txt", "x\n")
			must(t, dir, "mv", "src/new.txt", "out.txt")
			must(t, dir, "commit", "-qm", "moved")
		}, false},
		"a mode": {func(t *testing.T, _ *world, dir string) {
			must(t, dir, "update-index", "--chmod=+x", "a.txt")
			must(t, dir, "commit", "-qm", "mode")
		}, false},
		"what main got meanwhile": {func(t *testing.T, w *world, dir string) {
			w.upstreamCommit("theirs.txt")
			w.must(dir, "fetch", "-q", "origin")
			commit(t, dir, "src/new.txt", "x\n")
			must(t, dir, "merge", "-q", "--no-edit", "origin/main")
		}, true},
		"a merge that undoes what main got": {func(t *testing.T, w *world, dir string) {
			w.upstreamCommit("theirs.txt")
			w.must(dir, "fetch", "-q", "origin")
			commit(t, dir, "src/new.txt", "x\n")
			must(t, dir, "merge", "-q", "--no-edit", "-s", "ours", "origin/main")
		}, false},
		"no common history": {func(t *testing.T, _ *world, dir string) {
			must(t, dir, "checkout", "-q", "--orphan", "alone")
			must(t, dir, "commit", "-qm", "all anew")
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := scoped(t, false, "src/", "README")
			dir := w.clone()
			must(t, dir, "config", "user.name", "a")
			must(t, dir, "config", "user.email", "a@b.test")
			c.make(t, w, dir)
			head := must(t, dir, "rev-parse", "HEAD")
			out, err := w.git(dir, "push", "origin", "HEAD:"+string(own))
			there := strings.Contains(w.refs(), string(own))
			if c.takes {
				if err != nil || !there || w.mirrorAt(own) != head {
					t.Fatalf("what is in the scope was not taken: %v\n%s", err, out)
				}
				return
			}
			if err == nil || there || w.mirrorAt(own) != "" {
				t.Fatalf("it was taken: %v\n%s", err, out)
			}
			if !strings.Contains(out, RuleScope) || !strings.Contains(out, "scope") {
				t.Errorf("git is not told why:\n%s", out)
			}
			e := w.record.Events()
			if last := e[len(e)-1]; last.Verdict != cofferdam.Refused || last.Rule != RuleScope || last.Fields[fieldBeyond] == "" {
				t.Errorf("on record: %+v", last)
			}
		})
	}
}

// TestScopeOfWhatABranchHas: what a branch of an attempt has already, whoever pushed
// it and under whatever scope, is no part of the repository's own history: a push
// on top of it, or of the same commits made anew, is judged by all of it.
func TestScopeOfWhatABranchHas(t *testing.T) {
	w := scoped(t, false, "src/")
	dir, scope := w.clone(), w.caller.Contract
	must(t, dir, "config", "user.name", "a")
	must(t, dir, "config", "user.email", "a@b.test")
	w.caller.Contract = nil
	commit(t, dir, "ci.yml", "x\n")
	w.must(dir, "push", "origin", "HEAD:"+string(own))
	before := w.mirrorAt(own)
	w.caller.Contract = scope
	must(t, dir, "rm", "-q", "ci.yml")
	must(t, dir, "commit", "-qm", "without")
	commit(t, dir, "src/new.txt", "x\n")
	if out, err := w.git(dir, "push", "origin", "HEAD:"+string(own)); err == nil || w.mirrorAt(own) != before || !strings.Contains(out, "ci.yml") {
		t.Errorf("a commit beyond the scope was taken: %v\n%s", err, out)
	}
	w.caller.Contract = &cofferdam.Contract{Paths: []string{"src/", "ci.yml"}}
	if out, err := w.git(dir, "push", "origin", "HEAD:"+string(own)); err != nil || w.mirrorAt(own) == before {
		t.Errorf("what is in the scope was not taken: %v\n%s", err, out)
	}
}

// TestPushWithoutAScope is the control: the same push of a task that has none is
// taken, whole.
func TestPushWithoutAScope(t *testing.T) {
	w := newWorld(t, "")
	dir := w.clone()
	commit(t, dir, "other.txt", "x\n")
	w.must(dir, "push", "origin", "HEAD:"+string(own))
	if !strings.Contains(w.refs(), string(own)) {
		t.Error("it was not taken")
	}
}

// TestPushBeyondTheScopeIsMarked: where that is what was asked for, it passes, and
// the record says what goes beyond.
func TestPushBeyondTheScopeIsMarked(t *testing.T) {
	w := scoped(t, true, "src/")
	dir := w.clone()
	commit(t, dir, "src/new.txt", "x\n")
	commit(t, dir, "other.txt", "x\n")
	w.must(dir, "push", "origin", "HEAD:"+string(own))
	if !strings.Contains(w.refs(), string(own)) {
		t.Fatal("it was not taken")
	}
	for _, e := range w.record.Events() {
		if e.Kind == cofferdam.EventPush && e.Verdict == cofferdam.Allowed {
			if e.Fields[fieldBeyond] != "other.txt" {
				t.Errorf("marked as %q", e.Fields[fieldBeyond])
			}
			return
		}
	}
	t.Error("no push is on record")
}
