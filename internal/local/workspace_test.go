package local

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"cofferdam"
)

// shell runs steps in dir, or fails the test.
func shell(t *testing.T, dir, steps string) string {
	t.Helper()
	cmd := exec.Command("sh", "-ec", steps)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_AUTHOR_NAME=P", "GIT_AUTHOR_EMAIL=p@example.test", "GIT_COMMITTER_NAME=P", "GIT_COMMITTER_EMAIL=p@example.test")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", steps, err, out)
	}
	return string(out)
}

// real is a folder of the test without links in its name.
func real(t *testing.T) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestWorkspaceIsAProject: what decides about the user's next login, about this
// machine or about the record is no workspace, by whatever name.
func TestWorkspaceIsAProject(t *testing.T) {
	home := real(t)
	shell(t, home, "mkdir -p shop/sub .ssh .config/x .cache/x .local/share/x .local/bin .local/state/cofferdam/copies/a/shop .local/state/cofferdam/keys; ln -s .ssh link; touch file; ln -s shop good")
	s := testState(filepath.Join(home, ".local/state/cofferdam"))
	for dir, refused := range map[string]bool{
		"": true, "..": true, ".ssh": true, ".config": true, ".config/x": true, "link": true, ".local": true, ".local/bin": true, "file": true, "absent": true,
		".local/state": true, ".local/state/cofferdam": true, ".local/state/cofferdam/keys": true,
		"shop": false, "shop/sub": false, "good": false, ".cache/x": false, ".local/share/x": false, ".local/state/cofferdam/copies/a/shop": false,
	} {
		w, err := findWorkspace(filepath.Join(home, dir), home, s)
		if (err != nil) != refused {
			t.Errorf("%q: %+v, %v", dir, w, err)
		}
		if err != nil && (cofferdam.KindOf(err) != cofferdam.Invalid || cofferdam.HintOf(err) == "") {
			t.Errorf("%q: error %#v", dir, err)
		}
		if err == nil && (strings.Contains(w.dir, "good") || w.inner != w.dir) {
			t.Errorf("%q: %+v", dir, w)
		}
	}
	for _, dir := range []string{"/", "/etc", "/usr/lib", "/dev/shm", "/proc/self", "/var", "/var/lib", "/home", "/tmp", "/var/tmp"} {
		if w, err := findWorkspace(dir, home, s); err == nil {
			t.Errorf("%s: %+v", dir, w)
		}
	}
}

// TestWorkspaceRefusalNamesItsReason: of several reasons the one is told that a
// person knows.
func TestWorkspaceRefusalNamesItsReason(t *testing.T) {
	home := real(t)
	shell(t, home, "mkdir -p .local/state/cofferdam")
	s := testState(filepath.Join(home, ".local/state/cofferdam"))
	for dir, reason := range map[string]string{home: "it holds the whole home folder", "/": "it holds a part of this machine's system", "/etc": "it is part of this machine's system"} {
		if _, err := findWorkspace(dir, home, s); err == nil || !strings.Contains(err.Error(), reason) {
			t.Errorf("%s: %v, want %q", dir, err, reason)
		}
	}
	elsewhere := testState(filepath.Join(real(t), "records", "cofferdam"))
	if err := checkWorkspace(filepath.Dir(elsewhere.dir), home, elsewhere); err == nil || !strings.Contains(err.Error(), "the record of all runs") {
		t.Errorf("the folder of the record: %v", err)
	}
}

// TestHomesOfOthers: root's work in a person's home folder has no more of it
// than that person's would, whatever HOME says.
func TestHomesOfOthers(t *testing.T) {
	list := homes()
	if len(list) < 2 {
		t.Skip("not run here: no user of this machine has a home folder")
	}
	for _, home := range list {
		if w, err := findWorkspace(home, real(t), testState(real(t))); err == nil {
			t.Errorf("%s: %+v", home, w)
		}
		if err := checkWorkspace(filepath.Join(home, ".ssh"), "", state{}); err == nil {
			t.Errorf("the keys in %s are a workspace", home)
		}
		if err := checkWorkspace(filepath.Join(home, "project"), "", state{}); home != "/home" && err != nil {
			t.Errorf("a project in %s: %v", home, err)
		}
	}
}

