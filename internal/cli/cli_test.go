package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"cofferdam"
	"cofferdam/internal/api"
	"cofferdam/internal/service"
)

// bench is a server in memory and a system that records what a command prints.
type bench struct {
	t        *testing.T
	m        *service.Memory
	env      map[string]string
	in       io.Reader
	terminal bool
	executed []string
	password string   // what is typed where one is asked for
	flow     *oneFlow // of accounts
}

func newBench(t *testing.T) *bench {
	t.Helper()
	const token = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	b := &bench{t: t, m: service.NewMemory(), in: strings.NewReader(""), password: service.MemoryPassword + "\n"}
	h := api.New(service.New(b.m.Options(cofferdam.Scope{})), api.Options{Log: slog.New(slog.DiscardHandler), Auth: api.Auth{UID: os.Getuid(), Token: token}})
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(token), 0o600); err != nil {
		t.Fatal(err)
	}
	b.env = map[string]string{"COFFERDAM_SERVER": s.URL, "COFFERDAM_TOKEN_FILE": file}
	return b
}

func (b *bench) system(out, err io.Writer) System {
	return System{
		In: b.in, Out: out, Err: err, Getenv: func(n string) string { return b.env[n] }, Environ: func() []string { return nil },
		Terminal: func(any) bool { return b.terminal }, Width: func() int { return 80 }, Sleep: func(context.Context, time.Duration) {},
		Exec: func(path string, args, _ []string) error { b.executed = args; return fmt.Errorf("stub for %s", path) },
	}
}

// run runs one command.
func (b *bench) run(args ...string) (code int, out, errs string) {
	var o, e bytes.Buffer
	code = Main(b.t.Context(), b.system(&o, &e), args)
	return code, o.String(), e.String()
}

// good runs a command that has to succeed.
func (b *bench) good(args ...string) string {
	b.t.Helper()
	code, out, errs := b.run(args...)
	if code != 0 {
		b.t.Fatalf("cofferdam %s: exit %d\n%s%s", strings.Join(args, " "), code, out, errs)
	}
	return out
}

// shop registers a repository and gives a task.
func (b *bench) shop() cofferdam.Task {
	b.t.Helper()
	b.good("repo", "add", "shop", "/srv/shop.git")
	b.good("task", "create", "fix it", "--command", "true", "--keep", "true")
	var task cofferdam.Task
	if err := json.Unmarshal([]byte(b.good("task", "view", "t-1", "--json")), &task); err != nil {
		b.t.Fatal(err)
	}
	return task
}

func everyCommand(t *testing.T) []*cobra.Command {
	t.Helper()
	var all []*cobra.Command
	eachCommand(newRoot(&app{System: ThisSystem()}), func(c *cobra.Command) { all = append(all, c) })
	if len(all) < 40 {
		t.Fatalf("only %d commands", len(all))
	}
	return all
}

// Every command has help with an example and its exit codes at the end, refuses
// what it does not know in two lines, and knows --json.
func TestEveryCommand(t *testing.T) {
	for _, c := range everyCommand(t) {
		path := strings.Fields(c.CommandPath())[1:]
		name := c.CommandPath()
		if c.Short == "" || c.Example == "" || !strings.Contains(c.Example, "cofferdam") || strings.HasSuffix(c.Short, ".") {
			t.Errorf("%s: short %q, example %q", name, c.Short, c.Example)
		}
		b := &bench{t: t, env: map[string]string{}, in: strings.NewReader("")}
		code, out, errs := b.run(append(path, "--help")...)
		if code != 0 || errs != "" || !strings.Contains(out, "\nExamples:\n") || !strings.HasSuffix(strings.TrimSpace(out), "Treat a non-zero code you do not know as failure.") || !strings.Contains(out, "\nExit codes:\n  0 ") {
			t.Errorf("%s --help: exit %d\n%s%s", name, code, out, errs)
		}
		code, _, errs = b.run(append(path, "--no-such-flag")...)
		wrong := 2
		if name == runPath { // 2 may be the command's own
			wrong = ownFailure
		}
		if code != wrong || !twoLines(errs) || strings.HasPrefix(errs, "cofferdam: cofferdam") || !strings.Contains(errs, "unknown flag: --no-such-flag") || !strings.Contains(errs, name+" --help") {
			t.Errorf("%s --no-such-flag: exit %d\n%s", name, code, errs)
		}
		code, _, errs = b.run(append(path, "--no-such-flag", "--json")...)
		if code != wrong {
			t.Errorf("%s --no-such-flag --json: exit %d", name, code)
		}
		wantErrorJSON(t, name, errs, code)
		code, _, errs = b.run(append(path, "--json", "--json")...)
		if code != wrong || !strings.Contains(errs, "twice") {
			t.Errorf("%s --json --json: exit %d\n%s", name, code, errs)
		}
	}
}

