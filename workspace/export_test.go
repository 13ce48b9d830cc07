package workspace

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"cofferdam"
	"cofferdam/sandbox"
	"cofferdam/sandbox/sandboxtest"
)

// workspaceOf has text prepare a workspace in a box, and returns what the script
// of an export says of it.
func workspaceOf(t *testing.T, d sandbox.Driver, tips, text string) (bundle []byte) {
	t.Helper()
	b, err := d.Create(t.Context(), sandbox.Spec{
		ID: cofferdam.BoxID(cofferdam.NewID("b")), Tier: sandbox.None, Image: "host", Files: []sandbox.File{{Path: tipsFile, Data: []byte(tips)}},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Destroy(t.Context())
	var out bytes.Buffer
	identity := []string{"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@b", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@b"}
	r, err := sandbox.Run(t.Context(), b, sandbox.Command{ID: "prepare", Shell: "set -eu\n" + text, Env: identity}, &out, &out)
	if err != nil || r.Exit != 0 {
		t.Fatalf("prepare: %+v %v\n%s", r, err, out.String())
	}
	f, err := os.Create(filepath.Join(t.TempDir(), "said"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := speak(t.Context(), b, Record{Number: 7, Attempt: 1}, f); err != nil {
		t.Fatalf("%v (%s)", err, cofferdam.HintOf(err))
	}
	if bundle, err = os.ReadFile(f.Name()); err != nil {
		t.Fatal(err)
	}
	out.Reset()
	r, err = sandbox.Run(t.Context(), b, sandbox.Command{ID: "left", Shell: "ls -d /work/.export-* /work/ran 2>/dev/null"}, &out, nil)
	if err != nil || out.Len() > 0 {
		t.Errorf("left in the workspace, or made there by the agent's git: %s %v", out.String(), err)
	}
	return bundle
}

// TestExportGoesWhereRoomIs: what an export writes does not fill a workspace whose
// file system is the host's: it goes where more is left.
func TestExportGoesWhereRoomIs(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: the fake driver makes namespaces")
	}
	d, err := sandboxtest.NewFake(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	b, err := d.Create(t.Context(), sandbox.Spec{ID: cofferdam.BoxID(cofferdam.NewID("b")), Tier: sandbox.None, Image: "host", Files: []sandbox.File{{Path: tipsFile}}})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Destroy(t.Context())
	const see = `mkdir -p /tmp/bin; printf '#!/bin/sh\necho "$2" >>/tmp/where; exec /usr/bin/mktemp "$@"' >/tmp/bin/mktemp; chmod +x /tmp/bin/mktemp; export PATH=/tmp/bin:$PATH
`
	kept := func(size, used int64, flags ...string) sandbox.Status {
		return sandbox.Status{Flags: flags, Workspace: &sandbox.Workspace{Size: size, Used: used}}
	}
	for i, c := range []struct {
		status sandbox.Status
		want   string
	}{
		{kept(64<<20, 64<<20, sandbox.WorkspaceWatched), "/tmp/"},
		{kept(64<<20, 80<<20, sandbox.WorkspaceWatched), "/tmp/"},
		{kept(1<<60, 1<<20, sandbox.WorkspaceWatched), "/work/"},
		{kept(64<<20, 64<<20), ""}, // an image: df knows
		{sandbox.Status{}, ""},
	} {
		env := left(c.status)
		if (len(env) > 0) != (c.want != "") {
			t.Fatalf("%+v: %q", c.status, env)
		}
		var out bytes.Buffer
		id := cofferdam.ExecID(fmt.Sprint("export", i))
		r, err := sandbox.Run(t.Context(), b, sandbox.Command{ID: id, Shell: see + "echo new >/work/new\n(" + exportScript + ") >/dev/null; cat /tmp/where; rm /tmp/where", Env: append(env, "TIPS="+tipsFile, "NOTE=x")}, &out, os.Stderr)
		if got := out.String(); err != nil || r.Exit != 0 || !strings.HasPrefix(got, c.want) || !strings.Contains(got, "/.export-") {
			t.Errorf("%+v: %q, %+v, %v", c.status, got, r, err)
		}
	}
}

func git(t *testing.T, args ...string) string {
	t.Helper()
	c := exec.Command("git", append([]string{"-c", "user.name=t", "-c", "user.email=t@example.org"}, args...)...)
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("git %v: %v: %s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

// TestExportScript: whatever the agent did to its git, what is in the workspace
// and not in the repository is in the bundle, nothing else is, and nothing of its
// configuration runs.
func TestExportScript(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: the fake driver makes namespaces")
	}
	d, err := sandboxtest.NewFake(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	// The repository, and what a checkout of it is in the box.
	base := filepath.Join(t.TempDir(), "base")
	git(t, "init", "-q", "-b", "main", base)
	if err := os.WriteFile(filepath.Join(base, "file"), []byte("base\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	git(t, "-C", base, "add", "-A")
	git(t, "-C", base, "commit", "-q", "-m", "base")
	tips := git(t, "-C", base, "rev-parse", "HEAD") + "\n"
	clone := fmt.Sprintf("git -c safe.directory=* clone -q %s .\n", base)
	for _, c := range []struct {
		name, prepare string
		want          map[string]string // ref:path to what it holds; "" for a path that is not there
	}{
		{"nothing", clone, nil},
		{"nothing but ignored", clone + "echo built >built; echo built >>.git/info/exclude", nil},
		{"never a checkout", "echo lonely >f", map[string]string{"uncommitted:f": "lonely"}},
		{"empty", "true", nil},
		{"uncommitted", clone + "echo new >new; echo changed >file; git rm -q --cached file", map[string]string{"uncommitted:new": "new", "uncommitted:file": "changed"}},
		{
			"branches and a stash", clone + "git checkout -q -b a/b; echo 1 >one; git add one; git commit -q -m 1; echo 2 >two; git add two; git stash -q; git pack-refs --all; git tag v1",
			map[string]string{"a/b:one": "1", "stash:two": "2"},
		},
		{"on no branch", clone + "git checkout -q --detach; echo 1 >one; git add one; git commit -q -m 1", map[string]string{"workspace-head:one": "1"}},
		{
			"hooks, filters and monitors", clone + `for h in pre-commit post-index-change reference-transaction; do printf '#!/bin/sh\ntouch /work/ran\n' >.git/hooks/$h; chmod +x .git/hooks/$h; done
git config filter.x.clean 'touch /work/ran; cat'; git config core.fsmonitor 'touch /work/ran'; echo '* filter=x' >.gitattributes; echo new >new; rm -f ran`,
			map[string]string{"uncommitted:new": "new", "uncommitted:ran": ""},
		},
		{"a config that git cannot read", clone + "echo new >new; echo '[broken' >.git/config", map[string]string{"uncommitted:new": "new"}},
		{"git is a link", clone + "echo new >new; d=$HOME/d; mkdir $d; mv .git $d/git; ln -s $d/git .git", map[string]string{"uncommitted:new": "new", "uncommitted:file": "base"}},
		{"git is elsewhere", clone + "echo new >new; d=$HOME/d; mkdir $d; mv .git $d/git; echo \"gitdir: $d/git\" >.git", map[string]string{"uncommitted:new": "new"}},
		{"alternates", clone + "echo new >new; d=$HOME/d; mkdir $d; printf \"$d\\n/etc\\n\" >.git/objects/info/alternates", map[string]string{"uncommitted:new": "new"}},
		{"pipes in the way", clone + "echo new >new; mkfifo pipe .git/refs/heads/pipe; rm -f .git/packed-refs; mkfifo .git/packed-refs", map[string]string{"uncommitted:new": "new"}},
		{
			"refs that are none", clone + "echo new >new; mkdir -p .git/refs/heads; echo ../../../etc/passwd >.git/refs/heads/x; printf -- '--upload-pack=x' >'.git/refs/heads/-x'; echo 'a b c d' >'.git/refs/heads/a b'",
			map[string]string{"uncommitted:new": "new"},
		},
		{"a submodule", clone + "echo new >new; git init -q sub; (cd sub; echo in >in; git add in; git commit -q -m in)", map[string]string{"uncommitted:new": "new", "uncommitted:sub/in": ""}},
		{
			"a submodule that would run something", clone + `echo new >new; git init -q sub; cd sub; echo in >in; echo '* filter=x' >.gitattributes; git add -A; git commit -q -m in
cd ..; git -c advice.addEmbeddedRepo=false add sub; git commit -q -m sub; cd sub; git config filter.x.clean 'touch /work/ran; cat'; git config core.fsmonitor 'touch /work/ran'; sleep 1.1; touch in; cd ..; rm -f ran`,
			map[string]string{"uncommitted:new": "new", "uncommitted:sub/in": "", "uncommitted:ran": ""},
		},
		{"a link out", clone + "ln -s /etc/passwd out; ln -s /root dir", map[string]string{"uncommitted:out": "/etc/passwd"}},
		{"larger than 100 MiB", clone + "echo new >new; truncate -s 200M 'hu[ge*'", map[string]string{"uncommitted:new": "new", "uncommitted:hu[ge*": ""}},
		{
			"a history that is not whole", clone + "echo 1 >one; git add one; git commit -q -m 1; echo 2 >two; git add two; git commit -q -m 2; echo new >new; rm -f .git/objects/$(git rev-parse HEAD~1 | sed 's/^\\(..\\)/\\1\\//')",
			map[string]string{"uncommitted:new": "new", "uncommitted:two": "2"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			bundle := workspaceOf(t, d, tips, c.prepare)
			if len(c.want) == 0 {
				if len(bundle) > 0 {
					t.Errorf("it says %d bytes where nothing is: %.200q", len(bundle), bundle)
				}
				return
			}
			dir := t.TempDir()
			file := filepath.Join(dir, "b.bundle")
			if err := os.WriteFile(file, bundle, 0o600); err != nil {
				t.Fatal(err)
			}
			mine := filepath.Join(dir, "mine")
			git(t, "clone", "-q", base, mine)
			git(t, "-C", mine, "fetch", "-q", file, "refs/heads/*:refs/heads/got/*")
			for what, want := range c.want {
				out, err := exec.Command("git", "-C", mine, "cat-file", "-p", "got/"+what).Output()
				if got := strings.TrimSpace(string(out)); want == "" && err == nil || want != "" && got != want {
					t.Errorf("%s: %q, want %q", what, got, want)
				}
			}
		})
	}
}
