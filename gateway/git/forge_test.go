package git

import (
	"bufio"
	"context"
	"crypto/x509"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/textproto"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"cofferdam"
	"cofferdam/gateway"
	"cofferdam/secret"
)

// canary is the credential of the forge: nothing of it may reach a git process.
const canary = "canary-9d2f41c07be35a68"

// forge is an https server with git http-backend behind basic authentication.
type forge struct {
	*httptest.Server
	served atomic.Int64
	paused func(r *http.Request) // called in each request after the credential was seen, if set
	status int                   // answered instead, if set
}

func newForge(t testing.TB, root string) *forge {
	t.Helper()
	f := &forge{}
	f.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if user, pass, ok := r.BasicAuth(); !ok || user != "robot" || pass != canary {
			w.Header().Set("WWW-Authenticate", `Basic realm="forge"`)
			http.Error(w, "who are you", http.StatusUnauthorized)
			return
		}
		f.served.Add(1)
		if f.status != 0 {
			w.Header().Set("Location", "https://elsewhere.test/")
			w.WriteHeader(f.status)
			return
		}
		if f.paused != nil {
			f.paused(r)
		}
		httpBackend(root, w, r)
	}))
	t.Cleanup(f.Close)
	return f
}

// options let a gateway reach f and trust it.
func (f *forge) options(upstream string) func(*Options, *cofferdam.Repo) {
	return func(o *Options, r *cofferdam.Repo) {
		r.Upstream, r.User = f.URL+"/"+filepath.Base(upstream), "robot"
		o.Roots = x509.NewCertPool()
		o.Roots.AddCert(f.Certificate())
		addr := netip.MustParseAddrPort(strings.TrimPrefix(f.URL, "https://"))
		o.Dialer = &gateway.Dialer{AllowPorts: []netip.AddrPort{addr}}
		o.Credential = func(context.Context, cofferdam.Repo) (secret.Value, bool, error) {
			return secret.NewValue([]byte(canary)), true, nil
		}
	}
}

// httpBackend runs git's own CGI program. CONTENT_LENGTH stays unset for
// chunked bodies: it then reads to the end.
func httpBackend(root string, w http.ResponseWriter, r *http.Request) {
	cmd := exec.CommandContext(r.Context(), "git", "http-backend")
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "GIT_PROJECT_ROOT=" + root, "GIT_HTTP_EXPORT_ALL=1", "REMOTE_USER=robot", "REMOTE_ADDR=127.0.0.1",
		"REQUEST_METHOD=" + r.Method, "PATH_INFO=" + r.URL.Path, "QUERY_STRING=" + r.URL.RawQuery, "CONTENT_TYPE=" + r.Header.Get("Content-Type"),
		"HTTP_CONTENT_ENCODING=" + r.Header.Get("Content-Encoding"), "GIT_PROTOCOL=" + r.Header.Get("Git-Protocol"),
		"GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=safe.directory", "GIT_CONFIG_VALUE_0=*",
	}
	if r.ContentLength >= 0 && r.Method == http.MethodPost {
		cmd.Env = append(cmd.Env, "CONTENT_LENGTH="+strconv.FormatInt(r.ContentLength, 10))
	}
	cmd.Stdin = r.Body
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	defer cmd.Wait()
	in := bufio.NewReader(out)
	header, err := textproto.NewReader(in).ReadMIMEHeader()
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	code := http.StatusOK
	if s := header.Get("Status"); s != "" {
		code, _ = strconv.Atoi(strings.Fields(s)[0])
		header.Del("Status")
	}
	for k, v := range header {
		w.Header()[k] = v
	}
	w.WriteHeader(code)
	io.Copy(w, in)
}

// TestForge: the whole line with an https upstream behind a credential, by
// every protocol version, with a push that is large enough to be chunked.
func TestForge(t *testing.T) {
	upstream := newUpstream(t)
	must(t, upstream, "config", "http.receivepack", "true")
	f := newForge(t, filepath.Dir(upstream))
	w := newWorld(t, upstream, f.options(upstream))
	dir := w.clone()
	head := write(t, dir, "c.txt", "three\n")
	w.must(dir, "push", "origin", "HEAD:"+string(own))
	if !strings.Contains(w.refs(), head+" "+string(own)) {
		t.Errorf("the forge does not have the push:\n%s", w.refs())
	}
	random, err := os.Open("/dev/urandom")
	if err != nil {
		t.Fatal(err)
	}
	defer random.Close()
	big := make([]byte, 6<<20)
	if _, err := io.ReadFull(random, big); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "big"), big, 0o644); err != nil {
		t.Fatal(err)
	}
	head = write(t, dir, "d.txt", "four\n")
	w.must(dir, "push", "origin", "HEAD:"+string(own))
	if !strings.Contains(w.refs(), head+" "+string(own)) {
		t.Errorf("the forge does not have the large push:\n%s", w.refs())
	}
	for _, v := range []string{"0", "1", "2"} {
		w.must(w.clone("-c", "protocol.version="+v), "fsck", "--strict")
	}
	for _, e := range w.record.Events() {
		if e.Verdict == cofferdam.Allowed && !e.Durable {
			t.Errorf("%s used the credential without a durable record", e.Kind)
		}
		if strings.Contains(fmt.Sprintf("%+v", e), canary) {
			t.Errorf("the record holds the credential: %+v", e)
		}
	}
}

