package guest_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"cofferdam"
	"cofferdam/sandbox"
	"cofferdam/sandbox/guest"
	"cofferdam/sandbox/sandboxtest"
)

// programs holds cofferdam-init, which the first test that needs it builds.
var programs string

var initProgram = sync.OnceValues(func() (string, error) {
	path := filepath.Join(programs, "cofferdam-init")
	return path, sandboxtest.Build(programs, "cofferdam-init")
})

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "guest")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	programs = dir
	return m.Run()
}

// box is a pid namespace with a real cofferdam-init as its pid 1.
type box struct {
	*guest.Host
	work     string // where commands start: writable for them
	journals string
	init     *exec.Cmd
}

func newBox(t *testing.T, o guest.Options) *box {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root: commands run under a user of their own in a pid namespace")
	}
	program, err := initProgram()
	if err != nil {
		t.Fatal(err)
	}
	toInit, w := pipe(t)
	r, fromInit := pipe(t)
	b := &box{work: filepath.Join(t.TempDir(), "work"), journals: filepath.Join(t.TempDir(), "journals")}
	openPath(t, b.work)
	if err := os.Mkdir(b.work, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(b.work, 0o777); err != nil {
		t.Fatal(err)
	}
	b.init = exec.Command("unshare", "--pid", "--fork", "--kill-child", "--mount-proc", program)
	b.init.ExtraFiles = []*os.File{toInit, fromInit}
	b.init.Stderr = os.Stderr
	if err := b.init.Start(); err != nil {
		t.Fatal(err)
	}
	toInit.Close()
	fromInit.Close()
	o.UID, o.GID, o.Dir = sandbox.UserID, sandbox.UserID, b.work
	h, err := guest.NewHost(w, r, b.journals, o)
	if err != nil {
		t.Fatal(err)
	}
	b.Host = h
	t.Cleanup(func() {
		if err := h.Close("test over"); err != nil {
			t.Error(err)
		}
		b.init.Wait()
	})
	if err := h.Ready(testContext(t)); err != nil {
		t.Fatal(err)
	}
	return b
}

// openPath lets the commands' user walk to path, which t.TempDir forbids.
func openPath(t *testing.T, path string) {
	t.Helper()
	for dir := filepath.Dir(path); dir != os.TempDir() && dir != "/"; dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
}

func pipe(t *testing.T) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	return r, w
}

// testContext bounds a test that would otherwise hang.
func testContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// do runs a command to its end.
func (b *box) do(t *testing.T, c sandbox.Command) (r sandbox.Result, stdout, stderr string) {
	t.Helper()
	if c.ID == "" {
		c.ID = cofferdam.ExecID(cofferdam.NewID("x"))
	}
	if err := b.Start(testContext(t), c); err != nil {
		t.Fatalf("start: %v", err)
	}
	return b.finish(t, c.ID)
}

func (b *box) finish(t *testing.T, id cofferdam.ExecID) (r sandbox.Result, stdout, stderr string) {
	t.Helper()
	var out collector
	r, err := b.Attach(testContext(t), id, sandbox.Offsets{}, out.sink)
	if err != nil {
		t.Fatalf("attach: %v", err)
	}
	if int64(out[1].Len()) != r.Stdout || int64(out[2].Len()) != r.Stderr {
		t.Errorf("got %d and %d bytes, the result says %d and %d", out[1].Len(), out[2].Len(), r.Stdout, r.Stderr)
	}
	return r, out[1].String(), out[2].String()
}

// collector is a sink that checks offsets.
type collector [3]bytes.Buffer

func (c *collector) sink(s sandbox.Stream, off int64, p []byte) error {
	if off != int64(c[s].Len()) {
		return fmt.Errorf("stream %d: chunk at %d after %d bytes", s, off, c[s].Len())
	}
	c[s].Write(p)
	return nil
}

// longSleep is for how long a process of one test sleeps, and of no other on this machine.
func longSleep() string { return fmt.Sprintf("4242.%d%d", os.Getpid(), time.Now().UnixNano()) }

// alive says whether some process of this machine has token in its arguments.
func alive(t *testing.T, token string) bool {
	t.Helper()
	names, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		b, err := os.ReadFile(name)
		if err == nil && bytes.Contains(b, []byte(token)) && name != fmt.Sprintf("/proc/%d/cmdline", os.Getpid()) {
			return true
		}
	}
	return false
}
