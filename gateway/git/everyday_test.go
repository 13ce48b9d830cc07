package git

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"cofferdam"
	"cofferdam/secret"
)

// manyCommits writes n commits on top of each other, each on a branch of its
// own if prefix is not "", the fast way.
func manyCommits(t testing.TB, dir, prefix, onto string, n int) {
	t.Helper()
	var in strings.Builder
	for i := range n {
		ref := "refs/heads/wide"
		if prefix != "" {
			ref = fmt.Sprintf("refs/heads/%s%d", prefix, i)
		}
		text := fmt.Sprintf("content %d of %s\n", i, prefix)
		fmt.Fprintf(&in, "commit %s\ncommitter a <a@b> %d +0000\ndata 1\nx\n", ref, 1_700_000_000+i)
		if onto != "" {
			fmt.Fprintf(&in, "from %s\n", onto)
		}
		fmt.Fprintf(&in, "M 100644 inline f%d\ndata %d\n%s\n", i, len(text), text)
		if prefix == "" {
			onto = ""
		}
	}
	in.WriteString("done\n")
	cmd := exec.Command("git", "fast-import", "--quiet", "--done")
	cmd.Dir, cmd.Stdin = dir, strings.NewReader(in.String())
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("fast-import: %v\n%s", err, out)
	}
}

// TestManyRefs is BR-13: 400 branches on 400 commits; git compresses its
// requests from some size on, and 300 local commits make a long negotiation.
func TestManyRefs(t *testing.T) {
	upstream := newUpstream(t)
	manyCommits(t, upstream, "b", "refs/heads/main^0", 400)
	w := newWorld(t, upstream)
	for _, v := range []string{"0", "2"} {
		t.Run("v"+v, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "work")
			w.must("/", "-c", "protocol.version="+v, "clone", "--quiet", w.url(), dir)
			if n := len(strings.Split(must(t, dir, "for-each-ref", "--format=x", "refs/remotes/origin/b*"), "\n")); n != 400 {
				t.Errorf("%d branches", n)
			}
			manyCommits(t, dir, "", "refs/heads/main^0", 300)
			must(t, dir, "checkout", "--quiet", "wide")
			work := filepath.Join(t.TempDir(), "other")
			must(t, "/", "clone", "--quiet", w.upstream, work)
			head := write(t, work, "new-"+v, "new\n")
			must(t, work, "push", "--quiet", "origin", "HEAD:main")
			out, err := w.git(dir, "-c", "protocol.version="+v, "fetch", "--quiet", "origin")
			if err != nil || must(t, dir, "rev-parse", "origin/main") != head {
				t.Errorf("fetch: %v\n%s", err, out)
			}
			trace := filepath.Join(t.TempDir(), "trace")
			t.Setenv("GIT_TRACE_PACKET", trace)
			w.must("/", "-c", "protocol.version="+v, "ls-remote", w.url())
			text, _ := os.ReadFile(trace)
			if strings.Contains(string(text), "< version 2") != (v == "2") {
				t.Errorf("protocol version %s did not stay", v)
			}
			must(t, dir, "fsck")
		})
	}
}

// TestPartial is BR-15: shallow and partial clones, with objects fetched later.
func TestPartial(t *testing.T) {
	w := newWorld(t, "")
	dir := w.clone("--depth", "1")
	w.must(dir, "fetch", "--quiet", "--deepen", "5", "origin")
	if n := must(t, dir, "rev-list", "--count", "HEAD"); n != "2" {
		t.Errorf("%s commits after deepening", n)
	}
	head := write(t, dir, "c.txt", "three\n")
	w.must(dir, "push", "origin", "HEAD:"+string(own))
	shallow := w.clone("--depth", "1", "--branch", "cofferdam/t-42-1")
	head2 := write(t, shallow, "d.txt", "four\n")
	w.must(shallow, "push", "origin", "HEAD:"+string(own))
	if got := w.mirrorAt(own); got != head2 {
		t.Errorf("a push from a shallow clone: %s, want %s on %s", got, head2, head)
	}
	lazy := w.clone("--filter=blob:none", "--no-checkout")
	w.must(lazy, "checkout", "--quiet", "main~1")
	w.must(lazy, "checkout", "--quiet", "main")
	must(t, w.upstream, "fsck", "--strict")
}

// TestEmpty: an empty repository can be cloned, and the first push makes the branch.
func TestEmpty(t *testing.T) {
	bare := filepath.Join(t.TempDir(), "empty.git")
	must(t, "/", "init", "--quiet", "--bare", "-b", "main", bare)
	w := newWorld(t, bare)
	dir := w.clone()
	head := write(t, dir, "a.txt", "one\n")
	w.must(dir, "push", "origin", "HEAD:"+string(own))
	if !strings.Contains(w.refs(), head+" "+string(own)) {
		t.Errorf("upstream:\n%s", w.refs())
	}
}

