package repo

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"cofferdam"
	"cofferdam/internal/userns"
)

const testID = cofferdam.RepoID("r-00000000000000000000000000000001")

func open(t testing.TB) *Repos {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: git runs under a user id of its own")
	}
	r, err := Open(filepath.Join(t.TempDir(), "repos"))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// testUser keeps the processes of this test apart from those of another one
// that runs at the same time.
func testUser() uint32 {
	if userns.Inside() {
		return FirstOfUser + uint32(os.Getpid())%1000
	}
	return FirstUser + uint32(os.Getpid())
}

func openMirror(t testing.TB) *Repos {
	t.Helper()
	r := open(t)
	r.first = testUser()
	if err := r.Ensure(t.Context(), testID, "refs/heads/main"); err != nil {
		t.Fatal(err)
	}
	return r
}

// git runs the real git as the test itself.
func git(t testing.TB, dir string, args ...string) string {
	t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1", "GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@b", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@b")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}

// inside runs shell text in the cage of the test's mirror.
func inside(t *testing.T, r *Repos, change func(*child), script string) (string, error) {
	t.Helper()
	p, err := r.Mirror(testID, "")
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	c := p.child()
	c.argv, c.stdout = []string{"/bin/sh", "-c", script}, &out
	if change != nil {
		change(&c)
	}
	err = r.run(t.Context(), c)
	return out.String(), err
}

// TestCage looks at a cage from inside: user, privileges, network, files, limits.
func TestCage(t *testing.T) {
	r := openMirror(t)
	t.Setenv("COFFERDAM_CANARY", "canary-in-environment")
	for _, c := range []struct{ name, script, want string }{
		{"user", "id -u; id -g; id -G", strings.Repeat(fmt.Sprintln(testUser()), 3)},
		{"environment", "env | grep -ci canary; true", "0\n"},
		{"root", "echo /*", "/bin /dev /home /lib /lib64 /repo /sbin /tmp /usr\n"},
		{"devices", "echo /dev/*", "/dev/null /dev/urandom\n"},
		{"usr is read-only", "touch /usr/x 2>/dev/null && echo wrote; true", ""},
		{"config is fixed", "rm -f /repo/config 2>/dev/null; echo '[core]' >>/repo/config 2>/dev/null; mv /repo/config /repo/x 2>/dev/null; grep -c hooksPath /repo/config", "1\n"},
		{"repository runs nothing", "printf '#!/bin/sh\necho ran\n' >/repo/x && chmod 755 /repo/x && /repo/x 2>/dev/null; rm /repo/x", ""},
		{"mirror is writable", "touch /repo/y && rm /repo/y && echo wrote", "wrote\n"},
		{"file limits", "ulimit -n; ulimit -c", "1024\n0\n"},
		{"no descriptors", "ls /proc/self/fd 2>/dev/null; true", ""},
		{"no privilege to gain", "chroot / true 2>/dev/null && echo rooted; mount -t tmpfs x /tmp 2>/dev/null && echo mounted; true", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := inside(t, r, nil, c.script)
			if c.name == "root" {
				got = strings.ReplaceAll(got, "/lib32 ", "")
			}
			if err != nil && c.name != "repository runs nothing" || got != c.want {
				t.Errorf("inside: %q, %v; want %q", got, err, c.want)
			}
		})
	}
}

// TestCageFromOutside reads what the kernel says of a running git process.
func TestCageFromOutside(t *testing.T) {
	r := openMirror(t)
	p, err := r.Mirror(testID, "")
	if err != nil {
		t.Fatal(err)
	}
	c := p.child()
	hold, release := io.Pipe()
	ready := make(chan struct{})
	c.argv, c.stdin = []string{"/bin/sh", "-c", "echo up; read x"}, hold
	c.stdout = writerFunc(func(b []byte) (int, error) { close(ready); return len(b), nil })
	done := make(chan error, 1)
	go func() { done <- r.run(t.Context(), c) }()
	<-ready
	pids := ofUser(t, testUser())
	if len(pids) != 1 {
		t.Fatalf("processes of the mirror's user: %v, want one", pids)
	}
	proc := "/proc/" + pids[0]
	status, _ := os.ReadFile(proc + "/status")
	for _, want := range []string{"NoNewPrivs:\t1", "CapEff:\t0000000000000000", "CapPrm:\t0000000000000000", "CapBnd:\t0000000000000000", "CapAmb:\t0000000000000000"} {
		if !strings.Contains(string(status), want) {
			t.Errorf("status lacks %q", want)
		}
	}
	for _, ns := range []string{"net", "mnt", "pid", "ipc", "uts"} {
		own, _ := os.Readlink("/proc/self/ns/" + ns)
		its, err := os.Readlink(proc + "/ns/" + ns)
		if err != nil || its == own {
			t.Errorf("namespace %s is shared with us: %s, %v", ns, its, err)
		}
	}
	dev, _ := os.ReadFile(proc + "/net/dev")
	if n := strings.Count(string(dev), ":"); n != 1 || !strings.Contains(string(dev), "lo:") {
		t.Errorf("network devices: %s", dev)
	}
	release.Close()
	<-done
}

