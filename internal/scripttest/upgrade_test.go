package scripttest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"cofferdam"
	"cofferdam/sandbox/keeper"
)

// TestTaskIsUpgradedUnder installs another release of all programs while an agent is at
// work. The server is killed and the new one started: the task ends as it would
// have, with every byte of the agent's output and its commit, and the keeper of
// before ends with its last box.
func TestTaskIsUpgradedUnder(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: server and keeper run as root here")
	}
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), 2*crashIn)
	defer cancel()
	c := newCrasher(t)
	next := otherRelease(t, c.bin)
	c.serve(t, "")
	defer func() { c.b.server.end(syscall.SIGTERM) }()
	if _, err := c.person.AddRepo(ctx, cofferdam.RepoRequest{Name: "shop", Upstream: filepath.Join(c.dir, "shop.git")}); err != nil {
		t.Fatal(err)
	}
	const said = 100 // lines in half a minute, unless the box stands still
	task, err := c.person.CreateTask(ctx, cofferdam.TaskRequest{
		Text: "say and write", Agent: "command", Repo: "shop",
		Command: fmt.Sprintf("for i in $(seq %d); do seq $i; sleep 0.3; done; echo x > made", said),
		Checks:  []cofferdam.Check{{Command: "test -f made", MustFailFirst: true}},
	})
	if err != nil {
		t.Fatal(err)
	}
	for !strings.Contains(c.output(ctx, task), "\n2\n") {
		if ctx.Err() != nil {
			now, err := c.person.Task(context.WithoutCancel(ctx), task.Short())
			t.Fatalf("the agent never began: the task is %q (%s: %s), %v\n%s", now.State, now.Reason, now.Comment, err, tail([]byte(c.b.serverLog()), 4000))
		}
		time.Sleep(20 * time.Millisecond)
	}
	// However busy this machine is, the agent is at work all the while: its box
	// stands still until this test says so.
	resume := c.hold(t)
	defer resume()
	old := c.keepers(t, ctx, 1)[0]

	c.b.server.end(syscall.SIGKILL)
	c.bin = next
	c.serve(t, "")
	slots := keeper.Slots(filepath.Join(c.b.state, "run", "keeper.sock"), filepath.Join(c.b.state, "keeper"))
	t.Cleanup(func() { endKeeper(slots[1].State) })
	both := c.keepers(t, ctx, 2)
	if !both[0].Draining || both[0].Process != old.Process || both[1].Draining || both[1].Build == old.Build {
		t.Fatalf("keepers after the upgrade: %+v, before: %+v", both, old)
	}
	if out := c.cofferdam(t, "status"); strings.Count(out, "build ") != 3 || !strings.Contains(out, "it is being replaced") {
		t.Errorf("status:\n%s", out)
	}
	if out := c.cofferdam(t, "doctor", "--state", c.b.state, "--listen", "off"); !strings.Contains(out, "keeper-1") || !strings.Contains(out, both[1].Build) || !strings.Contains(out, "it is being replaced") {
		t.Errorf("doctor:\n%s", out)
	}
	// Once more in between, without a word.
	c.b.server.end(syscall.SIGKILL)
	c.serve(t, "")
	if again := c.keepers(t, ctx, 2); again[1].Process != both[1].Process {
		t.Errorf("another start of the server made another keeper: %+v", again)
	}

	resume()
	task = c.until(t, ctx, task, cofferdam.InReview)
	var want strings.Builder
	for i := range said {
		for n := range i + 1 {
			fmt.Fprintln(&want, n+1)
		}
	}
	if got := c.output(ctx, task); got != want.String() {
		at := 0
		for at < min(len(got), want.Len()) && got[at] == want.String()[at] {
			at++
		}
		t.Errorf("the record holds %d bytes of the agent's output, not %d; from byte %d on: %.200q, not %.200q", len(got), want.Len(), at, got[at:], want.String()[at:])
	}
	left := c.keepers(t, ctx, 1)
	if left[0].Process != both[1].Process || left[0].Draining {
		t.Errorf("keepers at the end: %+v", left)
	}
	select {
	case <-c.b.keeper.done:
	case <-ctx.Done():
		t.Error("the keeper of before does not end")
	}
}

// otherRelease is all programs again, of which the keeper has another build.
func otherRelease(t *testing.T, bin string) string {
	t.Helper()
	dir := t.TempDir()
	place(t, bin, dir)
	if err := os.Remove(filepath.Join(dir, keeper.Program)); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("go", "build", "-ldflags", "-s -w -buildid=another-release", "-o", filepath.Join(dir, keeper.Program), "./cmd/"+keeper.Program)
	cmd.Dir = Root
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return dir
}

// hold stops the kernel of every gVisor box, and returns what lets them go on.
func (c *crasher) hold(t *testing.T) (resume func()) {
	t.Helper()
	var held []int
	links, _ := filepath.Glob("/proc/[0-9]*/exe")
	for _, path := range links {
		// A keeper runs the programs of its build from its state folder. What the
		// box's kernel has started for the box's programs is left alone: it would
		// take the signal for theirs.
		exe, err := os.Readlink(path)
		status, err2 := os.ReadFile(filepath.Join(filepath.Dir(path), "stat"))
		pid, err3 := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if err != nil || err2 != nil || err3 != nil || !strings.HasPrefix(exe, c.b.state) {
			continue
		}
		_, rest, _ := strings.Cut(string(status), ") ")
		if f := strings.Fields(rest); len(f) < 2 || !is(f[1], keeper.Program) {
			continue
		}
		if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		held = append(held, pid)
	}
	if len(held) == 0 {
		t.Fatal("no process of a box is seen")
	}
	return sync.OnceFunc(func() {
		for _, pid := range held {
			_ = syscall.Kill(pid, syscall.SIGCONT) // it is a box that ends by itself
		}
	})
}

// keepers waits until the server sees n keepers.
func (c *crasher) keepers(t *testing.T, ctx context.Context, n int) []cofferdam.Keeper {
	t.Helper()
	var last []cofferdam.Keeper
	for {
		s, err := c.person.Status(ctx)
		if err == nil && len(s.Keepers) == n {
			return s.Keepers
		}
		if err == nil {
			last = s.Keepers
		}
		if ctx.Err() != nil {
			t.Fatalf("keepers: %+v, %v, not %d\n%s", last, err, n, tail([]byte(c.b.serverLog()), 4000))
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// cofferdam runs the command line; doctor fails where a machine lacks a tier.
func (c *crasher) cofferdam(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.Command(filepath.Join(c.bin, "cofferdam"), args...)
	cmd.Env = append(os.Environ(), "HOME="+c.dir, "COFFERDAM_SERVER=unix:"+filepath.Join(c.b.state, "run", "cofferdam.sock"))
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%v: %v\n%s", args, err, out)
	}
	return string(out)
}