// TestLinkedWorktree: a folder that git shares becomes writable only if the
// repository itself says that this is its worktree.
func TestLinkedWorktree(t *testing.T) {
	dir := real(t)
	shell(t, dir, "git init -q main && cd main && git commit -q --allow-empty -m a && git worktree add -q ../linked && mkdir -p sub")
	common := filepath.Join(dir, "main", ".git")
	if got := gitFolder(filepath.Join(dir, "linked")); got != common {
		t.Errorf("the linked worktree's folder is %q", got)
	}
	if got := gitFolder(filepath.Join(dir, "main")); got != "" {
		t.Errorf("an ordinary checkout has %q", got)
	}
	// The same worktree under another name does not count: .git has to be this one.
	shell(t, dir, "mkdir thief && cp linked/.git thief/.git")
	// A folder that only looks like one, a pipe, and a loop of links.
	shell(t, dir, `mkdir -p victim/worktrees/x victim/objects victim/refs bad pipe loop weak
		echo 'ref: refs/heads/main' > victim/HEAD
		echo "gitdir: $PWD/victim/worktrees/x" > bad/.git
		echo "$PWD/linked/.git" > victim/worktrees/x/gitdir
		mkdir -p victim/worktrees/p && mkfifo victim/worktrees/p/gitdir && echo "gitdir: $PWD/victim/worktrees/p" > pipe/.git
		ln -s .git loop/.git
		mkdir -p plain/worktrees/y && echo "gitdir: $PWD/plain/worktrees/y" > weak/.git && echo "$PWD/weak/.git" > plain/worktrees/y/gitdir`)
	for _, name := range []string{"thief", "bad", "pipe", "loop", "weak", "absent"} {
		if got := gitFolder(filepath.Join(dir, name)); got != "" {
			t.Errorf("%s makes %q writable", name, got)
		}
	}
	// commondir is not believed, whatever it says.
	shell(t, dir, "echo ../../../../victim > main/.git/worktrees/linked/commondir")
	if got := gitFolder(filepath.Join(dir, "linked")); got != common {
		t.Errorf("commondir led to %q", got)
	}
}

// TestCopyLeavesTheOriginal: a copy has the same files, links, modes and times.
func TestCopyLeavesTheOriginal(t *testing.T) {
	dir, s := real(t), testState(real(t))
	shell(t, dir, "mkdir -p shop/empty && cd shop && git init -q && printf 'a b' > 'a b' && ln -s 'a b' l && ln 'a b' hard && chmod 755 'a b' && truncate -s 100M sparse && printf 'sparse\n' > .gitignore && git add -A && git commit -q -m a")
	w := workspace{dir: filepath.Join(dir, "shop"), from: filepath.Join(dir, "shop")}
	if err := w.copy(t.Context(), s, "s-1"); err != nil {
		t.Fatal(err)
	}
	if w.from != s.path("copies", "s-1", "shop") || w.dir != filepath.Join(dir, "shop") {
		t.Errorf("%+v", w)
	}
	if out := shell(t, w.from, `git status --porcelain; test "$(readlink l)" = 'a b'; test 'a b' -ef hard; test -x 'a b'; test -d empty; test $(du -k sparse | cut -f1) -lt 1024; echo ok`); out != "ok\n" {
		t.Errorf("the copy: %q", out)
	}
	shell(t, w.from, "echo changed > 'a b'")
	if out := shell(t, w.dir, "cat 'a b'"); out != "a b" {
		t.Errorf("the original holds %q", out)
	}
	missing := workspace{dir: filepath.Join(dir, "absent")}
	if err := missing.copy(t.Context(), s, "s-2"); err == nil || len(list(s.path("copies"))) != 1 {
		t.Errorf("a copy of nothing: %v", err)
	}
}
