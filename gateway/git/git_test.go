package git

import (
	"cmp"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"cofferdam"
	"cofferdam/gateway"
	"cofferdam/gateway/gatewaytest"
	"cofferdam/internal/repo"
	"cofferdam/policy"
)

const own = cofferdam.Ref("refs/heads/cofferdam/t-42-1")

// pushes returns the push events: verdicts and outcomes in order.
func (w *world) pushes() string {
	var s []string
	for _, e := range w.record.Find(cofferdam.EventPush) {
		s = append(s, string(e.Verdict)+e.Outcome)
	}
	return strings.Join(s, " ")
}

// world is an upstream, a gateway and a session that can reach it.
type world struct {
	t        testing.TB
	gateway  *Gateway
	repos    *repo.Repos
	repo     cofferdam.Repo
	upstream string // path of the bare repository behind it all
	caller   *gateway.Caller
	record   *gatewaytest.Recorder
	port     string
	end      context.CancelFunc // of the session
}

func newRepos(t testing.TB) *repo.Repos {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: git runs under a user id of its own")
	}
	r, err := repo.Open(filepath.Join(t.TempDir(), "repos"))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// newWorld makes a world around the bare repository at upstream; "" makes one
// with two commits on main.
func newWorld(t testing.TB, upstream string, change ...func(*Options, *cofferdam.Repo)) *world {
	t.Helper()
	w := &world{t: t, repos: newRepos(t), upstream: upstream, record: &gatewaytest.Recorder{}}
	if upstream == "" {
		w.upstream = newUpstream(t)
	}
	w.repo = cofferdam.Repo{ID: cofferdam.RepoID(cofferdam.NewID("r")), Name: "demo", Upstream: w.upstream, Base: "refs/heads/main"}
	o := Options{Repos: w.repos}
	for _, f := range change {
		f(&o, &w.repo)
	}
	w.gateway = New(o)
	w.open(own)
	return w
}

// open begins a session that may write branch.
func (w *world) open(branch cofferdam.Ref) { w.openAs(branch, branch) }

// openAs begins a session that sees branch and may write granted.
func (w *world) openAs(branch, granted cofferdam.Ref) {
	w.t.Helper()
	w.caller, _, w.end = gatewaytest.NewCaller(w.t, policy.Grant{Repo: w.repo.ID, Branch: granted})
	w.caller.Repo, w.caller.Branch, w.caller.Record = w.repo, branch, w.record
	_, w.port, _ = net.SplitHostPort(gatewaytest.Serve(w.t, w.gateway, w.caller, gateway.Target{Host: gateway.GitHost, Port: 80}))
}

func (w *world) url() string { return "http://git.cofferdam.internal:" + w.port + "/demo.git" }

// git runs the real git as a client of the gateway.
func (w *world) git(dir string, args ...string) (string, error) {
	return runGit(dir, append([]string{"-c", "http.curloptResolve=git.cofferdam.internal:" + w.port + ":127.0.0.1", "-c", "protocol.file.allow=always"}, args...)...)
}