// TestLargePush goes through git's probe and a chunked body, allowed and
// refused: a refused one is read to its end, so that git hears the reason.
func TestLargePush(t *testing.T) {
	w := newWorld(t, "")
	dir := w.clone()
	if err := copyRandom(filepath.Join(dir, "big"), 24<<20); err != nil {
		t.Fatal(err)
	}
	head := write(t, dir, "c.txt", "three\n")
	out, err := w.git(dir, "push", "origin", "HEAD:main")
	if err == nil || !strings.Contains(out, "writing refs/heads/main is refused") {
		t.Errorf("refused push: %v\n%s", err, out)
	}
	w.must(dir, "push", "origin", "HEAD:"+string(own))
	if got := w.mirrorAt(own); got != head {
		t.Errorf("mirror at %s, want %s", got, head)
	}
}

func copyRandom(path string, n int64) error {
	from, err := os.Open("/dev/urandom")
	if err != nil {
		return err
	}
	defer from.Close()
	to, err := os.Create(path)
	if err != nil {
		return err
	}
	defer to.Close()
	_, err = io.CopyN(to, from, n)
	return err
}

// TestHostileObjects: what git's own check refuses never becomes a ref.
func TestHostileObjects(t *testing.T) {
	w := newWorld(t, "")
	dir := w.clone()
	blob := must(t, dir, "hash-object", "-w", "a.txt")
	for _, c := range []struct{ name, entry string }{
		{"a .git folder", ".git"}, {"a .git folder in disguise", ".GIT"}, {"a .git folder for another system", "git~1"}, {"the parent", ".."},
	} {
		t.Run(c.name, func(t *testing.T) {
			cmd := exec.Command("git", "hash-object", "-t", "tree", "-w", "--stdin", "--literally")
			cmd.Dir, cmd.Stdin = dir, strings.NewReader("100644 "+c.entry+"\x00"+unhex(blob))
			tree, err := cmd.Output()
			if err != nil {
				t.Fatal(err)
			}
			commit := must(t, dir, "commit-tree", "-p", "HEAD", "-m", "x", strings.TrimSpace(string(tree)))
			out, err := w.git(dir, "push", "origin", commit+":"+string(own))
			if err == nil || !strings.Contains(out, "remote: cofferdam: git refuses it") || !strings.Contains(out, "fsck error") && !strings.Contains(out, "contains '") {
				t.Errorf("push: %v\n%s", err, out)
			}
		})
	}
	// A branch that is no commit.
	out, err := w.git(dir, "push", "origin", blob+":"+string(own))
	if err == nil {
		t.Errorf("a blob became a branch:\n%s", out)
	}
	if w.mirrorAt(own) != "" || strings.Contains(w.refs(), string(own)) {
		t.Error("refs changed")
	}
	for _, e := range w.record.Events() {
		if e.Kind == cofferdam.EventPush && e.Verdict == "" && e.Outcome != "failed" {
			t.Errorf("outcome on record: %+v", e)
		}
	}
}

func unhex(s string) string {
	var b strings.Builder
	for i := 0; i+1 < len(s); i += 2 {
		var c byte
		fmt.Sscanf(s[i:i+2], "%02x", &c)
		b.WriteByte(c)
	}
	return b.String()
}

// TestManyAtOnce: tasks of one repository push at the same time.
func TestManyAtOnce(t *testing.T) {
	w := newWorld(t, "")
	dirs := make([]string, 4)
	var all sync.WaitGroup
	for i := range dirs {
		dirs[i] = w.clone()
		write(t, dirs[i], fmt.Sprintf("n%d", i), "x\n")
	}
	won := make([]bool, len(dirs))
	for i, dir := range dirs {
		all.Go(func() {
			_, err := w.git(dir, "push", "origin", "HEAD:"+string(own))
			won[i] = err == nil
		})
	}
	all.Wait()
	n := 0
	for _, ok := range won {
		if ok {
			n++
		}
	}
	if n != 1 {
		t.Errorf("%d of %d pushes to one branch won", n, len(dirs))
	}
	if at := w.mirrorAt(own); at == "" || !strings.Contains(w.refs(), at+" "+string(own)) {
		t.Errorf("mirror at %q, upstream:\n%s", at, w.refs())
	}
}

// TestCheckedOut: an upstream with a checkout works, as long as that is of
// another branch than the base.
func TestCheckedOut(t *testing.T) {
	work := t.TempDir()
	must(t, work, "init", "--quiet", "-b", "main")
	base := cofferdam.Commit(write(t, work, "a.txt", "one\n"))
	must(t, work, "checkout", "--quiet", "-b", "side")
	w := newWorld(t, work)
	if got, err := w.gateway.Check(t.Context(), w.repo, secret.Value{}); err != nil || got != "refs/heads/main" {
		t.Fatalf("Check: %q, %v", got, err)
	}
	dir := w.clone()
	head := cofferdam.Commit(write(t, dir, "b.txt", "two\n"))
	w.must(dir, "push", "origin", "HEAD:"+string(own))
	if err := w.gateway.Land(t.Context(), w.repo, "refs/heads/main", base, head); err != nil {
		t.Fatal(err)
	}
	if got := must(t, work, "rev-parse", "main"); got != string(head) {
		t.Errorf("main at %s, want %s", got, head)
	}
}

// TestUmask: a server that hides its files from everybody serves all the same.
func TestUmask(t *testing.T) {
	upstream := newUpstream(t)
	defer syscall.Umask(syscall.Umask(0o077))
	w := newWorld(t, upstream)
	dir := w.clone()
	write(t, dir, "c.txt", "three\n")
	w.must(dir, "push", "origin", "HEAD:"+string(own))
}
