package scripttest

import (
	"context"
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"cofferdam/agent/rehearsal"
	"cofferdam/sandbox/sandboxtest"
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

// TestKeptTaskAsUser: on the server of an ordinary user a box of tier gvisor, whose
// kept workspace is a folder that is watched, goes to disk while its agent waits for
// a person, and comes back; and what a failed attempt left in its workspace is
// exported, though the workspace has no room for what that writes.
func TestKeptTaskAsUser(t *testing.T) {
	bin, home := openPrograms(t), sandboxtest.OpenFolder(t)
	shop, program := filepath.Join(home, "shop.git"), filepath.Join(bin, "cofferdam")
	prepare := `set -e; git init -q -b main "$1.work"; cd "$1.work"; echo 1 >n; git add n
		git -c user.name=p -c user.email=p@example.com commit -qm one; git clone -q --bare "$1.work" "$1"; chown -R "$2" "$3"`
	if out, err := exec.Command("sh", "-c", prepare, "sh", shop, fmt.Sprint(sandboxtest.UserID), home).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	run := func(args ...string) (string, error) {
		cmd := sandboxtest.AsUser(t, args...)
		cmd.Env, cmd.Stdin = userEnv(home), strings.NewReader("canary-key-of-the-provider\n")
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	said := func(args ...string) string {
		t.Helper()
		out, err := run(args...)
		if err != nil {
			t.Fatalf("%q: %v\n%s", args, err, out)
		}
		return out
	}
	until := func(what, want string, args ...string) {
		t.Helper()
		out := ""
		for deadline := time.Now().Add(5 * time.Minute); !strings.Contains(out, want); time.Sleep(200 * time.Millisecond) {
			if out, _ = run(args...); time.Now().After(deadline) {
				t.Fatalf("never %s:\n%.4000s", what, out)
			}
		}
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	script, err := rehearsal.Parse(strings.NewReader(asks))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = rehearsal.Serve(ctx, l, script) // the task fails if it does
	}()
	t.Cleanup(func() { cancel(); <-served })

	server := sandboxtest.AsUser(t, program, "serve", "--listen", "off", "--debug-idle", "2s")
	server.Env = userEnv(home)
	p := &process{cmd: server, log: &syncBuffer{}, done: make(chan struct{})}
	server.Stdout, server.Stderr, server.WaitDelay = p.log, p.log, time.Second
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = server.Wait() // how it ended is in its log
		close(p.done)
	}()
	state := filepath.Join(home, ".local", "state", "cofferdam")
	t.Cleanup(func() {
		p.end(syscall.SIGTERM)
		endKeeper(filepath.Join(state, "keeper"))
		if t.Failed() {
			t.Logf("server:\n%s", p.log)
		}
	})
	if err := p.ready(filepath.Join(state, "run", "cofferdam.sock")); err != nil {
		t.Fatal(err)
	}
	said(program, "repo", "add", "shop", shop)
	said(program, "model", "add", "scripted", "--url", "http://"+l.Addr().String(), "--rehearsal")

	said(program, "task", "create", "one question", "--ask", "--keep", "true")
	until("on disk", "session.suspended", program, "trace", "export", "t-1")
	until("on disk", "its memory is on disk", program, "task", "view", "t-1")
	said(program, "task", "send", "t-1", "tabs-it-is")
	if out, err := run(program, "task", "wait", "t-1", "--timeout", "5m"); err != nil {
		t.Fatalf("%v: %s\n%s", err, out, said(program, "task", "view", "t-1"))
	}
	if got := said("/usr/bin/git", "-C", shop, "show", "cofferdam/t-1-1:answer"); got != "tabs, still there\n" {
		t.Errorf("it came back with %q", got)
	}
	trace := said(program, "trace", "export", "t-1")
	for _, want := range []string{"session.resumed", "workspace=watched", "limits=watched"} {
		if !strings.Contains(trace, want) {
			t.Errorf("the trace does not say %s", want)
		}
	}

	// 40 of 64 MiB are in no commit: what an export makes of them has no room beside them.
	out, err := run(program, "task", "run", "fails in the middle", "--agent", "command", "--disk", "64MiB", "--keep", "true", "--command",
		"head -c 40M /dev/urandom >big; echo half >half; sync; exit 3")
	if err == nil {
		t.Fatalf("it did not fail: %s", out)
	}
	bundle := filepath.Join(home, "t-2.bundle")
	said(program, "workspace", "export", "t-2", "-o", bundle)
	said("/usr/bin/git", "-C", shop, "fetch", "-q", bundle, "refs/heads/*:refs/heads/from-t-2/*")
	if got := said("/usr/bin/git", "-C", shop, "show", "from-t-2/uncommitted:half"); got != "half\n" {
		t.Errorf("exported: %q", got)
	}
	if got := said("/usr/bin/git", "-C", shop, "cat-file", "-s", "from-t-2/uncommitted:big"); got != "41943040\n" {
		t.Errorf("exported: %q bytes", got)
	}
	if list := said(program, "workspace", "list"); !strings.Contains(list, "t-2") {
		t.Errorf("it is not kept: %s", list)
	}
}
