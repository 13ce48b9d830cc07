package repo

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestSweep: what a killed server and its git leave behind is gone when the
// next one opens the folder.
func TestSweep(t *testing.T) {
	r := openMirror(t)
	mirror := r.path(testID)
	outside := filepath.Join(t.TempDir(), "outside.lock")
	for _, f := range []string{"HEAD.lock", "packed-refs.lock", "refs/heads/x.lock", "objects/pack/tmp_pack_x", "objects/tmp_objdir-incoming-x/pack/y"} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(mirror, f)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(mirror, f), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(outside, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Dir(outside), filepath.Join(mirror, "refs/heads/link")); err != nil {
		t.Fatal(err)
	}
	for _, d := range []string{"r-x.git.new", LookPrefix + "1.git"} {
		if err := os.Mkdir(filepath.Join(r.dir, d), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	again, err := Open(r.dir)
	if err != nil {
		t.Fatal(err)
	}
	var left []string
	filepath.WalkDir(r.dir, func(path string, d os.DirEntry, err error) error {
		if s := d.Name(); strings.HasSuffix(s, ".lock") || strings.HasSuffix(s, ".new") || strings.Contains(s, "tmp_") || strings.HasPrefix(s, LookPrefix) {
			left = append(left, path)
		}
		return err
	})
	if len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	if _, err := os.Stat(outside); err != nil {
		t.Errorf("a planted link was followed: %v", err)
	}
	if !again.Has(testID) {
		t.Error("the mirror is gone too")
	}
}

// TestStaleLock: a lock that no living process can own does not stop a fetch,
// a fresh one does.
func TestStaleLock(t *testing.T) {
	r := openMirror(t)
	work := workFolder(t)
	fill(t, r, work)
	commit(t, work, "b.txt", "x\n")
	lock := filepath.Join(r.path(testID), "refs/heads/main.lock")
	if err := os.WriteFile(lock, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	bare := filepath.Join(t.TempDir(), "bare.git")
	git(t, "/", "clone", "--quiet", "--bare", work, bare)
	if err := r.Fetch(t.Context(), testID, serveLocal(t, r, bare)); err == nil || !strings.Contains(err.Error(), "lock") {
		t.Errorf("a fresh lock was passed over: %v", err)
	}
	old := time.Now().Add(-2 * staleLock)
	if err := os.Chtimes(lock, old, old); err != nil {
		t.Fatal(err)
	}
	if err := r.Fetch(t.Context(), testID, serveLocal(t, r, bare)); err != nil {
		t.Errorf("a stale lock stops the fetch: %v", err)
	}
}

// TestCageDiesWithServer kills a process that has a git running: git ends too.
func TestCageDiesWithServer(t *testing.T) {
	const variable = "COFFERDAM_DEBUG_CAGE_DIR"
	if dir := os.Getenv(variable); dir != "" {
		r, err := Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		p, err := r.Mirror(testID, "")
		if err != nil {
			t.Fatal(err)
		}
		c := p.child()
		c.argv, c.stdout = []string{"/bin/sh", "-c", "sleep 1000 & echo up; sleep 1000"}, os.Stdout
		r.run(t.Context(), c)
		return
	}
	r := openMirror(t)
	cmd := exec.Command(os.Args[0], "-test.run=^TestCageDiesWithServer$")
	cmd.Env = append(os.Environ(), variable+"="+r.dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer cmd.Process.Kill() // it may have been killed
	if _, err := out.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	if n := len(ofUser(t, testUser())); n < 2 {
		t.Errorf("%d processes run, want two or more", n)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(time.Minute); len(ofUser(t, testUser())) > 0; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("left: %v", ofUser(t, testUser()))
		}
	}
}