// What is nearly a command is answered with the command.
func TestMistyped(t *testing.T) {
	for args, want := range map[string]string{"stauts": "did you mean status?", "--version": "did you mean cofferdam version?"} {
		b := &bench{t: t, env: map[string]string{}, in: strings.NewReader("")}
		if code, _, errs := b.run(strings.Fields(args)...); code != 2 || !twoLines(errs) || !strings.Contains(errs, want) {
			t.Errorf("%s: exit %d\n%s", args, code, errs)
		}
	}
}

func twoLines(errs string) bool {
	lines := strings.Split(strings.TrimSuffix(errs, "\n"), "\n")
	return len(lines) == 2 && strings.HasPrefix(lines[0], "cofferdam: ") && strings.HasPrefix(lines[1], "hint: ") && len(lines[1]) > len("hint: ")
}

func wantErrorJSON(t *testing.T, name, errs string, code int) {
	t.Helper()
	var e struct {
		Schema, Kind, Message, Hint string
		ExitCode                    int `json:"exit_code"`
	}
	if err := json.Unmarshal([]byte(errs), &e); err != nil || e.Schema != "cofferdam/error/v1" || e.Kind == "" || e.Message == "" || e.Hint == "" || e.ExitCode != code {
		t.Errorf("%s: error in JSON: %v: %s", name, err, errs)
	}
}

// Every kind of error has its exit code, two lines and JSON, wherever it comes from.
func TestEveryKind(t *testing.T) {
	for kind, info := range cofferdam.Kinds() {
		b := newBench(t)
		for _, hint := range []string{"", "do that"} {
			b.m.Fail = &cofferdam.Error{Op: "x.Y", Kind: kind, Subject: "thing", Reason: "why", Hint: hint}
			wantHint := hint
			if hint == "" {
				wantHint = info.Hint
			}
			code, out, errs := b.run("task", "view", "t-1")
			if code != info.Exit || out != "" || errs != "cofferdam: thing: why\nhint: "+wantHint+"\n" {
				t.Errorf("%s: exit %d, want %d\n%s%s", kind, code, info.Exit, out, errs)
			}
			code, _, errs = b.run("task", "view", "t-1", "--json")
			if code != info.Exit || !strings.Contains(errs, `"kind":"`+info.Name+`"`) || !strings.Contains(errs, `"request_id":"q-`) {
				t.Errorf("%s in JSON: exit %d\n%s", kind, code, errs)
			}
			wantErrorJSON(t, kind.String(), errs, code)
		}
	}
}

// The outcome of a task is the exit code of run, follow and wait.
func TestOutcomes(t *testing.T) {
	for _, c := range []struct {
		state  cofferdam.TaskState
		reason string
		code   int
	}{
		{cofferdam.InReview, "", 0},
		{cofferdam.Done, "", 0},
		{cofferdam.NothingToDo, "", 0},
		{cofferdam.Blocked, "check", 1},
		{cofferdam.Blocked, "budget", 12},
		{cofferdam.Failed, "box", 1},
		{cofferdam.TimedOut, "time", 12},
		{cofferdam.Cancelled, "cancelled", 130},
		{cofferdam.Waiting, "", 9},
	} {
		b := newBench(t)
		task := b.shop()
		if code, _, _ := b.run("task", "wait", "t-1", "--timeout", "0s"); code != 8 {
			t.Errorf("looking at a queued task: exit %d, want 8", code)
		}
		b.m.Set(task.ID, func(t *cofferdam.Task) { t.State, t.Reason, t.Comment = c.state, c.reason, "because" })
		for _, verb := range []string{"wait", "follow"} {
			code, out, errs := b.run("task", verb, "t-1")
			if code != c.code || out != "" {
				t.Errorf("%s of %s: exit %d, want %d\n%s%s", verb, c.state, code, c.code, out, errs)
			}
			if verb == "wait" && errs != "" || verb == "follow" && !strings.Contains(errs, "t-1 is "+string(c.state)) {
				t.Errorf("%s of %s says %q", verb, c.state, errs)
			}
			code, out, _ = b.run("task", verb, "t-1", "--json")
			if code != c.code || !strings.Contains(out, `"`+string(c.state)+`"`) || !json.Valid([]byte(out)) {
				t.Errorf("%s --json of %s: exit %d %s", verb, c.state, code, out)
			}
		}
	}
	all := map[cofferdam.TaskState]bool{}
	for s, want := range map[cofferdam.TaskState]int{cofferdam.Queued: 8, cofferdam.Preparing: 8, cofferdam.Running: 8, cofferdam.Verifying: 8} {
		all[s] = true
		if got := codeOf(cofferdam.Task{State: s}); got != want {
			t.Errorf("%s: %d, want %d", s, got, want)
		}
	}
}

