package session

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestCheckout runs the script that makes a workspace in folders as sessions find
// them: empty, half made, kept, kept by another attempt, and spoiled.
func TestCheckout(t *testing.T) {
	base := filepath.Join(t.TempDir(), "base")
	run := func(dir, text string, env ...string) string {
		t.Helper()
		c := exec.Command("sh", "-c", text)
		c.Dir = dir
		c.Env = append([]string{
			"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@b", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@b",
			"URL=" + base, "BASE_REF=refs/heads/main", "BASE_NAME=main", "AUTHOR=agent", "GIT_TERMINAL_PROMPT=0",
		}, env...)
		out, err := c.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", text, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	if err := os.Mkdir(base, 0o755); err != nil {
		t.Fatal(err)
	}
	run(base, "git init -q -b main && echo base >file && git add -A && git commit -q -m base")
	commit := run(base, "git rev-parse HEAD")
	at := func(branch, kept string) []string {
		return []string{"COMMIT=" + commit, "START=" + commit, "BRANCH_NAME=" + branch, "KEPT=" + kept}
	}
	for _, c := range []struct{ name, before, kept, branch, want string }{
		{"empty", "mkdir lost+found", "", "one", "test \"$(cat file)\" = base && test \"$(git branch --show-current)\" = one && test -d lost+found && test -z \"$(git status --porcelain)\""},
		{"half made", "git init -q && echo x >half && mkdir -p .hidden/deep && echo x >..odd", "", "one", "test -f file && test ! -e half && test ! -e .hidden && test ! -e ..odd"},
		{"kept", "CHECKOUT && echo more >>file && echo new >new && git checkout -q -b side", "1", "one", "test \"$(git branch --show-current)\" = side && grep -q more file && test -f new"},
		{"kept by the attempt before", "CHECKOUT && echo more >>file && git commit -q -am more && echo new >new", "1", "two", "test \"$(git branch --show-current)\" = two && grep -q more file && test -f new"},
		{"locked by who was killed", "CHECKOUT && touch .git/index.lock && echo new >new", "1", "one", "test -f new && test ! -e left-1"},
		{"without git", "CHECKOUT && echo new >new && rm -rf .git", "1", "one", "test -f left-1/new && test -f file && test -z \"$(git status --porcelain)\""},
		{"spoiled twice", "CHECKOUT && mkdir left-1 && echo old >left-1/old && echo new >new && : >.git/HEAD", "1", "one", "test -f left-1/old && test -f left-2/new && test -d left-2/.git && test -f file"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			for step := range strings.SplitSeq(c.before, " && ") {
				if step == "CHECKOUT" {
					run(dir, checkoutScript, at("one", "")...)
				} else {
					run(dir, step)
				}
			}
			run(dir, checkoutScript, at(c.branch, c.kept)...)
			run(dir, c.want)
		})
	}
}