func runGit(dir string, args ...string) (string, error) {
	cmd := exec.Command("git", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "HOME=/nonexistent", "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1", "GIT_TERMINAL_PROMPT=0", "no_proxy=*",
		"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@b", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@b")
	out, err := cmd.CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

func must(t testing.TB, dir string, args ...string) string {
	t.Helper()
	out, err := runGit(dir, args...)
	if err != nil {
		t.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

func (w *world) must(dir string, args ...string) string {
	w.t.Helper()
	out, err := w.git(dir, args...)
	if err != nil {
		w.t.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

// clone makes a checkout through the gateway.
func (w *world) clone(args ...string) string {
	w.t.Helper()
	dir := filepath.Join(w.t.TempDir(), "work")
	w.must("/", append(append([]string{"clone", "--quiet"}, args...), w.url(), dir)...)
	return dir
}

// refs are those of the upstream, one per line.
func (w *world) refs() string {
	w.t.Helper()
	return must(w.t, w.upstream, "for-each-ref", "--format=%(objectname) %(refname)")
}

// mirrorAt says where ref is in the mirror.
func (w *world) mirrorAt(ref cofferdam.Ref) string {
	w.t.Helper()
	refs, err := w.repos.Refs(context.Background(), w.repo.ID)
	if err != nil {
		w.t.Fatal(err)
	}
	return string(refs[ref])
}

func newUpstream(t testing.TB, args ...string) string {
	t.Helper()
	work := t.TempDir()
	must(t, work, append([]string{"init", "--quiet", "-b", "main"}, args...)...)
	write(t, work, "a.txt", "one\n")
	write(t, work, "b.txt", "two\n")
	bare := filepath.Join(t.TempDir(), "up.git")
	must(t, "/", "clone", "--quiet", "--bare", work, bare)
	return bare
}

func write(t testing.TB, dir, name, text string) string {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	must(t, dir, "add", "-A")
	must(t, dir, "commit", "--quiet", "-m", "write "+name)
	return must(t, dir, "rev-parse", "HEAD")
}

// TestOneTask: clone, push, push again, fetch: the everyday line.
func TestOneTask(t *testing.T) {
	for _, version := range []string{"0", "1", "2"} {
		t.Run("v"+version, func(t *testing.T) {
			w := newWorld(t, "")
			dir := w.clone("-c", "protocol.version="+version)
			first := write(t, dir, "c.txt", "three\n")
			w.must(dir, "-c", "protocol.version="+version, "push", "origin", "HEAD:"+string(own))
			if got := w.mirrorAt(own); got != first {
				t.Errorf("mirror has %s, want %s", got, first)
			}
			second := write(t, dir, "d.txt", "four\n")
			out := w.must(dir, "push", "origin", "HEAD:"+string(own))
			if strings.Contains(out, "hint") {
				t.Errorf("a good push says: %s", out)
			}
			if !strings.Contains(w.refs(), second+" "+string(own)) {
				t.Errorf("upstream does not have the push:\n%s", w.refs())
			}
			w.must(dir, "fetch", "origin")
			if got := w.pushes(); got != "allowed ok allowed ok" {
				t.Errorf("record: %q", got)
			}
			for _, e := range w.record.Events() {
				if e.Kind == cofferdam.EventPush && !e.Durable {
					t.Error("a push was not recorded durably")
				}
			}
			must(t, w.upstream, "fsck", "--strict")
		})
	}
}

// TestRefused is REP-01 to REP-06 in the words of git: nothing but the one
// branch is written, and git shows why.
func TestRefused(t *testing.T) {
	w := newWorld(t, "")
	dir := w.clone()
	write(t, dir, "c.txt", strings.Repeat("more\n", 1000))
	before := w.refs()
	for _, c := range []struct {
		name string
		args []string
		want string
	}{
		{"base", []string{"push", "origin", "HEAD:main"}, "! [remote rejected] HEAD -> main (writing refs/heads/main is refused)"},
		{"base in full", []string{"push", "origin", "HEAD:refs/heads/main"}, "remote: hint: push to refs/heads/cofferdam/t-42-1"},
		{"base by force", []string{"push", "origin", "+HEAD:main"}, "is refused"},
		{"base with lease", []string{"push", "--force-with-lease", "origin", "HEAD:main"}, "is refused"},
		{"tag", []string{"push", "origin", "HEAD:refs/tags/v9"}, "writing refs/tags/v9 is refused"},
		{"tag of the branch's name", []string{"push", "origin", "HEAD:refs/tags/cofferdam/t-42-1"}, "is refused"},
		{"another task's branch", []string{"push", "origin", "HEAD:refs/heads/cofferdam/t-43-1"}, "is refused"},
		{"below the branch", []string{"push", "origin", "HEAD:refs/heads/cofferdam/t-42-1/x"}, "is refused"},
		{"other case", []string{"push", "origin", "HEAD:refs/heads/COFFERDAM/t-42-1"}, "is refused"},
		{"delete base", []string{"push", "origin", ":main"}, "is refused"},
		{"mirror", []string{"push", "--mirror", "origin"}, "nothing of this push was taken"},
		{"notes", []string{"push", "origin", "HEAD:refs/notes/x"}, "is refused"},
		{"replace", []string{"push", "origin", "HEAD:refs/replace/0000000000000000000000000000000000000001"}, "is refused"},
		{"review", []string{"push", "origin", "HEAD:refs/for/main"}, "is refused"},
		{"bad first", []string{"push", "origin", "HEAD:main", "HEAD:" + string(own)}, "nothing of this push was taken"},
		{"bad last", []string{"push", "origin", "HEAD:" + string(own), "HEAD:main"}, "nothing of this push was taken"},
		{"bad middle", []string{"push", "origin", "HEAD:" + string(own), "HEAD:main", "HEAD:refs/heads/x"}, "nothing of this push was taken"},
		{"atomic", []string{"push", "--atomic", "origin", "HEAD:" + string(own), "HEAD:main"}, "nothing of this push was taken"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w.record.Clear()
			out, err := w.git(dir, c.args...)
			if err == nil || !strings.Contains(out, c.want) {
				t.Errorf("git says %v:\n%s\nwant %q", err, out, c.want)
			}
			if after := w.refs(); after != before {
				t.Errorf("upstream changed:\n%s\nfrom\n%s", after, before)
			}
			if got := w.mirrorAt(own); got != "" {
				t.Error("the mirror has the branch")
			}
			if got := w.pushes(); got != "refused" {
				t.Errorf("record: %q, want one refusal", got)
			}
			if n := w.caller.Counts.Refused.Swap(0); n != 1 {
				t.Errorf("%d refusals are counted", n)
			}
		})
	}
}

// TestForceAndDelete: the session's own branch can only grow.
func TestForceAndDelete(t *testing.T) {
	w := newWorld(t, "")
	dir := w.clone()
	first := write(t, dir, "c.txt", "three\n")
	w.must(dir, "push", "origin", "HEAD:"+string(own))
	must(t, dir, "commit", "--quiet", "--amend", "-m", "rewritten")
	before := w.refs()
	for _, c := range []struct{ args, want string }{
		{"push --force origin HEAD:" + string(own), "rewriting " + string(own) + " is refused"},
		{"push origin :" + string(own), "deleting " + string(own) + " is refused"},
		{"push --force origin HEAD~1:" + string(own), "is refused"},
	} {
		out, err := w.git(dir, strings.Fields(c.args)...)
		if err == nil || !strings.Contains(out, c.want) {
			t.Errorf("%s: %v\n%s", c.args, err, out)
		}
	}
	if w.refs() != before || w.mirrorAt(own) != first {
		t.Errorf("refs changed:\n%s\nfrom\n%s", w.refs(), before)
	}
	if got := w.pushes(); got != "allowed ok refused refused refused" {
		t.Errorf("record: %q", got)
	}
	// The twin: what follows is taken.
	must(t, dir, "reset", "--quiet", "--hard", first)
	write(t, dir, "d.txt", "four\n")
	w.must(dir, "push", "origin", "HEAD:"+string(own))
}

// TestClientThatHasAll: a fetch whose answer was sent went well, also if its client
// leaves at once; one that breaks off because of that did not.
func TestClientThatHasAll(t *testing.T) {
	w := newWorld(t, "")
	w.clone() // the mirror is there
	for _, c := range []struct {
		err  error
		want string
	}{{nil, gateway.OK}, {context.Canceled, gateway.Cut}} {
		w.record.Clear()
		ctx, leave := context.WithCancel(w.caller.Live)
		r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/demo.git/git-upload-pack", nil)
		w.gateway.serveFetch(w.caller, httptest.NewRecorder(), r, "pack", func(_ context.Context, _ repo.Place, out io.Writer) error {
			_, err := io.WriteString(out, "0000")
			leave()
			return cmp.Or(err, c.err)
		})
		if e := w.record.Find(cofferdam.EventFetch); len(e) != 2 || e[1].Outcome != c.want || e[1].Fields["bytes"] != "4" {
			t.Errorf("%v: %+v, want %q", c.err, e, c.want)
		}
	}
}