func TestBadInput(t *testing.T) {
	b := newBench(t)
	b.shop()
	dir := t.TempDir()
	huge := filepath.Join(dir, "huge")
	if err := os.WriteFile(huge, bytes.Repeat([]byte("x"), maxText+1), 0o600); err != nil {
		t.Fatal(err)
	}
	binary := filepath.Join(dir, "binary")
	if err := os.WriteFile(binary, []byte{0xff, 0xfe, 0, 1}, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		code int
	}{
		{[]string{"nope"}, 2},
		{[]string{"task", "nope"}, 2},
		{[]string{"task", "list", "extra"}, 2},
		{[]string{"help", "nope"}, 2},
		{[]string{"completion", "tcsh"}, 2},
		{[]string{"task", "view"}, 2},
		{[]string{"task", "view", ""}, 2},
		{[]string{"task", "view", "a", "b"}, 2},
		{[]string{"task", "view", strings.Repeat("a", 5000)}, 2},
		{[]string{"task", "view", "t-99"}, 5},
		{[]string{"task", "view", "../../etc"}, 5},
		{[]string{"task", "view", "t-1\x1b[2J"}, 5},
		{[]string{"task", "create"}, 2},
		{[]string{"task", "create", "x", "y"}, 2},
		{[]string{"task", "create", "x"}, 2},
		{[]string{"task", "create", "", "--keep", "true", "--command", "x"}, 2},
		{[]string{"task", "create", "x", "-f", "y", "--keep", "true"}, 2},
		{[]string{"task", "create", "-f", "/nonexistent", "--keep", "true"}, 2},
		{[]string{"task", "create", "-f", dir, "--keep", "true"}, 2},
		{[]string{"task", "create", "-f", huge, "--keep", "true"}, 2},
		{[]string{"task", "create", "-f", binary, "--command", "x", "--keep", "true"}, 2},
		{[]string{"task", "create", "x", "--keep", "true", "--keep", "true", "--command", "x"}, 2},
		{[]string{"task", "create", "x", "--keep", "", "--command", "x"}, 2},
		{[]string{"task", "create", "x", "--keep", "true", "--timeout", "soon"}, 2},
		{[]string{"task", "create", "x", "--keep", "true", "--timeout", "-1s"}, 2},
		{[]string{"task", "create", "x", "--keep", "true", "--timeout", "99999h", "--command", "x"}, 2},
		{[]string{"task", "create", "x", "--keep", "true", "--timeout", "0"}, 2},
		{[]string{"task", "create", "x", "--keep", "true", "--memory", "lots"}, 2},
		{[]string{"task", "create", "x", "--keep", "true", "--memory", "-1"}, 2},
		{[]string{"task", "create", "x", "--keep", "true", "--disk", "99999999999TiB"}, 2},
		{[]string{"task", "create", "x", "--keep", "true", "--pids", "1.5"}, 2},
		{[]string{"task", "create", "x", "--keep", "true", "--cpus", "NaN", "--command", "x"}, 2},
		{[]string{"task", "create", "x", "--keep", "true", "--cpus", "+Inf", "--command", "x"}, 2},
		{[]string{"task", "create", "x", "--keep", "true", "--pids", "-5", "--command", "x"}, 2},
		{[]string{"task", "create", "x", "--keep", "true", "--command", "x", "--command-file", huge}, 2},
		{[]string{"task", "create", "x", "--keep", "true", "--agent", "eve"}, 2},
		{[]string{"task", "create", "x", "--keep", "true", "--command", "x", "--allow", "https://a.test"}, 2},
		{[]string{"task", "create", "x", "--keep", "true", "--command", "x", "--allow", ""}, 2},
		{[]string{"task", "create", "x", "--keep", "true", "--command", "x", "--repo", "nope"}, 5},
		{[]string{"task", "create", "x", "--keep", "true", "--command", "x", "--repo", "a", "--repo", "b"}, 2},
		{[]string{"task", "create", "x", "--keep", "true", "--command", "x", "--base", "../x"}, 2},
		{[]string{"task", "create", "x", "--keep", "true", "--command", "x", "--image", "relative"}, 2},
		{[]string{"task", "send"}, 2},
		{[]string{"task", "send", "t-1"}, 2},
		{[]string{"task", "send", "t-1", "x", "y"}, 2},
		{[]string{"task", "send", "t-1", "x", "-f", "y"}, 2},
		{[]string{"task", "send", "t-99", "x"}, 5},
		{[]string{"task", "send", "t-1", "-f", huge}, 2},
		{[]string{"task", "send", "t-1", "-f", "/nonexistent"}, 2},
		{[]string{"task", "list", "--limit", "-1"}, 2},
		{[]string{"task", "list", "--limit", "many"}, 2},
		{[]string{"task", "list", "--state", "finished"}, 2},
		{[]string{"task", "wait", "t-1", "--timeout", "-1s"}, 2},
		{[]string{"trace", "view", "s-1", "--from", "-1"}, 2},
		{[]string{"trace", "view", "s-nope"}, 5},
		{[]string{"trace", "follow", "t-1", "--from", "3"}, 2},
		{[]string{"trace", "export", "t-9"}, 5},
		{[]string{"trace", "export", "t-1", "-o", "/nonexistent/x"}, 2},
		{[]string{"session", "view", "s-nope"}, 5},
		{[]string{"proof", "view"}, 2},
		{[]string{"proof", "view", "t-1"}, 5},
		{[]string{"proof", "verify"}, 2},
		{[]string{"proof", "verify", huge}, 2},
		{[]string{"proof", "verify", "/nonexistent", "--key", huge}, 2},
		{[]string{"proof", "verify", huge, "--key", "/nonexistent"}, 2},
		{[]string{"proof", "verify", huge, "--key", binary}, 2},
		{[]string{"repo", "add", "x"}, 2},
		{[]string{"repo", "add", "x", "relative"}, 2},
		{[]string{"repo", "add", "x", "https://a/x", "--user", "u"}, 2},
		{[]string{"repo", "remove", "nope"}, 5},
		{[]string{"model", "add", "x"}, 2},
		{[]string{"model", "add", "x", "--key-file", "/nonexistent"}, 2},
		{[]string{"model", "add", "x", "--key-file", huge}, 2},
		{[]string{"model", "add", "x", "--key-file", binary}, 2},
		{[]string{"model", "view", "nope"}, 5},
		{[]string{"merge", "view", "t-9"}, 5},
		{[]string{"merge", "view", "t-1"}, 5},
		{[]string{"merge", "land", "t-1"}, 1},
		{[]string{"merge", "reject", "t-1", "--reason", strings.Repeat("x", 5000)}, 9},
		{[]string{"--server", "ftp://x", "status"}, 2},
		{[]string{"--token-file", "/nonexistent", "status"}, 2},
		{[]string{"--config", binary, "status"}, 2},
		{[]string{"--config", dir, "status"}, 2},
		{[]string{"debug", "rehearse"}, 2},
		{[]string{"debug", "rehearse", binary}, 2},
		{[]string{"debug", "rehearse", huge, "--listen", "0.0.0.0:1"}, 2},
		{[]string{"debug", "rehearse", "a", "b"}, 2},
		{[]string{"debug", "rehearse", "--record", "ftp://x", "--out", "o"}, 2},
		{[]string{"debug", "rehearse", "--record", "https://u:p@x", "--out", "o"}, 2},
		{[]string{"debug", "rehearse", "--record", "https://x"}, 2},
		{[]string{"debug", "rehearse", binary, "--out", "o"}, 2},
		{[]string{"debug", "rehearse", "--record", "https://x", "--out", "o", "--key-env", "COFFERDAM_NO_SUCH"}, 2},
		{[]string{"debug", "rehearse", "--record", "https://x", "--out", "o", "--key-file", "/nonexistent"}, 2},
		{[]string{"debug", "demo", "--agent", "eve"}, 2},
		{[]string{"doctor", "--state", "relative"}, 2},
		{[]string{"serve", "--listen", "0.0.0.0:1"}, 2},
		{[]string{"serve", "--config", binary}, 2},
		{[]string{"serve", "extra"}, 2},
		{[]string{"serve", "--state", "a", "--state", "b"}, 2},
	} {
		code, out, errs := b.run(c.args...)
		name := fmt.Sprintf("%.120q", c.args)
		if code != c.code || !twoLines(errs) || out != "" {
			t.Errorf("%s: exit %d, want %d\n%s%.500s", name, code, c.code, out, errs)
		}
		if strings.ContainsAny(strings.ReplaceAll(errs, "\n", ""), "\x00\x1b\x07") {
			t.Errorf("%s: control characters reach the terminal: %q", name, errs)
		}
		code, _, errs = b.run(append([]string{"--json"}, c.args...)...)
		if code != c.code {
			t.Errorf("%s --json: exit %d, want %d", name, code, c.code)
		}
		wantErrorJSON(t, name, errs, code)
	}
	if b.executed != nil {
		t.Errorf("bad input started %q", b.executed)
	}
	var l struct{ Items []cofferdam.Task }
	if err := json.Unmarshal([]byte(b.good("task", "list", "--json")), &l); err != nil || len(l.Items) != 1 {
		t.Errorf("bad input left %d tasks (%v)", len(l.Items), err)
	}
}

