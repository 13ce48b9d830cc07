package scripttest

import (
	"context"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"cofferdam/agent/rehearsal"
)

// asks is a model whose agent asks a person, and finds with the answer whether what
// it left behind still runs.
const asks = `key canary-key-of-the-provider

asked tabs-it-is
after answered
say It is done.

asked tabs-it-is
bash if kill -0 $(cat job) 2>/dev/null; then echo tabs, still there > answer; else echo tabs, gone > answer; fi; echo answered

asked one question
after noted
say I must know.
| cofferdam: question: tabs or spaces?

asked one question
bash sleep 600 >/dev/null 2>&1 & echo $! > job; echo noted
`

// half is an agent that is ended in the middle: 40 of 64 MiB are in no commit, so that
// what an export makes of them has no room beside them.
const half = "head -c 40M /dev/urandom >big; echo half >half; sync; echo half''way; sleep 600"

// TestKeptTaskAsUser: on the server of an ordinary user a box of tier gvisor, whose
// kept workspace is a folder that is watched, goes to disk while its agent waits for
// a person, and comes back with its network; and what a task that was ended left in
// its workspace is exported, though the workspace has no room for what that writes.
func TestKeptTaskAsUser(t *testing.T) {
	u := newOrdinary(t)
	address := u.rehearse(asks)
	shop := u.upstream("shop", "")
	u.serve("--debug-idle", "2s")
	u.cofferdam(true, "repo", "add", "shop", shop)
	u.cofferdam(true, "model", "add", "scripted", "--url", "http://"+address, "--rehearsal", "--key-file", u.write("key", "canary-key-of-the-provider\n"))

	u.cofferdam(true, "task", "create", "one question", "--ask", "--keep", "true")
	u.until("its memory is on disk", "task", "view", "t-1")
	u.cofferdam(true, "task", "send", "t-1", "tabs-it-is")
	if out, err := u.command(filepath.Join(u.bin, "cofferdam"), "task", "wait", "t-1", "--timeout", "5m").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s\n%s\n%s", err, out, u.cofferdam(true, "task", "view", "t-1"), u.cofferdam(true, "trace", "export", "t-1"))
	}
	u.wantFile(shop, "cofferdam/t-1-1:answer", "tabs, still there\n")
	trace := u.cofferdam(true, "trace", "export", "t-1")
	for _, want := range []string{"session.suspended", "session.resumed", `"mode":"warm"`, "workspace=watched", "limits=watched"} {
		if !strings.Contains(trace, want) {
			t.Errorf("the trace does not say %s", want)
		}
	}

	u.cofferdam(true, "task", "create", "ended in the middle", "--agent", "command", "--disk", "64MiB", "--keep", "true", "--command", half)
	u.until("halfway", "trace", "export", "t-2")
	u.cofferdam(true, "task", "cancel", "t-2")
	u.until(`"state": "kept"`, "workspace", "view", "t-2", "--json")
	bundle := filepath.Join(u.home, "t-2.bundle")
	u.cofferdam(true, "workspace", "export", "t-2", "-o", bundle)
	if out, err := u.command("/usr/bin/git", "-C", shop, "fetch", "-q", bundle, "refs/heads/*:refs/heads/from-t-2/*").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	u.wantFile(shop, "from-t-2/uncommitted:half", "half\n")
	if out, err := u.command("/usr/bin/git", "-C", shop, "cat-file", "-s", "from-t-2/uncommitted:big").CombinedOutput(); err != nil || string(out) != "41943040\n" {
		t.Errorf("exported: %q bytes, %v", out, err)
	}
}

// rehearse starts a scripted model beside the test and returns where it is.
func (u *ordinary) rehearse(text string) (address string) {
	u.t.Helper()
	script, err := rehearsal.Parse(strings.NewReader(text))
	if err != nil {
		u.t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		u.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = rehearsal.Serve(ctx, l, script) // the task fails if it does
	}()
	u.t.Cleanup(func() { cancel(); <-served })
	return l.Addr().String()
}

// until asks until the answer has want in it.
func (u *ordinary) until(want string, args ...string) {
	u.t.Helper()
	for end := time.Now().Add(5 * time.Minute); ; time.Sleep(100 * time.Millisecond) {
		out, _ := u.command(filepath.Join(u.bin, "cofferdam"), args...).CombinedOutput() // there may be nothing yet
		if strings.Contains(string(out), want) {
			return
		}
		if time.Now().After(end) {
			u.t.Fatalf("%q never say %q:\n%.4000s\n%s", args, want, out, u.server.log)
		}
	}
}

// wantFile wants a file of a repository to be text.
func (u *ordinary) wantFile(repo, name, text string) {
	u.t.Helper()
	out, err := u.command("/usr/bin/git", "-C", repo, "show", name).CombinedOutput()
	if err != nil || string(out) != text {
		u.t.Errorf("%s is %q, %v; want %q", name, out, err, text)
	}
}
