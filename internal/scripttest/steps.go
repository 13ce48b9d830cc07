package scripttest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"cofferdam"
	"cofferdam/sandbox"
	"cofferdam/sandbox/sandboxtest"

	"github.com/rogpeppe/go-internal/testscript"
)

// cmdRepo makes a bare repository NAME.git of the files in DIR, on branch main,
// and registers it.
func cmdRepo(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, neg, len(args) == 2, "repo NAME DIR")
	dir, bare := ts.MkAbs(args[1]), filepath.Join(ts.Getenv("WORK"), args[0]+".git")
	for _, c := range [][]string{
		{"git", "-C", dir, "init", "-q", "-b", "main"},
		{"git", "-C", dir, "add", "-A"},
		{"git", "-C", dir, "commit", "-q", "-m", "start"},
		{"git", "clone", "-q", "--bare", dir, bare},
		{"cofferdam", "repo", "add", args[0], bare},
	} {
		ts.Check(ts.Exec(c[0], c[1:]...))
	}
}

// cmdControl is the positive control: it runs FILE by sh in a box of the
// test-only driver, which has no boundary, with the script's OUT and the
// variables given. The same steps must do the damage there.
func cmdControl(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, neg, len(args) >= 1, "control FILE [ENV=VALUE...]")
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	env := append([]string{"OUT=" + ts.Getenv("OUT"), "PATH=" + ts.Getenv("PATH")}, args[1:]...)
	if os.Geteuid() != 0 {
		controlOfUser(ctx, ts, ts.ReadFile(args[0]), env)
		return
	}
	driver, err := sandboxtest.NewFake(filepath.Join(of(ts).state, "control"))
	ts.Check(err)
	box, err := driver.Create(ctx, sandbox.Spec{ID: cofferdam.BoxID(cofferdam.NewID("b")), Tier: sandbox.None, Image: "host"})
	ts.Check(err)
	defer box.Destroy(context.WithoutCancel(ctx))
	var out bytes.Buffer
	r, err := sandbox.Run(ctx, box, sandbox.Command{
		ID: "control", Shell: ts.ReadFile(args[0]), Timeout: 4 * time.Minute, Env: env,
	}, &out, &out)
	ts.Check(err)
	fmt.Fprintf(ts.Stdout(), "%s", out.String())
	ts.Logf("control: exit %d, signal %d, lost %v, timed out %v, exhausted %v: %s\n%s", r.Exit, r.Signal, r.Lost, r.TimedOut, r.Exhausted, r.Reason, out.String())
}

// controlOfUser is a control where the driver without a boundary cannot be, since
// only root may have it: the steps in a folder of the user's. A pid namespace of
// theirs ends what they leave behind, and is no wall: /proc shows that alone.
func controlOfUser(ctx context.Context, ts *testscript.TestScript, steps string, env []string) {
	dir, err := os.MkdirTemp(ts.Getenv("TMPDIR"), "control")
	ts.Check(err)
	cmd := exec.CommandContext(ctx, "unshare", "--user", "--map-root-user", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", steps)
	cmd.Dir, cmd.Env, cmd.WaitDelay = dir, append(env, "HOME="+dir), 10*time.Second
	out, err := cmd.CombinedOutput()
	fmt.Fprintf(ts.Stdout(), "%s", out)
	ts.Logf("control: %v\n%s", err, out)
}

// cmdTrace asks for an event of a task with all of the given properties: kind,
// verdict, rule, resource (a part of it), outcome, reason (a part of it).
func cmdTrace(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) < 2 {
		ts.Fatalf("usage: [!] trace TASK key=value...")
	}
	cmd := exec.Command(ts.Getenv("BIN")+"/cofferdam", "trace", "export", args[0])
	cmd.Env = environ(ts)
	out, err := cmd.Output()
	if err != nil {
		ts.Fatalf("trace export: %v", err)
	}
	n := 0
	for _, l := range bytes.Split(out, []byte("\n")) {
		// A session's events are lines of their own; the host's are entries.
		var entry struct {
			Event cofferdam.Event `json:"event"`
		}
		var e cofferdam.Event
		if json.Unmarshal(l, &e) != nil || json.Unmarshal(l, &entry) != nil {
			continue
		}
		if matches(e, args[1:]) || matches(entry.Event, args[1:]) {
			n++
		}
	}
	if (n == 0) != neg {
		ts.Fatalf("trace of %s: %d events with %s\n%s", args[0], n, strings.Join(args[1:], " "), bytes.TrimSpace(tail(out, 20000)))
	}
	fmt.Fprintf(ts.Stdout(), "%d\n", n)
}

func tail(b []byte, n int) []byte { return b[max(0, len(b)-n):] }

func matches(e cofferdam.Event, want []string) bool {
	return e.Kind != "" && !slices.ContainsFunc(want, func(w string) bool {
		key, value, _ := strings.Cut(w, "=")
		switch key {
		case "kind":
			return e.Kind != value
		case "verdict":
			return string(e.Verdict) != value
		case "rule":
			return e.Rule != value
		case "outcome":
			return e.Outcome != value
		case "resource":
			return !strings.Contains(e.Resource, value)
		case "reason":
			return !strings.Contains(e.Reason, value)
		}
		return e.Fields[key] != value
	})
}

// cmdCut writes FROM to TO without some of its lines: first, all or the last N.
func cmdCut(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, neg, len(args) >= 3, "cut FROM TO first|all|last N")
	lines := strings.SplitAfter(strings.TrimRight(ts.ReadFile(args[0]), "\n")+"\n", "\n")
	lines = lines[:len(lines)-1]
	switch args[2] {
	case "first":
		lines = lines[1:]
	case "all":
		lines = nil
	case "last":
		n, err := strconv.Atoi(args[3])
		ts.Check(err)
		lines = lines[:max(0, len(lines)-n)]
	default:
		ts.Fatalf("cut what? %s", args[2])
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[1]), []byte(strings.Join(lines, "")), 0o644))
}
