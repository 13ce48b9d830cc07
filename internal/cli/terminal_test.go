package cli

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"cofferdam"
	"cofferdam/internal/service"
)

// openTerminal returns both ends of a new pseudo terminal.
func openTerminal(t *testing.T) (near, far *os.File) {
	t.Helper()
	near, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("needs pseudo terminals: %v", err)
	}
	n, err := unix.IoctlGetInt(int(near.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(near.Fd()), unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		far, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { near.Close(); far.Close() })
	return near, far
}

// atTerminal runs a command at a real pseudo terminal and types answer at its prompt.
func (b *bench) atTerminal(answer string, args ...string) (code int, shown string) {
	b.t.Helper()
	near, far := openTerminal(b.t)
	sys := b.system(far, far)
	sys.In, sys.Terminal = far, ThisSystem().Terminal
	var seen bytes.Buffer
	done := make(chan struct{})
	go func() {
		defer close(done)
		buf := make([]byte, 4096)
		typed := false
		for {
			n, err := near.Read(buf)
			seen.Write(buf[:n])
			if !typed && strings.HasSuffix(seen.String(), "digits of it: ") {
				typed = true
				io.WriteString(near, answer)
			}
			if typed && strings.HasSuffix(seen.String(), "Password: ") {
				seen.WriteString("\n")
				io.WriteString(near, b.password)
			}
			if err != nil {
				return
			}
		}
	}()
	ctx, cancel := context.WithTimeout(b.t.Context(), time.Minute)
	defer cancel()
	code = Main(ctx, sys, args)
	far.Close()
	<-done
	return code, strings.ReplaceAll(seen.String(), "\r\n", "\n")
}

const digest = "0123456789abcdef0123456789abcdef01234567"

func reviewed(t *testing.T) (*bench, cofferdam.Task) {
	b := newBench(t)
	task := b.shop()
	b.m.Set(task.ID, func(t *cofferdam.Task) { t.State, t.Head = cofferdam.InReview, digest })
	b.m.Change = cofferdam.Change{
		Commits: []string{"fix it"}, Files: []cofferdam.FileChange{{Path: "shop.py", Status: "M", Added: 1, Removed: 1}}, Diff: "-a\n+b\n",
		Proof:    &cofferdam.CheckReport{Commit: digest, RegressionOnly: true, Held: true, Checks: []cofferdam.CheckResult{{Check: cofferdam.Check{Command: "true"}, Held: true}}},
		Refusals: []cofferdam.Event{{Kind: "git.push", Resource: "refs/heads/main", Rule: "one-branch"}},
	}
	return b, task
}

func TestApproveAtTerminal(t *testing.T) {
	b, _ := reviewed(t)
	code, shown := b.atTerminal(digest[:8]+"\n", "merge", "approve", "t-1")
	if code != 0 || !strings.Contains(shown, "approved 0123456789ab of t-1") {
		t.Fatalf("exit %d\n%s", code, shown)
	}
	for _, part := range []string{digest, "shop.py", "refs/heads/main", "one-branch", "regression only", "exit 0 on the base"} {
		if !strings.Contains(shown, part) {
			t.Errorf("%q was not shown before the question:\n%s", part, shown)
		}
	}
	if out := b.good("merge", "land", "t-1"); out != "t-1\n" {
		t.Errorf("land: %q", out)
	}
}

func TestApproveNeedsAPerson(t *testing.T) {
	b, _ := reviewed(t)
	for name, answer := range map[string]string{"wrong": "01234568\n", "short": "0123456\n", "yes": "y\n", "empty": "\n", "upper case": "01234567 x\n", "end of file": "\x04"} {
		if code, shown := b.atTerminal(answer, "merge", "approve", "t-1"); code != 2 || !strings.Contains(shown, "hint: ") {
			t.Errorf("%s: exit %d\n%s", name, code, shown)
		}
	}
	for name, password := range map[string]string{"another password": "another horse battery\n", "none": "\n", "end of file": "\x04"} {
		b.password = password
		if code, shown := b.atTerminal(digest[:8]+"\n", "merge", "approve", "t-1"); code == 0 || code == 130 || !strings.Contains(shown, "hint: ") {
			t.Errorf("%s: exit %d\n%s", name, code, shown)
		}
	}
	for _, args := range [][]string{{"--yes"}, {"--no-input"}, {"--yes", "--json"}} {
		if code, shown := b.atTerminal(digest[:8]+"\n", append([]string{"merge", "approve", "t-1"}, args...)...); code != 9 {
			t.Errorf("%v at a terminal: exit %d\n%s", args, code, shown)
		}
	}
	b.env["COFFERDAM_NO_INPUT"] = "1"
	if code, _ := b.atTerminal(digest[:8]+"\n", "merge", "approve", "t-1"); code != 9 {
		t.Errorf("COFFERDAM_NO_INPUT: exit %d", code)
	}
	delete(b.env, "COFFERDAM_NO_INPUT")
	b.in = strings.NewReader(digest[:8] + "\n")
	if code, _, errs := b.run("merge", "approve", "t-1"); code != 9 || !twoLines(errs) || !strings.Contains(errs, "no terminal") {
		t.Errorf("through a pipe: exit %d %s", code, errs)
	}
	if code, _, _ := b.run("merge", "land", "t-1"); code != 9 {
		t.Errorf("something of all that approved: land exits %d", code)
	}
}

