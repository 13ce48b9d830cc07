package repo

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"cofferdam"
)

// fill puts the commits of a work folder into the test's mirror, as a fetch would.
func fill(t testing.TB, r *Repos, work string) {
	t.Helper()
	bare := filepath.Join(t.TempDir(), "bare.git")
	git(t, "/", "clone", "--quiet", "--bare", work, bare)
	if err := r.Fetch(t.Context(), testID, serveLocal(t, r, bare)); err != nil {
		t.Fatal(err)
	}
}

// serveLocal is a carrier to a local upstream, without any rule.
func serveLocal(t testing.TB, r *Repos, path string) http.Handler {
	t.Helper()
	p, err := r.Upstream(path)
	if err != nil {
		t.Fatal(err)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		s := Service(q.URL.Query().Get("service"))
		if s != "" {
			w.Header().Set("Content-Type", "application/x-"+string(s)+"-advertisement")
			if q.Header.Get("Git-Protocol") != "version=2" {
				w.Write([]byte("001e# service=git-upload-pack\n0000"))
			}
			r.Advertise(q.Context(), p, s, q.Header.Get("Git-Protocol"), w)
			return
		}
		w.Header().Set("Content-Type", "application/x-git-upload-pack-result")
		r.Answer(q.Context(), p, UploadPack, q.Header.Get("Git-Protocol"), q.Body, w)
	})
}

func workFolder(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	git(t, dir, "init", "--quiet", "-b", "main")
	commit(t, dir, "a.txt", "one\n")
	return dir
}

func commit(t testing.TB, dir, name, text string) cofferdam.Commit {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	git(t, dir, "add", "-A")
	git(t, dir, "commit", "--quiet", "-m", "write "+name)
	return cofferdam.Commit(git(t, dir, "rev-parse", "HEAD"))
}

func TestRead(t *testing.T) {
	r := openMirror(t)
	work := workFolder(t)
	base := cofferdam.Commit(git(t, work, "rev-parse", "HEAD"))
	commit(t, work, "b/c d.txt", "x\ny\n")
	commit(t, work, ".gitattributes", "*.txt -diff\n*.go diff=evil\n")
	head := commit(t, work, "a.txt", "two\n")
	fill(t, r, work)
	ctx := t.Context()

	if got, err := r.Resolve(ctx, testID, "refs/heads/main"); err != nil || got != head {
		t.Errorf("Resolve: %s, %v; want %s", got, err, head)
	}
	for _, bad := range []cofferdam.Ref{"main", "refs/heads/nope", "refs/heads/a..b", "--help", "refs/heads/", "HEAD"} {
		if _, err := r.Resolve(ctx, testID, bad); err == nil {
			t.Errorf("Resolve took %q", bad)
		}
	}
	if got, err := r.Commit(ctx, testID, base); err != nil || got != base {
		t.Errorf("Commit: %s, %v", got, err)
	}
	if _, err := r.Commit(ctx, testID, cofferdam.Commit(strings.Repeat("1", 40))); cofferdam.KindOf(err) != cofferdam.NotFound {
		t.Errorf("Commit of nothing: %v", err)
	}
	for _, c := range []struct {
		old, new cofferdam.Commit
		want     bool
	}{{base, head, true}, {head, base, false}, {head, head, true}} {
		if got, err := r.IsAncestor(ctx, testID, c.old, c.new); err != nil || got != c.want {
			t.Errorf("IsAncestor(%s, %s) = %v, %v", c.old, c.new, got, err)
		}
	}
	log, err := r.Log(ctx, testID, base, head)
	if err != nil || len(log) != 3 || !strings.HasSuffix(log[0], "write b/c d.txt") {
		t.Errorf("Log: %q, %v", log, err)
	}
	d, err := r.Diff(ctx, testID, base, head)
	if err != nil {
		t.Fatal(err)
	}
	want := []cofferdam.FileChange{
		{Path: ".gitattributes", Status: "A", Added: 2}, {Path: "a.txt", Status: "M", Added: 1, Removed: 1}, {Path: "b/c d.txt", Status: "A", Added: 2},
	}
	if diff := cmp.Diff(want, d.Files); diff != "" {
		t.Error(diff)
	}
	if !strings.Contains(d.Text, "-one\n+two\n") || d.Truncated {
		t.Errorf("diff does not show the change: %v\n%s", d.Truncated, d.Text)
	}
	if got, err := r.ReadFile(ctx, testID, head, "b/c d.txt", 0); err != nil || string(got) != "x\ny\n" {
		t.Errorf("ReadFile: %q, %v", got, err)
	}
	for _, bad := range []string{"nope", "b", "../a.txt", "/etc/passwd", "*", ""} {
		if got, err := r.ReadFile(ctx, testID, head, bad, 0); err == nil {
			t.Errorf("ReadFile(%q) = %q", bad, got)
		}
	}
	if _, err := r.ReadFile(ctx, testID, head, "a.txt", 2); cofferdam.KindOf(err) != cofferdam.Invalid {
		t.Errorf("ReadFile over its limit: %v", err)
	}
}

