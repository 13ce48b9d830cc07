package scripttest

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"cofferdam"
	"cofferdam/client"
	"cofferdam/proof"
)

// crashIn bounds one task with its crash and its way back.
const crashIn = 5 * time.Minute

// TestCrash kills −9 the server, then the engine, before and after every
// activity of a task, and in the middle of the agent's run. Each time the work
// goes on, no output is lost, the task ends as it would have, and the base
// branch moves exactly once.
func TestCrash(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: server and keeper run as root in this version")
	}
	t.Parallel()
	c := newCrasher(t)
	var points []string
	for _, who := range []string{"", "engine:"} {
		for _, step := range []string{"prepare", "work", "verify", "land"} {
			points = append(points, who+step+":before", who+step+":after")
		}
	}
	points = append(points, "land:moved")
	for _, p := range points {
		t.Run(p, func(t *testing.T) { c.play(t, p) })
	}
	t.Run("agent runs", func(t *testing.T) { c.play(t, "") })
}

// crasher is one state folder with one keeper, on which servers come and go.
type crasher struct {
	b      *bench
	bin    string
	dir    string
	person *client.Client
}

func newCrasher(t *testing.T) *crasher {
	bin, err := programs()
	if err != nil {
		t.Fatal(err)
	}
	state, err := os.MkdirTemp("", "cfc")
	if err != nil {
		t.Fatal(err)
	}
	c := &crasher{b: &bench{state: state, labs: map[string]*lab{}}, bin: bin, dir: t.TempDir()}
	t.Cleanup(func() {
		c.b.stopAll()
		os.RemoveAll(state)
	})
	token := filepath.Join(c.dir, "token")
	text := strings.Repeat("crash-test-token-", 3)
	if err := os.WriteFile(token, []byte(text+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c.b.flags = []string{"--debug-person", "crash", "--debug-person-token", token}
	c.person, err = client.New(client.Options{Server: "unix:" + filepath.Join(state, "run", "cofferdam.sock"), Token: text})
	if err != nil {
		t.Fatal(err)
	}
	c.git(t, "init", "-q", "-b", "main", "shop")
	c.git(t, "-C", "shop", "commit", "-q", "--allow-empty", "-m", "start")
	c.git(t, "clone", "-q", "--bare", "shop", "shop.git")
	return c
}

func (c *crasher) git(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir = c.dir
	cmd.Env = append(os.Environ(), "GIT_AUTHOR_NAME=P", "GIT_AUTHOR_EMAIL=p@example.test", "GIT_COMMITTER_NAME=P", "GIT_COMMITTER_EMAIL=p@example.test")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("git %v: %v\n%s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

func (c *crasher) serve(t *testing.T, point string) {
	t.Helper()
	env := append(os.Environ(), "HOME="+c.dir)
	if point != "" {
		env = append(env, "COFFERDAM_DEBUG_CRASH="+point)
	}
	if err := c.b.serve(c.bin, env); err != nil {
		t.Fatal(err)
	}
}

// lines is how much the agent says, one each tenth of a second.
const lines = 20

// play runs one task that is hit at a point; at "" the server is killed while
// the agent talks, and stays away for a second.
func (c *crasher) play(t *testing.T, point string) {
	ctx, cancel := context.WithTimeout(context.Background(), crashIn)
	defer cancel()
	os.Remove(filepath.Join(c.b.state, "crashed"))
	c.serve(t, point)
	first := c.b.server
	defer func() { c.b.server.end(syscall.SIGTERM) }() // the last of them
	if _, err := c.person.AddRepo(ctx, cofferdam.RepoRequest{Name: "shop", Upstream: filepath.Join(c.dir, "shop.git")}); err != nil && cofferdam.KindOf(err) != cofferdam.Conflict {
		t.Fatal(err)
	}
	before := c.git(t, "-C", "shop.git", "rev-parse", "main")
	name := fmt.Sprintf("f%d", time.Now().UnixNano())
	task, err := c.person.CreateTask(ctx, cofferdam.TaskRequest{
		Text: "say and write", Agent: "command", Repo: "shop",
		Command: fmt.Sprintf("for i in $(seq %d); do echo line $i; sleep 0.1; done; echo x > %s", lines, name),
		Checks:  []cofferdam.Check{{Command: "test -f " + name, MustFailFirst: true}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if point == "" {
		c.interrupt(t, ctx, task)
	}
	task = c.until(t, ctx, task, cofferdam.InReview)
	change, err := c.person.Merge(ctx, task.Short())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.person.ApproveMerge(ctx, task.Short(), cofferdam.ApproveRequest{Commit: task.Head, Policy: change.Landing.Policy}); err != nil {
		t.Fatal(err)
	}
	// The answer may be lost with the server; the wish is in the store.
	_, err = c.person.LandMerge(ctx, task.Short(), task.Head)
	if err != nil && !strings.Contains(point, "land") {
		t.Fatal(err)
	}
	task = c.until(t, ctx, task, cofferdam.Done)
	if point != "" && !strings.HasPrefix(point, "engine:") { // which may come right after the state is told
		select {
		case <-first.done:
		case <-ctx.Done():
		}
		task = c.until(t, ctx, task, cofferdam.Done)
	}
	if _, err := os.Stat(filepath.Join(c.b.state, "crashed")); point != "" && err != nil {
		t.Errorf("nothing was killed at %s", point)
	}
	if n := c.git(t, "-C", "shop.git", "rev-list", "--count", before+"..main"); n != "1" || task.Landed != task.Head {
		t.Errorf("main moved by %s commits; the task says it landed %s of %s", n, task.Landed, task.Head)
	}
	c.evidence(t, ctx, task)
}

// interrupt kills the server once the agent has begun to talk.
func (c *crasher) interrupt(t *testing.T, ctx context.Context, task cofferdam.Task) {
	for !strings.Contains(c.output(ctx, task), "line 3\n") {
		if ctx.Err() != nil {
			t.Fatal("the agent never began")
		}
		time.Sleep(20 * time.Millisecond)
	}
	c.b.server.end(syscall.SIGKILL)
	time.Sleep(time.Second) // long enough for ten lines that nobody is there to take
	c.serve(t, "")
}

// until waits for a state, and starts a new server whenever there is none.
func (c *crasher) until(t *testing.T, ctx context.Context, task cofferdam.Task, want cofferdam.TaskState) cofferdam.Task {
	t.Helper()
	for ctx.Err() == nil {
		select {
		case <-c.b.server.done:
			c.serve(t, "")
		default:
		}
		now, err := c.person.Task(ctx, task.Short())
		if err == nil && now.State == want {
			return now
		}
		if err == nil && now.State.Ended() {
			t.Fatalf("the task is %q (%s: %s), not %q\n%s", now.State, now.Reason, now.Comment, want, tail([]byte(c.b.serverLog()), 4000))
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Fatalf("the task is not %q in time\n%s", want, tail([]byte(c.b.serverLog()), 4000))
	return task
}

// output is what the record holds of the agent's standard output.
func (c *crasher) output(ctx context.Context, task cofferdam.Task) string {
	list, err := c.person.Sessions(ctx, task.Short(), 0)
	if err != nil {
		return ""
	}
	var out bytes.Buffer
	for _, s := range list {
		if s.Phase != "work" {
			continue
		}
		events, err := c.person.Events(ctx, string(s.ID), 0, 0)
		if err != nil {
			return ""
		}
		for _, e := range events {
			if e.Kind == cofferdam.EventExecOutput && e.Resource == "agent" {
				out.WriteString(e.Fields["text"])
			}
		}
	}
	return out.String()
}

// evidence checks that nothing was lost or doubled, and that the record is whole.
func (c *crasher) evidence(t *testing.T, ctx context.Context, task cofferdam.Task) {
	var want strings.Builder
	for i := range lines {
		fmt.Fprintf(&want, "line %d\n", i+1)
	}
	if got := c.output(ctx, task); got != want.String() {
		t.Errorf("the record holds of the agent's output:\n%s", got)
	}
	var export bytes.Buffer
	if err := c.person.Export(ctx, task.Short(), &export); err != nil {
		t.Fatal(err)
	}
	key, err := c.person.Key(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := proof.Verify(&export, key); err != nil {
		t.Errorf("the evidence does not verify: %v", err)
	}
}

func (b *bench) serverLog() string {
	if b.server == nil {
		return ""
	}
	return b.server.log.String()
}