const schemaFirst = "{\n  \"schema\": \"cofferdam/"

func TestThings(t *testing.T) {
	b := newBench(t)
	if out := b.good("repo", "add", "shop", "/srv/shop.git", "--base", "trunk"); out != "shop\n" {
		t.Errorf("repo add prints %q", out)
	}
	if out := b.good("repo", "list"); !strings.Contains(out, "shop  trunk  /srv/shop.git") {
		t.Errorf("repo list: %s", out)
	}
	b.in = strings.NewReader("sk-secret-canary\n")
	if out := b.good("model", "add", "anthropic"); out != "anthropic\n" {
		t.Errorf("model add prints %q", out)
	}
	var m cofferdam.Model
	if err := json.Unmarshal([]byte(b.good("model", "view", "anthropic", "--json")), &m); err != nil {
		t.Fatal(err)
	}
	if got := b.m.Secret(service.ModelSecret(m.ID)); got != "sk-secret-canary" {
		t.Errorf("sealed %q", got)
	}
	for _, args := range [][]string{{"model", "list"}, {"model", "view", "anthropic"}, {"model", "view", "anthropic", "--json"}} {
		if out := b.good(args...); strings.Contains(out, "canary") {
			t.Errorf("%v shows the key", args)
		}
	}
	b.terminal = true
	b.in = strings.NewReader("sk-secret-canary\n")
	if code, _, errs := b.run("model", "add", "second"); code != 2 || !strings.Contains(errs, "shown while it is typed") {
		t.Errorf("a key typed at a terminal: exit %d %s", code, errs)
	}
	b.terminal = false
	for _, args := range [][]string{{"model", "remove", "anthropic", "--json"}, {"repo", "rm", "shop", "--json"}} {
		if out := b.good(args...); !strings.HasPrefix(out, schemaFirst) || !json.Valid([]byte(out)) {
			t.Errorf("%v: %s", args, out)
		}
	}
	if out := b.good("repo", "list", "-q"); out != "" {
		t.Errorf("left: %s", out)
	}
	for _, args := range [][]string{{"repo", "list", "--json"}, {"model", "list", "--json"}, {"task", "list", "--json"}, {"session", "list", "--json"}, {"merge", "list", "--json"}, {"status", "--json"}, {"version", "--json"}, {"proof", "view", "--key", "--json"}} {
		var v struct{ Schema string }
		out := b.good(args...)
		if err := json.Unmarshal([]byte(out), &v); err != nil || !strings.HasPrefix(out, schemaFirst) || strings.Contains(out, "null") {
			t.Errorf("%v: %v %s", args, err, out)
		}
	}
	if out := b.good("proof", "view", "--key"); !strings.HasPrefix(out, "test+") {
		t.Errorf("key: %q", out)
	}
}