// TestDiffBounded: a large change ends at the limit and says so.
func TestDiffBounded(t *testing.T) {
	r := openMirror(t)
	work := workFolder(t)
	base := cofferdam.Commit(git(t, work, "rev-parse", "HEAD"))
	head := commit(t, work, "big", strings.Repeat("line of text\n", 3*MaxDiff/13))
	fill(t, r, work)
	d, err := r.Diff(t.Context(), testID, base, head)
	if err != nil || !d.Truncated || len(d.Text) != MaxDiff {
		t.Errorf("Diff: %d bytes, truncated %v, %v", len(d.Text), d.Truncated, err)
	}
}

// TestDiffOfHugeFile holds that a file larger than git can show as text leaves
// the rest of the change to be seen.
func TestDiffOfHugeFile(t *testing.T) {
	r := openMirror(t)
	work := workFolder(t)
	base := cofferdam.Commit(git(t, work, "rev-parse", "HEAD"))
	huge, err := os.Create(filepath.Join(work, "huge"))
	if err == nil {
		err = errors.Join(huge.Truncate(1<<30), huge.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	head := commit(t, work, "small", "to be seen\n") // takes all there is
	fill(t, r, work)
	d, err := r.Diff(t.Context(), testID, base, head)
	if err != nil || !d.Truncated || !strings.Contains(d.Text, "+to be seen") || !strings.Contains(d.Text, "b/huge differ") {
		t.Errorf("Diff: %q, truncated %v, %v", d.Text, d.Truncated, err)
	}
}

// TestHostileConfig is CMP-06: what a repository says about programs to run is
// never run on the host, and the diff is still the true one.
func TestHostileConfig(t *testing.T) {
	r := openMirror(t)
	work := workFolder(t)
	base := cofferdam.Commit(git(t, work, "rev-parse", "HEAD"))
	commit(t, work, ".gitattributes", "* filter=x diff=x\n")
	head := commit(t, work, "a.txt", "two\n")
	fill(t, r, work)
	mirror := r.path(testID)
	for _, v := range []struct{ name, text string }{
		{"fsmonitor", "[core]\n\tfsmonitor = SCRIPT"},
		{"sshCommand", "[core]\n\tsshCommand = SCRIPT"},
		{"pager", "[core]\n\tpager = SCRIPT\n[pager]\n\tdiff = SCRIPT\n\tlog = SCRIPT"},
		{"hooksPath", "[core]\n\thooksPath = /repo/evil"},
		{"external", "[diff]\n\texternal = SCRIPT"},
		{"filter", "[filter \"x\"]\n\tclean = SCRIPT\n\tsmudge = SCRIPT"},
		{"textconv", "[diff \"x\"]\n\ttextconv = SCRIPT\n\tcommand = SCRIPT"},
	} {
		t.Run(v.name, func(t *testing.T) {
			pwn := filepath.Join(mirror, "pwn")
			evil := filepath.Join(mirror, "evil")
			os.MkdirAll(evil, 0o777)
			script := []byte("#!/bin/sh\necho >/repo/pwn; echo >" + pwn + "; cat\n")
			for _, name := range []string{"run", "pre-receive", "update", "reference-transaction", "post-checkout"} {
				if err := os.WriteFile(filepath.Join(evil, name), script, 0o755); err != nil {
					t.Fatal(err)
				}
			}
			config := strings.ReplaceAll("[core]\n\tbare = true\n"+v.text+"\n", "SCRIPT", "/bin/sh /repo/evil/run")
			if err := os.WriteFile(filepath.Join(mirror, "config"), []byte(config), 0o644); err != nil {
				t.Fatal(err)
			}
			d, err := r.Diff(t.Context(), testID, base, head)
			if err != nil || !strings.Contains(d.Text, "-one\n+two\n") {
				t.Errorf("diff is not the true one: %v\n%s", err, d.Text)
			}
			if _, err := r.Log(t.Context(), testID, base, head); err != nil {
				t.Error(err)
			}
			fill(t, r, work)
			if _, err := os.Stat(pwn); err == nil {
				t.Error("the script ran")
			}
		})
	}
}

func TestCheck(t *testing.T) {
	r := open(t)
	work := workFolder(t)
	git(t, work, "branch", "side")
	bare := filepath.Join(t.TempDir(), "up.git")
	git(t, "/", "clone", "--quiet", "--bare", work, bare)
	empty := filepath.Join(t.TempDir(), "empty.git")
	git(t, "/", "init", "--quiet", "--bare", empty)
	sha256 := filepath.Join(t.TempDir(), "sha256.git")
	git(t, "/", "init", "--quiet", "--bare", "--object-format=sha256", sha256)
	tree := filepath.Join(t.TempDir(), "tree")
	git(t, bare, "worktree", "add", "--quiet", tree, "side")
	borrowed := filepath.Join(t.TempDir(), "borrowed.git")
	git(t, "/", "clone", "--quiet", "--bare", "--shared", work, borrowed)
	private := filepath.Join(t.TempDir(), "private")
	if err := os.Mkdir(private, 0o700); err != nil {
		t.Fatal(err)
	}
	closed := filepath.Join(private, "up.git")
	git(t, "/", "clone", "--quiet", "--bare", work, closed)
	git(t, "/", "-c", "core.bare=true", "--git-dir="+closed, "config", "core.sharedRepository", "0600")
	if err := os.Lchown(closed, 1234, 1234); err != nil {
		t.Fatal(err)
	}

	hooked := filepath.Join(t.TempDir(), "hooked.git")
	git(t, "/", "clone", "--quiet", "--bare", work, hooked)
	git(t, hooked, "config", "core.hooksPath", "/srv/hooks")

	for _, c := range []struct {
		name, path string
		base       cofferdam.Ref
		wantBase   cofferdam.Ref
		want       string // part of reason or hint
	}{
		{"bare", bare, "refs/heads/main", "refs/heads/main", ""},
		{"base of HEAD", bare, "", "refs/heads/main", ""},
		{"owner of its own in a closed folder", closed, "", "refs/heads/main", ""},
		{"checked out", work, "refs/heads/main", "", "git clone --bare " + work + " " + work + ".git"},
		{"another branch checked out", work, "refs/heads/side", "refs/heads/side", ""},
		{"checked out in a worktree", bare, "refs/heads/side", "", "is checked out"},
		{"a worktree", tree, "refs/heads/side", "", "worktree of another"},
		{"no such branch", bare, "refs/heads/nope", "", "it has: main, side"},
		{"empty", empty, "", "", "has no branch"},
		{"sha256", sha256, "", "", "sha256"},
		{"borrowed objects", borrowed, "", "", "repack -a -d"},
		{"hooks elsewhere", hooked, "", "", "config --unset core.hooksPath"},
		{"relative", "work", "", "", "absolute"},
		{"missing", "/nonexistent", "", "", "nothing at"},
		{"no repository", t.TempDir(), "", "", "git init --bare"},
		{"not a ref", bare, "main", "", "refs/heads/NAME"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := r.Check(t.Context(), c.path, c.base)
			if got != c.wantBase && err == nil {
				t.Errorf("base %q, want %q", got, c.wantBase)
			}
			if (err == nil) != (c.want == "") {
				t.Fatalf("Check: %v", err)
			}
			if err != nil && !strings.Contains(err.Error()+"\n"+cofferdam.HintOf(err), c.want) {
				t.Errorf("Check says %q, hint %q; want %q in it", err, cofferdam.HintOf(err), c.want)
			}
		})
	}
}

func TestOwners(t *testing.T) {
	r := open(t)
	ids := []cofferdam.RepoID{"r-a", "r-b", "r-c"}
	for _, id := range ids {
		if err := r.Ensure(t.Context(), id, "refs/heads/main"); err != nil {
			t.Fatal(err)
		}
	}
	again, err := Open(r.dir)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(r.owners, again.owners); diff != "" || len(again.owners) != 3 {
		t.Errorf("owners after reopening: %s", diff)
	}
	if err := again.Remove(t.Context(), "r-b"); err != nil || again.Has("r-b") {
		t.Errorf("Remove: %v", err)
	}
	if err := again.Ensure(t.Context(), "r-d", "refs/heads/main"); err != nil {
		t.Fatal(err)
	}
	seen := map[uint32]bool{}
	for id, uid := range again.owners {
		if seen[uid] {
			t.Errorf("%s shares its user id", id)
		}
		seen[uid] = true
	}
	for _, bad := range []cofferdam.RepoID{"", "../x", "r-/x", "r-..", "x", "r-A"} {
		if err := again.Ensure(t.Context(), bad, "refs/heads/main"); err == nil {
			t.Errorf("Ensure took %q", bad)
		}
	}
	if _, err := again.Mirror("r-zz", ""); cofferdam.KindOf(err) != cofferdam.NotFound {
		t.Errorf("Mirror of nothing: %v", err)
	}
}

// TestBusy: who waits for a free slot can give up.
func TestBusy(t *testing.T) {
	r := openMirror(t)
	for range maxChildren {
		r.slots[leaf] <- struct{}{}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := r.Refs(ctx, testID); err == nil {
		t.Error("a process ran beyond the ceiling")
	}
}

func TestOneLine(t *testing.T) {
	for in, want := range map[string]string{
		"a\nb\x1b[31m\tc": "a b [31m c", "ok": "ok", "\xff\x00": "", strings.Repeat("x", 400): strings.Repeat("x", 300) + "…",
	} {
		if got := OneLine(in); got != want {
			t.Errorf("OneLine(%q) = %q, want %q", in, got, want)
		}
	}
}

// TestOldGit: a git that does not know the options it would get is refused.
func TestOldGit(t *testing.T) {
	for said, ok := range map[string]bool{
		"git version 2.39.5\n": true, "git version 2.34.1": true, "git version 3.0.0 (Vendor)": true, "git version 2.33.9": false, "git version 1.8.3": false, "x": false, "": false,
	} {
		if err := checkVersion(said); (err == nil) != ok {
			t.Errorf("%q: %v", said, err)
		}
	}
}

// TestPushTooLarge: a pack beyond the limit leaves nothing, one below it is taken.
func TestPushTooLarge(t *testing.T) {
	r := openMirror(t)
	if got := git(t, "/", "config", "--file", r.configFile, "--get", "receive.maxInputSize"); got != strconv.Itoa(MaxPush) {
		t.Errorf("the configuration of mirrors says %s, want %d", got, MaxPush)
	}
	work := workFolder(t)
	random := make([]byte, 64<<10)
	rand.Read(random)
	head := commit(t, work, "big", string(random))
	u := Update{Ref: "refs/heads/cofferdam/t-1-1", Old: cofferdam.Commit(strings.Repeat("0", 40)), New: head}
	push := func() error {
		cmd := exec.Command("git", "pack-objects", "--quiet", "--revs", "--stdout")
		cmd.Dir, cmd.Stdin = work, strings.NewReader(string(head)+"\n")
		pack, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		return r.Receive(t.Context(), testID, u, nil, bytes.NewReader(pack), func(_ context.Context, got Received) error {
			if got.Force {
				t.Error("a new branch counts as a rewind")
			}
			return got.Finish()
		})
	}
	if err := os.WriteFile(r.configFile, []byte(strings.ReplaceAll(string(mirrorConfig), strconv.Itoa(MaxPush), "32768")), 0o644); err != nil {
		t.Fatal(err)
	}
	var refused *RefusedError
	if err := push(); !errors.As(err, &refused) || !strings.Contains(refused.Message, "maximum allowed size") {
		t.Errorf("a large push: %v, %+v", err, refused)
	}
	if refs, err := r.Refs(t.Context(), testID); err != nil || len(refs) != 0 {
		t.Errorf("refs after a refused push: %v, %v", refs, err)
	}
	if err := os.WriteFile(r.configFile, mirrorConfig, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := push(); err != nil {
		t.Errorf("the same push below the limit: %v", err)
	}
}

// TestJudgeSaysNo: without Finish nothing of a push stays.
func TestJudgeSaysNo(t *testing.T) {
	r := openMirror(t)
	work := workFolder(t)
	head := cofferdam.Commit(git(t, work, "rev-parse", "HEAD"))
	cmd := exec.Command("git", "pack-objects", "--quiet", "--revs", "--stdout")
	cmd.Dir, cmd.Stdin = work, strings.NewReader(string(head)+"\n")
	pack, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	no := errors.New("no")
	u := Update{Ref: "refs/heads/cofferdam/t-1-1", Old: cofferdam.Commit(strings.Repeat("0", 40)), New: head}
	if err := r.Receive(t.Context(), testID, u, nil, bytes.NewReader(pack), func(context.Context, Received) error { return no }); !errors.Is(err, no) {
		t.Errorf("Receive: %v", err)
	}
	if _, err := r.Commit(t.Context(), testID, head); err == nil {
		t.Error("the objects of a refused push stay")
	}
}