// TestCageCarrier: a cage with a carrier reaches it and nothing else, and
// nobody else reaches the carrier.
func TestCageCarrier(t *testing.T) {
	r := openMirror(t)
	outside, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer outside.Close()
	var addr string
	p, _ := r.mirror(testID)
	c := p.child("ls-remote", carrierURL)
	carried(&c, http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) { http.Error(w, "hello from the carrier", 404) }))
	inner := c.listening
	c.listening = func(l net.Listener) func() { addr = l.Addr().String(); return inner(l) }
	err = r.run(t.Context(), c)
	if err == nil || !strings.Contains(err.Error(), "hello from the carrier") {
		t.Errorf("git did not reach its carrier: %v", err)
	}
	if conn, err := net.DialTimeout("tcp4", addr, time.Second); err == nil {
		conn.Close()
		t.Error("the carrier can be reached from the host")
	}
	c = p.child("ls-remote", "http://"+outside.Addr().String()+"/x.git")
	carried(&c, http.NotFoundHandler())
	if err := r.run(t.Context(), c); err == nil || !strings.Contains(err.Error(), "Couldn't connect") {
		t.Errorf("a cage reached the host's loopback, or failed for another reason: %v", err)
	}
}

// TestCageEnds: a cancelled process and all it started are gone.
func TestCageEnds(t *testing.T) {
	r := openMirror(t)
	ctx, cancel := context.WithCancel(t.Context())
	p, _ := r.Mirror(testID, "")
	c := p.child()
	c.argv = []string{"/bin/sh", "-c", "setsid sh -c 'trap \"\" TERM HUP; sleep 1000' & sleep 1000 & echo up; wait"}
	c.stdout = writerFunc(func(b []byte) (int, error) { cancel(); return len(b), nil })
	if err := r.run(ctx, c); err == nil {
		t.Error("a cancelled process ended well")
	}
	if left := ofUser(t, testUser()); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

// TestCagePlantedLink: a link where the configuration belongs is not followed.
func TestCagePlantedLink(t *testing.T) {
	r := openMirror(t)
	config := filepath.Join(r.path(testID), "config")
	if err := os.Remove(config); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/etc/passwd", config); err != nil {
		t.Fatal(err)
	}
	if _, err := inside(t, r, nil, "true"); err == nil {
		t.Error("a cage was built over a planted link")
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// ofUser lists the processes of a user id.
func ofUser(t testing.TB, uid uint32) []string {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	var pids []string
	for _, e := range entries {
		status, err := os.ReadFile("/proc/" + e.Name() + "/status")
		if err == nil && strings.Contains(string(status), fmt.Sprintf("\nUid:\t%d\t", uid)) && !strings.Contains(string(status), "State:\tZ") {
			pids = append(pids, e.Name())
		}
	}
	return pids
}

// TestCageLeavesNothing: threads, descriptors and mounts are what they were.
func TestCageLeavesNothing(t *testing.T) {
	r := openMirror(t)
	p, _ := r.mirror(testID)
	use := func() {
		for range 20 {
			c := p.child("ls-remote", carrierURL)
			carried(&c, http.NotFoundHandler())
			if err := r.run(t.Context(), c); err == nil {
				t.Fatal("listed nothing")
			}
		}
	}
	use() // the runtime makes its own threads first
	threads, files := countDir(t, "/proc/self/task"), countDir(t, "/proc/self/fd")
	before, _ := os.ReadFile("/proc/self/mountinfo")
	use()
	use()
	// Threads that have ended are taken off the list a moment later, as connections
	// are closed; a busy machine makes the runtime make some of its own.
	for deadline := time.Now().Add(time.Minute); (countDir(t, "/proc/self/task") > threads+20 || countDir(t, "/proc/self/fd") > files+2) && time.Now().Before(deadline); {
		time.Sleep(10 * time.Millisecond)
	}
	if now := countDir(t, "/proc/self/task"); now > threads+20 {
		t.Errorf("%d threads, %d before", now, threads)
	}
	if now := countDir(t, "/proc/self/fd"); now > files+2 {
		t.Errorf("%d descriptors, %d before", now, files)
	}
	if after, _ := os.ReadFile("/proc/self/mountinfo"); strings.Count(string(after), r.viewDir) != strings.Count(string(before), r.viewDir) || strings.Contains(string(after), r.viewDir) {
		t.Error("mounts are left")
	}
}

func countDir(t *testing.T, dir string) int {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

// TestUpstreamOwner: git works on a local upstream as its owner, also where
// nobody else can get to it, and never with a capability.
func TestUpstreamOwner(t *testing.T) {
	r := open(t)
	for _, uid := range []int{1234, 0} {
		t.Run(fmt.Sprint(uid), func(t *testing.T) {
			closed := filepath.Join(t.TempDir(), "closed")
			if err := os.MkdirAll(filepath.Join(closed, "up.git"), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.Chown(filepath.Join(closed, "up.git"), uid, uid); err != nil {
				t.Fatal(err)
			}
			p, err := r.Upstream(filepath.Join(closed, "up.git"))
			if err != nil {
				t.Fatal(err)
			}
			var out bytes.Buffer
			c := p.child()
			c.argv, c.stdout = []string{"/bin/sh", "-c", "id -u; touch /upstream/x && echo wrote; cat /etc/shadow 2>/dev/null; touch /usr/x 2>/dev/null && echo escaped; mount -t tmpfs x /tmp 2>/dev/null && echo mounted; chown 7 /upstream/x 2>/dev/null && echo chowned; true"}, &out
			if err := r.run(t.Context(), c); err != nil || out.String() != fmt.Sprintf("%d\nwrote\n", uid) {
				t.Errorf("inside: %q, %v", out.String(), err)
			}
		})
	}
}
