package engine

import (
	"context"
	"crypto/tls"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"

	"cofferdam"
)

// program builds cofferdam-engine with the flags of the Makefile, so that after
// "make build" there is nothing left to do.
func program(t *testing.T) string {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(root, "bin", "cofferdam-engine")
	cmd := exec.Command("go", "build", "-ldflags", "-s -w", "-o", out, ".")
	cmd.Dir = filepath.Join(root, "cmd", "cofferdam-engine")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if said, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("building the engine: %v\n%s", err, said)
	}
	return out
}

func patience(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// TestEngine walks one engine through its life: it serves, lets in nobody else,
// keeps its folder to itself, comes back after kill -9 with what it knew, and is
// gone after Close.
func TestEngine(t *testing.T) {
	ctx := patience(t)
	dir := filepath.Join(t.TempDir(), "engine")
	again := make(chan bool, 1)
	o := Options{Program: program(t), Dir: dir, Restarted: func(_ context.Context, fresh bool) { again <- fresh }}
	e, err := Start(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	closed := false
	defer func() {
		if !closed {
			e.Close()
		}
	}()
	c, err := e.Dial(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	const id = "test/kept"
	start := client.StartWorkflowOptions{ID: id, TaskQueue: "nobody", WorkflowIDConflictPolicy: enumspb.WORKFLOW_ID_CONFLICT_POLICY_FAIL, WorkflowExecutionErrorWhenAlreadyStarted: true}
	if _, err := c.ExecuteWorkflow(ctx, start, "nothing"); err != nil {
		t.Fatal(err)
	}

	t.Run("closed to strangers", func(t *testing.T) { testStrangers(t, e) })
	t.Run("one per folder", func(t *testing.T) {
		if _, err := Start(ctx, Options{Program: o.Program, Dir: dir}); cofferdam.KindOf(err) != cofferdam.Conflict {
			t.Fatalf("a second engine on the folder: %v, want a conflict", err)
		}
	})
	t.Run("retention", func(t *testing.T) {
		d, err := c.WorkflowService().DescribeNamespace(ctx, &workflowservice.DescribeNamespaceRequest{Namespace: Namespace})
		if err != nil {
			t.Fatal(err)
		}
		if got, want := d.Config.WorkflowExecutionRetentionTtl.AsDuration(), 14*24*time.Hour; got != want {
			t.Fatalf("namespace keeps ended workflows %s, want %s", got, want)
		}
	})
	old := e.PID()
	if err := syscall.Kill(old, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if fresh := <-again; fresh {
		t.Fatal("a kill made the engine forget")
	}
	if e.PID() == old {
		t.Fatal("the killed engine was not replaced")
	}
	if _, err := c.ExecuteWorkflow(ctx, start, "nothing"); err == nil || !strings.Contains(err.Error(), "already") {
		t.Fatalf("starting the kept workflow after kill -9: %v, want already started", err)
	}
	pid := e.PID()
	closed = true
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
		t.Fatalf("after Close the engine's process still answers: %v", err)
	}
}

// testStrangers tries to come in without our certificate, on every port the
// engine listens on.
func testStrangers(t *testing.T, e *Engine) {
	ports := listening(t, e.PID())
	if len(ports) < 4 {
		t.Fatalf("found ports %v, want those of all services", ports)
	}
	foreign, err := newKeyring()
	if err != nil {
		t.Fatal(err)
	}
	other := foreign.client.Clone()
	for name, cfg := range map[string]*tls.Config{
		"no certificate":      {},
		"foreign certificate": {Certificates: other.Certificates},
	} {
		cfg.InsecureSkipVerify, cfg.NextProtos = true, []string{"h2"} // #nosec: the attacker trusts anybody
		for _, address := range ports {
			if err := speak(address, cfg); err == nil {
				t.Errorf("%s: %s let a stranger in", name, address)
			}
		}
	}
	own := e.keys.client.Clone()
	own.NextProtos = []string{"h2"}
	for _, address := range ports { // the control: with our certificate all answer
		if err := speak(address, own); err != nil {
			t.Errorf("%s does not answer its own people: %v", address, err)
		}
	}
}

// speak opens HTTP/2 and waits for the first byte: with TLS 1.3 a refused
// client certificate shows only when reading.
func speak(address string, cfg *tls.Config) error {
	d := tls.Dialer{Config: cfg}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	conn, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(10 * time.Second))
	if _, err := conn.Write([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00")); err != nil {
		return err
	}
	_, err = conn.Read(make([]byte, 1))
	return err
}

// listening returns the TCP addresses that a process listens on, all of which
// must be loopback.
func listening(t *testing.T, pid int) []string {
	t.Helper()
	inodes := map[string]bool{}
	fds, err := os.ReadDir("/proc/" + strconv.Itoa(pid) + "/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range fds {
		to, _ := os.Readlink("/proc/" + strconv.Itoa(pid) + "/fd/" + fd.Name())
		if in, ok := strings.CutPrefix(to, "socket:["); ok {
			inodes[strings.TrimSuffix(in, "]")] = true
		}
	}
	var found []string
	for _, table := range []string{"tcp", "tcp6"} {
		text, err := os.ReadFile("/proc/net/" + table)
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range strings.Split(string(text), "\n")[1:] {
			f := strings.Fields(line)
			if len(f) < 10 || f[3] != "0A" || !inodes[f[9]] {
				continue
			}
			host, port, _ := strings.Cut(f[1], ":")
			if table != "tcp" || host != "0100007F" {
				t.Errorf("the engine listens on %s (%s), not on loopback", f[1], table)
			}
			n, err := strconv.ParseInt(port, 16, 32)
			if err != nil {
				t.Fatal(err)
			}
			found = append(found, "127.0.0.1:"+strconv.Itoa(int(n)))
		}
	}
	return found
}

func TestStartRefusals(t *testing.T) {
	ctx := patience(t)
	for name, o := range map[string]Options{
		"missing program":      {Program: "/nowhere/cofferdam-engine", Dir: t.TempDir()},
		"program that is none": {Program: "/bin/true", Dir: t.TempDir()},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := Start(ctx, o); cofferdam.KindOf(err) != cofferdam.Unavailable || strings.Contains(err.Error(), "nil") {
				t.Fatalf("Start: %v, want unavailable with a reason", err)
			}
		})
	}
	if _, err := Start(ctx, Options{Program: "/bin/true", Dir: "relative"}); err == nil {
		t.Fatal("a relative folder was taken")
	}
}

// TestBrokenFile puts garbage where the engine's file is: the engine forgets it,
// because nothing in it is the truth.
func TestBrokenFile(t *testing.T) {
	ctx := patience(t)
	dir := filepath.Join(t.TempDir(), "engine")
	o := Options{Program: program(t), Dir: dir}
	e, err := Start(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	e.Close()
	files, err := filepath.Glob(filepath.Join(dir, "temporal-*.db"))
	if err != nil || len(files) != 1 {
		t.Fatalf("files of the engine: %v, %v", files, err)
	}
	if err := os.WriteFile(files[0], []byte(strings.Repeat("garbage ", 4096)), 0o600); err != nil {
		t.Fatal(err)
	}
	e, err = Start(ctx, o)
	if err != nil {
		t.Fatalf("starting on a broken file: %v", err)
	}
	defer e.Close()
	c, err := e.Dial(ctx)
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
}