// A commit that is pushed while the person reads is not what was approved.
func TestApproveIsForTheCommitShown(t *testing.T) {
	b, task := reviewed(t)
	near, far := openTerminal(t)
	sys := b.system(far, far)
	sys.In, sys.Terminal = far, ThisSystem().Terminal
	go func() {
		buf, seen := make([]byte, 4096), ""
		for !strings.HasSuffix(seen, "digits of it: ") {
			n, err := near.Read(buf)
			if err != nil {
				return
			}
			seen += string(buf[:n])
		}
		b.m.Set(task.ID, func(t *cofferdam.Task) { t.Head = cofferdam.Commit(strings.Repeat("f", 40)) })
		io.WriteString(near, digest[:8]+"\n")
		for !strings.HasSuffix(seen, "Password: ") {
			n, err := near.Read(buf)
			if err != nil {
				return
			}
			seen += string(buf[:n])
		}
		io.WriteString(near, service.MemoryPassword+"\n")
		io.Copy(io.Discard, near)
	}()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if code := Main(ctx, sys, []string{"merge", "approve", "t-1"}); code != 1 {
		t.Errorf("exit %d, want a conflict", code)
	}
	if code, _, _ := b.run("merge", "land", "t-1"); code != 9 {
		t.Errorf("land exits %d", code)
	}
}

func TestApproveEndsWithCtrlC(t *testing.T) {
	b, _ := reviewed(t)
	near, far := openTerminal(t)
	sys := b.system(far, far)
	sys.In, sys.Terminal = far, ThisSystem().Terminal
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		buf, seen := make([]byte, 4096), ""
		for !strings.HasSuffix(seen, "digits of it: ") {
			n, err := near.Read(buf)
			if err != nil {
				return
			}
			seen += string(buf[:n])
		}
		cancel()
		io.Copy(io.Discard, near)
	}()
	if code := Main(ctx, sys, []string{"merge", "approve", "t-1"}); code != 130 {
		t.Errorf("exit %d, want 130", code)
	}
}

// Without a terminal: one line per change of state, refusals, no animation.
func TestProgressWithoutTerminal(t *testing.T) {
	b := newBench(t)
	task := b.shop()
	id := cofferdam.SessionID("s-00000001")
	b.m.AddSession(cofferdam.Session{ID: id, Task: task.ID})
	b.m.Emit(id, cofferdam.Event{Kind: cofferdam.EventAgentTool, Fields: map[string]string{"text": "Bash"}})
	for range maxRefused + 5 {
		b.m.Emit(id, cofferdam.Event{Kind: "egress.connect", Verdict: cofferdam.Refused, Resource: "evil.test:443", Rule: "default-deny", Reason: "no rule allows it"})
	}
	b.m.Seal(id)
	b.m.Set(task.ID, func(t *cofferdam.Task) { t.State, t.Sessions = cofferdam.Running, []cofferdam.SessionID{id} })
	go func() {
		// What the command prints shows how far it is: no clock.
		b.m.Set(task.ID, func(t *cofferdam.Task) { t.State, t.RegressionOnly = cofferdam.InReview, true })
	}()
	code, out, errs := b.run("task", "follow", "t-1")
	if code != 0 || out != "" {
		t.Errorf("exit %d %s", code, out)
	}
	if n := strings.Count(errs, "refused egress.connect evil.test:443 by default-deny"); n != maxRefused {
		t.Errorf("%d refusals were printed, want %d", n, maxRefused)
	}
	for _, part := range []string{"more refusals are in the trace", "t-1 is in review; regression only: no check failed first; next: cofferdam merge view t-1"} {
		if !strings.Contains(errs, part) {
			t.Errorf("%q is missing in\n%s", part, errs)
		}
	}
	if strings.ContainsAny(errs, "\r\x1b") {
		t.Errorf("animation without a terminal: %q", errs)
	}
}

// On a terminal the line rewrites itself and leaves nothing behind.
func TestProgressAtTerminal(t *testing.T) {
	var errs bytes.Buffer
	env := map[string]string{}
	a := &app{System: System{
		Out: io.Discard, Err: &errs, Terminal: func(any) bool { return true }, Width: func() int { return 40 }, Getenv: func(n string) string { return env[n] },
	}}
	p := a.newProgress(cofferdam.Task{Number: 1, State: cofferdam.Running})
	p.begun = p.begun.Add(-time.Minute)
	if err := p.take(cofferdam.Progress{Event: &cofferdam.Event{Kind: cofferdam.EventAgentTool, Fields: map[string]string{"text": strings.Repeat("long ", 100) + "\x1b[2J"}}}); err != nil {
		t.Fatal(err)
	}
	if err := p.take(cofferdam.Progress{Event: &cofferdam.Event{Seq: 1, Kind: "git.push", Verdict: cofferdam.Refused, Resource: "refs/heads/main", Rule: "one-branch"}}); err != nil {
		t.Fatal(err)
	}
	p.stop()
	out := errs.String()
	if !strings.Contains(out, "\r\x1b[Kt-1 running 1m0s: long") || !strings.Contains(out, "refused git.push refs/heads/main by one-branch") || !strings.HasSuffix(out, "\r\x1b[K") || strings.Contains(out, "\x1b[2J") {
		t.Errorf("%q", out)
	}
	for _, line := range strings.Split(out, "\r\x1b[K") {
		if len([]rune(line)) >= 40 && strings.Contains(line, "running") {
			t.Errorf("a line is wider than the terminal: %q", line)
		}
	}
	// One that knows no such commands is not sent them.
	errs.Reset()
	env["TERM"] = "dumb"
	p = a.newProgress(cofferdam.Task{Number: 1})
	p.begun = p.begun.Add(-time.Minute)
	if err := p.take(cofferdam.Progress{Task: &cofferdam.Task{Number: 1, State: cofferdam.Running}}); err != nil {
		t.Fatal(err)
	}
	p.stop()
	if errs.String() != "t-1 running\n" {
		t.Errorf("a dumb terminal: %q", errs.String())
	}
}