// TestNoCredentialInGit stops the forge in the middle of each exchange and
// looks at every git process of the mirror: no credential in its command line,
// environment or files, a user and a network of its own.
func TestNoCredentialInGit(t *testing.T) {
	upstream := newUpstream(t)
	must(t, upstream, "config", "http.receivepack", "true")
	f := newForge(t, filepath.Dir(upstream))
	w := newWorld(t, upstream, f.options(upstream))
	ownNet, _ := os.Readlink("/proc/self/ns/net")
	var looked atomic.Int64
	f.paused = func(r *http.Request) {
		for _, pid := range children(t) {
			proc := "/proc/" + pid
			status, err := os.ReadFile(proc + "/status")
			if err != nil || !isMirrorUser(string(status)) {
				continue // the client of the test, or gone
			}
			looked.Add(1)
			for _, name := range []string{"cmdline", "environ"} {
				text, _ := os.ReadFile(proc + "/" + name)
				if strings.Contains(string(text), canary) || strings.Contains(string(text), f.URL) {
					t.Errorf("%s of a git process names the credential or the forge: %q", name, text)
				}
			}
			if net, _ := os.Readlink(proc + "/ns/net"); net == ownNet {
				t.Errorf("a git process shares our network: %s", status)
			}
			if dev, err := os.ReadFile(proc + "/net/dev"); err == nil && strings.Count(string(dev), ":") != 1 {
				t.Errorf("a git process has network devices: %s", dev)
			}
			if left := grepFiles(proc+"/root/repo", canary) + grepFiles(proc+"/root/tmp", canary); left != "" {
				t.Errorf("the credential is in %s", left)
			}
		}
	}
	dir := w.clone()
	write(t, dir, "c.txt", "three\n")
	w.must(dir, "push", "origin", "HEAD:"+string(own))
	if looked.Load() < 4 {
		t.Errorf("only %d git processes were looked at", looked.Load())
	}
}

func isMirrorUser(status string) bool {
	_, rest, _ := strings.Cut(status, "\nUid:\t")
	uid, _, _ := strings.Cut(rest, "\t")
	n, err := strconv.ParseUint(uid, 10, 32)
	return err == nil && n >= 2_000_000_000
}

// children lists every process that descends from this test.
func children(t testing.TB) []string {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	parent := map[string]string{}
	for _, e := range entries {
		if status, err := os.ReadFile("/proc/" + e.Name() + "/status"); err == nil {
			_, rest, _ := strings.Cut(string(status), "\nPPid:\t")
			parent[e.Name()], _, _ = strings.Cut(rest, "\n")
		}
	}
	self := strconv.Itoa(os.Getpid())
	var found []string
	for pid := range parent {
		for up := parent[pid]; up != "" && up != "0"; up = parent[up] {
			if up == self {
				found = append(found, pid)
				break
			}
		}
	}
	return found
}

func grepFiles(dir, text string) (found string) {
	filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			if b, err := os.ReadFile(path); err == nil && strings.Contains(string(b), text) {
				found = path
			}
		}
		return nil
	})
	return found
}