// Output of agents is hostile: nothing of it moves a cursor, turns a line
// around or hides.
func TestHostileText(t *testing.T) {
	const hostile = "a\x1b[2J\x07\r\u202eb\u200b\u2066\U000e0041\u00a0\u0085\u2028c\xff"
	for in, want := range map[string]string{
		"plain ünï ☕ 日本": "plain ünï ☕ 日本", "a\tb\nc": `a\u0009b\u000ac`, "\x1b]0;x\x07": `\u001b]0;x\u0007`, "\u202e": `\u202e`, "\U000e0041": `\U000e0041`, "\xff": `\xff`, "\uFFFD": "\uFFFD",
	} {
		if got := clean(in); got != want {
			t.Errorf("clean(%q) = %q, want %q", in, got, want)
		}
	}
	if got := cleanText("a\n\tb\x1b"); got != "a\n\tb\\u001b" {
		t.Errorf("%q", got)
	}
	b := newBench(t)
	task := b.shop()
	b.m.Change = cofferdam.Change{
		Commits: []string{hostile}, Files: []cofferdam.FileChange{{Path: hostile, Status: "A", Added: 1}}, Diff: "+" + hostile + "\n",
		Proof:    &cofferdam.CheckReport{Checks: []cofferdam.CheckResult{{Check: cofferdam.Check{Command: hostile}}}},
		Refusals: []cofferdam.Event{{Kind: "git.push", Resource: hostile, Rule: hostile}},
	}
	b.m.AddSession(cofferdam.Session{ID: "s-00000001", Task: task.ID, Reason: hostile})
	b.m.Emit("s-00000001", cofferdam.Event{Kind: "agent.message", Resource: hostile, Fields: map[string]string{"text": hostile}})
	b.m.Emit("s-00000001", cofferdam.Event{Kind: "egress.request", Verdict: cofferdam.Refused, Resource: hostile, Reason: hostile})
	b.m.Seal("s-00000001")
	b.m.Set(task.ID, func(t *cofferdam.Task) {
		t.State, t.Head, t.Comment, t.Receipt, t.Sessions = cofferdam.InReview, cofferdam.Commit(strings.Repeat("a", 40)), hostile, "c-1", []cofferdam.SessionID{"s-00000001"}
		t.Request.Text = hostile
	})
	for _, args := range [][]string{
		{"task", "view", "t-1"},
		{"task", "list"},
		{"task", "follow", "t-1"},
		{"merge", "view", "t-1"},
		{"merge", "diff", "t-1"},
		{"merge", "list"},
		{"trace", "view", "s-00000001"},
		{"trace", "follow", "t-1"},
		{"trace", "follow", "s-00000001"},
		{"session", "view", "s-00000001"},
		{"status"},
		{"proof", "view", "t-1"},
	} {
		for _, form := range [][]string{nil, {"--json"}} {
			code, out, errs := b.run(append(args, form...)...)
			if code != 0 && !(args[0] == "proof" && code == 11) { // the server here signs no receipt, and that is seen
				t.Errorf("%v: exit %d %s", args, code, errs)
			}
			for _, bad := range []string{"\x1b", "\x07", "\r", "\u202e", "\u200b", "\u2066", "\U000e0041", "\u0085", "\u2028"} {
				if strings.Contains(out+errs, bad) {
					t.Errorf("%v %v: %q reaches the terminal", args, form, bad)
				}
			}
		}
	}
	var c cofferdam.Change
	if err := json.Unmarshal([]byte(b.good("merge", "view", "t-1", "--json")), &c); err != nil || c.Diff != strings.ToValidUTF8("+"+hostile+"\n", "\uFFFD") {
		t.Errorf("JSON changed the value: %q %v", c.Diff, err)
	}
	if out := b.good("merge", "diff", "t-1", "--raw"); !strings.Contains(out, "\x1b") {
		t.Error("--raw is not raw")
	}
	b.terminal = true
	if code, _, _ := b.run("merge", "diff", "t-1", "--raw"); code != 2 {
		t.Error("--raw went to a terminal")
	}
}

// Status tells each keeper with its build, also the one that is being replaced.
func TestStatusTellsTheKeepers(t *testing.T) {
	b := newBench(t)
	out := b.good("status")
	for _, want := range []string{"(build ", "process 7, build 0a, 2 boxes: it is being replaced and ends with its last box\n", "process 8, build 0b, 0 boxes\n"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	var st cofferdam.Status
	if err := json.Unmarshal([]byte(b.good("status", "--json")), &st); err != nil || len(st.Keepers) != 2 || !st.Keepers[0].Draining {
		t.Errorf("%+v, %v", st, err)
	}
}