// TestForgeFails: what the person and the agent are told when the upstream
// does not serve.
func TestForgeFails(t *testing.T) {
	upstream := newUpstream(t)
	must(t, upstream, "config", "http.receivepack", "true")
	for _, c := range []struct {
		name   string
		change func(*forge, *Options, *cofferdam.Repo)
		kind   cofferdam.Kind
		want   string
	}{
		{"wrong credential", func(_ *forge, o *Options, _ *cofferdam.Repo) {
			o.Credential = func(context.Context, cofferdam.Repo) (secret.Value, bool, error) {
				return secret.NewValue([]byte("wrong")), true, nil
			}
		}, cofferdam.Unavailable, "does not accept the credential"},
		{"no credential", func(_ *forge, o *Options, _ *cofferdam.Repo) { o.Credential = nil }, cofferdam.Unavailable, "does not accept the credential"},
		{"redirect", func(f *forge, _ *Options, _ *cofferdam.Repo) { f.status = 302 }, cofferdam.Unavailable, "redirect"},
		{"not there", func(_ *forge, _ *Options, r *cofferdam.Repo) { r.Upstream += "-no" }, cofferdam.Unavailable, "has no such repository"},
		{"broken", func(f *forge, _ *Options, _ *cofferdam.Repo) { f.status = 503 }, cofferdam.Unavailable, "status 503"},
		{"down", func(f *forge, _ *Options, _ *cofferdam.Repo) { f.Close() }, cofferdam.Unavailable, "does not answer"},
		{"address not listed", func(_ *forge, o *Options, _ *cofferdam.Repo) { o.Dialer = nil }, cofferdam.Denied, ""},
		{"unknown authority", func(_ *forge, o *Options, _ *cofferdam.Repo) { o.Roots = nil }, cofferdam.Unavailable, "does not answer as it should"},
		{"plain http", func(_ *forge, _ *Options, r *cofferdam.Repo) {
			r.Upstream = strings.Replace(r.Upstream, "https:", "http:", 1)
		}, cofferdam.Invalid, "https URL"},
		{"password in the URL", func(_ *forge, _ *Options, r *cofferdam.Repo) {
			r.Upstream = strings.Replace(r.Upstream, "https://", "https://u:p@", 1)
		}, cofferdam.Invalid, "password"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newForge(t, filepath.Dir(upstream))
			w := newWorld(t, upstream, f.options(upstream), func(o *Options, r *cofferdam.Repo) { c.change(f, o, r) })
			err := w.gateway.Sync(t.Context(), w.repo)
			if cofferdam.KindOf(err) != c.kind || err == nil || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("Sync: %v (%s), want %q", err, cofferdam.KindOf(err), c.want)
			}
			out, err := w.git("/", "clone", w.url(), filepath.Join(t.TempDir(), "x"))
			if err == nil || !strings.Contains(out, "remote: cofferdam: ") || !strings.Contains(out, "remote: hint: ") {
				t.Errorf("git does not show the reason:\n%s", out)
			}
			if _, err := w.gateway.Check(t.Context(), w.repo, secret.Value{}); err == nil {
				t.Error("Check takes it")
			}
		})
	}
}

// TestCheckForge: an https upstream is examined with the credential that came
// along, and nothing of the look stays.
func TestCheckForge(t *testing.T) {
	upstream := newUpstream(t)
	f := newForge(t, filepath.Dir(upstream))
	w := newWorld(t, upstream, f.options(upstream))
	value := secret.NewValue([]byte(canary))
	for _, c := range []struct{ base, want, err cofferdam.Ref }{
		{"", "refs/heads/main", ""}, {"refs/heads/main", "refs/heads/main", ""}, {"refs/heads/no", "", "it has no branch no"}, {"main", "", "full name"},
	} {
		r := w.repo
		r.Base = c.base
		got, err := w.gateway.Check(t.Context(), r, value)
		if got != c.want || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), string(c.err)) {
			t.Errorf("Check(%q) = %q, %v", c.base, got, err)
		}
	}
	r := w.repo
	r.Upstream = upstream
	if got, err := w.gateway.Check(t.Context(), r, secret.Value{}); err != nil || got != "refs/heads/main" {
		t.Errorf("Check of a local path: %q, %v", got, err)
	}
	if w.repos.Has(w.repo.ID) {
		t.Error("Check left a mirror")
	}
}

// TestCheckForgeSHA256: a repository of the other kind is refused with the reason.
func TestCheckForgeSHA256(t *testing.T) {
	upstream := newUpstream(t, "--object-format=sha256")
	f := newForge(t, filepath.Dir(upstream))
	w := newWorld(t, upstream, f.options(upstream))
	_, err := w.gateway.Check(t.Context(), w.repo, secret.NewValue([]byte(canary)))
	if err == nil || !strings.Contains(err.Error(), "sha1") {
		t.Errorf("Check: %v", err)
	}
}

// TestForgeTellsCredential: an upstream that says the credential back does not
// tell it to the box.
func TestForgeTellsCredential(t *testing.T) {
	upstream := newUpstream(t)
	must(t, upstream, "config", "http.receivepack", "true")
	hook := "#!/bin/sh\necho you are " + canary + " >&2\necho $(printf robot:" + canary + " | base64) >&2\nexit 1\n"
	if err := os.MkdirAll(filepath.Join(upstream, "hooks"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(upstream, "hooks", "pre-receive"), []byte(hook), 0o755); err != nil {
		t.Fatal(err)
	}
	f := newForge(t, filepath.Dir(upstream))
	w := newWorld(t, upstream, f.options(upstream))
	dir := w.clone()
	write(t, dir, "c.txt", "three\n")
	out, err := w.git(dir, "push", "origin", "HEAD:"+string(own))
	if err == nil || !strings.Contains(out, "you are") {
		t.Errorf("push: %v\n%s", err, out)
	}
	if strings.Contains(out, canary) || strings.Contains(out, base64.StdEncoding.EncodeToString([]byte("robot:" + canary))[8:20]) {
		t.Errorf("the box hears the credential:\n%s", out)
	}
}
