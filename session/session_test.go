package session_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"cofferdam"
	"cofferdam/environment"
	"cofferdam/gateway"
	"cofferdam/gateway/wire"
	"cofferdam/internal/redact"
	"cofferdam/proof"
	"cofferdam/sandbox"
	"cofferdam/sandbox/sandboxtest"
	"cofferdam/session"
	"cofferdam/trace"
)

// secretValue is known to the redactor of every bench.
const secretValue = "s3cr3t-value-that-may-not-be-recorded"

// bench is one installation: a keeper (the fake driver), a state folder that
// outlives a process, and a repository.
type bench struct {
	t      *testing.T
	dir    string
	driver *sandboxtest.Fake
	signer proof.Signer
	repo   cofferdam.Repo
	base   cofferdam.Commit

	store  *trace.Store
	runner *session.Runner
	wires  []*fakeWire
	change func(*session.Options)

	scripts string // of the pretended agent
}

// fakeWire stands in for a wire, since boxes of the fake use the host's network.
type fakeWire struct {
	caller *gateway.Caller
	names  []wire.Name
	mu     sync.Mutex
	stale  string
	closed bool
}

func (w *fakeWire) ResetStale(table []byte) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stale = string(table)
	return 0
}

func (w *fakeWire) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	return nil
}

func newBench(t *testing.T, change func(*session.Options)) *bench {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: the fake driver makes namespaces")
	}
	b := &bench{t: t, dir: t.TempDir(), change: change}
	var err error
	if b.driver, err = sandboxtest.NewFake(filepath.Join(b.dir, "boxes")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.driver.Close() })
	if b.signer, err = trace.OpenKey(filepath.Join(b.dir, "key"), "test"); err != nil {
		t.Fatal(err)
	}
	b.repo = cofferdam.Repo{ID: "r-1", Name: "shop", Base: "refs/heads/main", Upstream: filepath.Join(b.dir, "shop.git")}
	b.git("init", "-q", "--bare", "-b", "main", b.repo.Upstream)
	b.base = b.commit(map[string]string{"calc.txt": "1 + 1 = 3\n"})
	b.restart()
	return b
}

// git runs git outside of any box.
func (b *bench) git(args ...string) string {
	b.t.Helper()
	c := exec.Command("git", append([]string{"-c", "user.name=t", "-c", "user.email=t@example.org"}, args...)...)
	var stderr bytes.Buffer
	c.Stderr = &stderr
	out, err := c.Output()
	if err != nil {
		b.t.Fatalf("git %v: %v: %s", args, err, stderr.String())
	}
	return strings.TrimSpace(string(out))
}

// commit puts files on the base branch.
func (b *bench) commit(files map[string]string) cofferdam.Commit {
	b.t.Helper()
	work := filepath.Join(b.t.TempDir(), "work")
	b.git("clone", "-q", b.repo.Upstream, work)
	for name, text := range files {
		path := filepath.Join(work, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			b.t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			b.t.Fatal(err)
		}
	}
	b.git("-C", work, "add", "-A")
	b.git("-C", work, "commit", "-q", "-m", "files")
	b.git("-C", work, "push", "-q", "origin", "HEAD:main")
	return cofferdam.Commit(b.git("-C", work, "rev-parse", "HEAD"))
}

// restart is what the end of a process and the start of the next one do.
func (b *bench) restart() {
	b.t.Helper()
	if b.store != nil {
		if err := b.store.Close(); err != nil {
			b.t.Fatal(err)
		}
	}
	red := redact.New([][]byte{[]byte(secretValue)})
	var err error
	if b.store, err = trace.Open(filepath.Join(b.dir, "trace"), b.signer, red); err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { b.store.Close() })
	cache, err := environment.Open(filepath.Join(b.dir, "env"), nil)
	if err != nil {
		b.t.Fatal(err)
	}
	o := session.Options{
		Dir: filepath.Join(b.dir, "session"), Driver: b.driver, Tier: sandbox.None, Trace: b.store, Environments: cache,
		Connect: func(_ context.Context, _ sandbox.Box, c *gateway.Caller, names []wire.Name) (session.Wire, error) {
			w := &fakeWire{caller: c, names: names}
			b.wires = append(b.wires, w)
			return w, nil
		},
		CloneURL: func(r cofferdam.Repo) string { return r.Upstream },
		Resolve: func(_ context.Context, r cofferdam.Repo, ref cofferdam.Ref) (cofferdam.Commit, error) {
			out, err := exec.Command("git", "-C", r.Upstream, "rev-parse", "--verify", "-q", string(ref)).Output()
			if err != nil {
				return "", &cofferdam.Error{Kind: cofferdam.NotFound}
			}
			return cofferdam.Commit(strings.TrimSpace(string(out))), nil
		},
		ReadFile: func(_ context.Context, _ cofferdam.RepoID, c cofferdam.Commit, path string, _ int) ([]byte, error) {
			out, err := exec.Command("git", "-C", b.repo.Upstream, "show", string(c)+":"+path).Output()
			if err != nil {
				return nil, &cofferdam.Error{Kind: cofferdam.NotFound}
			}
			return out, nil
		},
		Redact:  func(w io.Writer) session.Clean { return red.Writer(w) },
		Presets: map[string][]string{"npm": {"registry.example.com"}},
	}
	if b.change != nil {
		b.change(&o)
	}
	if b.runner, err = session.New(o); err != nil {
		b.t.Fatal(err)
	}
}

// plan is a session in which the agent "command" runs text.
func (b *bench) plan(text string) session.Plan {
	return session.Plan{
		Scope: cofferdam.Scope{Organization: "o-1", Project: "p-1"}, ID: cofferdam.SessionID(cofferdam.NewID("s")),
		Task: "t-1", Number: 7, Attempt: 1, Phase: gateway.Work, Repo: b.repo, Commit: b.base, Branch: "refs/heads/cofferdam/t-7-1",
		Request: cofferdam.TaskRequest{Text: "mend the sum\nplease", Agent: "command", Command: text},
	}
}

func (b *bench) proof(at cofferdam.Commit, commands ...string) session.Plan {
	p := b.plan("")
	p.Phase, p.Branch, p.Commit = gateway.Proof, "", at
	for _, c := range commands {
		p.Checks = append(p.Checks, cofferdam.Check{Command: c})
	}
	return p
}

func (b *bench) run(p session.Plan) session.Result {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	r, err := b.runner.Run(ctx, p)
	if err != nil {
		b.t.Fatal(err)
	}
	return r
}

func (b *bench) events(p session.Plan) []cofferdam.Event {
	b.t.Helper()
	var all []cofferdam.Event
	for {
		events, err := b.store.Events(context.Background(), p.ID, uint64(len(all)), 1000)
		if err != nil {
			b.t.Fatal(err)
		}
		if len(events) == 0 {
			return all
		}
		all = append(all, events...)
	}
}

// output joins what is on record of a command's stream, and checks that every
// byte is there once and in order.
func (b *bench) output(p session.Plan, id, stream string) string {
	b.t.Helper()
	var text strings.Builder
	next := "0"
	var at int64
	for _, e := range b.events(p) {
		if e.Kind != cofferdam.EventExecOutput || e.Fields["exec"] != id || e.Fields["stream"] != stream {
			continue
		}
		if e.Fields["offset"] != next {
			b.t.Errorf("%s %s: offset %s follows %s", id, stream, e.Fields["offset"], next)
		}
		at += atoi(b.t, e.Fields["length"])
		next = itoa(at)
		part, ok := trace.Bytes(e, "text")
		if !ok {
			b.t.Errorf("event %d has no text", e.Seq)
		}
		text.Write(part)
	}
	return text.String()
}

func (b *bench) noBoxes() {
	b.t.Helper()
	boxes, err := b.driver.List(context.Background())
	if err != nil || len(boxes) != 0 {
		b.t.Errorf("boxes %v, error %v", boxes, err)
	}
	left, err := os.ReadDir(filepath.Join(b.dir, "session"))
	if err != nil || len(left) != 0 {
		b.t.Errorf("held output is left: %v %v", left, err)
	}
}

func TestWorkFromOpenToSealed(t *testing.T) {
	b := newBench(t, nil)
	p := b.plan(`echo looking; echo oops >&2; echo "1 + 1 = 2" > calc.txt; git commit -qam 'mend'; echo left > extra.txt; echo all done`)
	r := b.run(p)
	if r.Failure != "" || r.Exit != 0 || r.Said != cofferdam.SaidDone || r.Message != "all done" || r.Session != p.ID {
		t.Fatalf("result %+v", r)
	}
	if at := b.git("-C", b.repo.Upstream, "rev-parse", string(p.Branch)); at != string(r.Head) {
		t.Errorf("the branch is at %s, the result says %s", at, r.Head)
	}
	if text := b.git("-C", b.repo.Upstream, "log", "--format=%s|%an", string(b.base)+".."+string(r.Head)); text !=
		"mend the sum|Cofferdam agent (command)\nmend|Cofferdam agent (command)" {
		t.Errorf("commits:\n%s", text)
	}
	if r.Box.Tier != "none" || r.Box.Kernel == "" || r.Box.Policy == "" || r.Box.Environment == "" {
		t.Errorf("box %+v", r.Box)
	}
	if b.output(p, "agent", "stdout") != "looking\nall done\n" || b.output(p, "agent", "stderr") != "oops\n" {
		t.Errorf("output %q %q", b.output(p, "agent", "stdout"), b.output(p, "agent", "stderr"))
	}
	events := b.events(p)
	if last := events[len(events)-1]; last.Kind != cofferdam.EventSessionSeal || r.Sealed.Size != uint64(len(events)) || r.Sealed.Root == "" {
		t.Errorf("last event %+v, sealed %+v", last, r.Sealed)
	}
	b.noBoxes()
	if !b.wires[0].closed || b.wires[0].caller.Live.Err() == nil {
		t.Error("a grant outlives its session")
	}
	b.restart()
	again := b.run(p)
	if again.Head != r.Head || again.Sealed != r.Sealed || again.Message != r.Message || again.Usage != r.Usage {
		t.Errorf("asked again: %+v\nbefore: %+v", again, r)
	}
}

func TestNothingToDoAndBlocked(t *testing.T) {
	b := newBench(t, nil)
	for text, want := range map[string]cofferdam.Said{
		"echo 'cofferdam: nothing to do'":         cofferdam.SaidNothingToDo,
		"echo 'cofferdam: blocked: no such host'": cofferdam.SaidBlocked,
		"echo hello; exit 3":                      cofferdam.SaidDone,
		"cat; echo 'cofferdam: nothing to do'":    cofferdam.SaidNothingToDo, // BR-02: its input has ended
	} {
		r := b.run(b.plan(text))
		if r.Said != want || r.Head != "" || r.Failure != "" {
			t.Errorf("%s: %+v", text, r)
		}
		if want == cofferdam.SaidDone && r.Exit != 3 {
			t.Errorf("exit %d", r.Exit)
		}
	}
}

func TestChecksRunAllAndReportEach(t *testing.T) {
	b := newBench(t, func(o *session.Options) { o.CheckTimeout = 15 * time.Second })
	p := b.proof(b.base, "grep 3 calc.txt", "echo out; echo err >&2; exit 4", "sleep 60", "git rev-parse HEAD; touch .git/x")
	r := b.run(p)
	if len(r.Checks) != 4 || r.Failure != "" {
		t.Fatalf("result %+v", r)
	}
	c := r.Checks
	if c[0].Exit != 0 || c[1].Exit != 4 || !c[2].TimedOut || c[3].Exit != 0 {
		t.Errorf("checks %+v", c)
	}
	if !strings.Contains(c[1].Tail, "out\n") || !strings.Contains(c[1].Tail, "err\n") || c[1].Stdout == c[1].Stderr {
		t.Errorf("check 2 %+v", c[1])
	}
	if !strings.Contains(c[3].Tail, string(b.base)) {
		t.Errorf("check 4 ran at %s", c[3].Tail)
	}
	if who := b.wires[0].caller; who.Actor.Kind != cofferdam.Platform || who.Phase != gateway.Proof {
		t.Errorf("caller %+v", who)
	}
	again := b.run(p)
	if len(again.Checks) != 4 || again.Checks[1].Stdout != c[1].Stdout {
		t.Errorf("asked again: %+v", again.Checks)
	}
}

// TestNoCheckSpeaksForTheNext holds that what a check leaves behind, in the
// workspace or running, is gone before the next one begins.
func TestNoCheckSpeaksForTheNext(t *testing.T) {
	b := newBench(t, nil)
	p := b.proof(b.base, "echo 3 >> calc.txt; echo left > left", "test -e left", "git status --porcelain; git diff HEAD")
	r := b.run(p)
	if len(r.Checks) != 3 || r.Checks[0].Exit != 0 || r.Checks[1].Exit != 1 || r.Checks[2].Exit != 0 || r.Checks[2].Tail != "" {
		t.Errorf("checks %+v", r.Checks)
	}
	if len(b.wires) != 3 {
		t.Errorf("%d wires, want one for each check", len(b.wires))
	}
	b.noBoxes()
}

func TestSecretsNeverGoOnRecordEvenSplit(t *testing.T) {
	b := newBench(t, nil)
	half := len(secretValue) / 2
	p := b.plan(`printf 'key=` + secretValue[:half] + `'; sleep 0.3; printf '` + secretValue[half:] + ` end\n'; printf 'tail ` + secretValue[:half] + `'`)
	b.run(p)
	out := b.output(p, "agent", "stdout")
	if strings.Contains(out, secretValue) || !strings.HasPrefix(out, "key=[redacted") || !strings.HasSuffix(out, " end\ntail "+secretValue[:half]) {
		t.Errorf("on record: %q", out)
	}
}

func TestProjectFileOnlyNarrows(t *testing.T) {
	b := newBench(t, nil)
	b.base = b.commit(map[string]string{".cofferdam/project.toml": "[egress]\nallow = [\"a.example.com\", \"evil.example.com\"]\n"})
	p := b.plan("echo 'cofferdam: nothing to do'")
	p.Request.Allow = []string{"*.example.org", "a.example.com", "b.example.com"}
	b.run(p)
	var rules []string
	for _, r := range b.wires[0].caller.Policy.Set().Rules() {
		rules = append(rules, r.Pattern)
	}
	if strings.Join(rules, " ") != "a.example.com" {
		t.Errorf("rules %v", rules)
	}
	for _, e := range b.events(p) {
		if e.Kind == cofferdam.EventSessionState && e.Resource == "policy" && !strings.Contains(e.Fields["dropped"], "evil.example.com") {
			t.Errorf("what was not granted is not told: %v", e.Fields)
		}
	}
	b.base = b.commit(map[string]string{".cofferdam/project.toml": "[egress]\nallowed = []\n"})
	if r := b.run(b.plan("true")); r.Failure != "policy" || !strings.Contains(r.Reason, "line 2") {
		t.Errorf("an unknown key: %+v", r)
	}
}

func TestRefusedBeforeAnythingRuns(t *testing.T) {
	b := newBench(t, nil)
	p := b.plan("true")
	p.Request.Allow = []string{""}
	if r := b.run(p); r.Failure != "policy" {
		t.Errorf("empty allow entry: %+v", r)
	}
	p = b.plan("true")
	p.Request.Agent = "claude"
	if r := b.run(p); r.Failure != "provider" || r.Box.Tier != "" {
		t.Errorf("claude without a model: %+v", r)
	}
	p = b.plan("true")
	p.Commit = cofferdam.Commit(strings.Repeat("1", 40))
	if r := b.run(p); r.Failure != "repository" {
		t.Errorf("a commit that is not there: %+v", r)
	}
	b.noBoxes()
}

func TestAgentThatSpoilsItsRepositoryHurtsOnlyItself(t *testing.T) {
	b := newBench(t, nil)
	if r := b.run(b.plan("rm -rf .git; echo fine")); r.Failure != "agent" || r.Head != "" {
		t.Errorf("no repository: %+v", r)
	}
	r := b.run(b.plan("touch .git/index.lock; echo 'exit 1' > .git/hooks/pre-commit; chmod +x .git/hooks/pre-commit; cp .git/hooks/pre-commit .git/hooks/pre-push; echo x > x"))
	if r.Failure != "" || r.Head == "" {
		t.Errorf("hooks and a lock: %+v", r)
	}
}

func TestTimeoutIsNoFailureAndIsCaptured(t *testing.T) {
	b := newBench(t, nil)
	p := b.plan("echo half > half.txt; sleep 60")
	p.Request.Timeout = 15 // and its first word comes before it, however busy this machine is
	r := b.run(p)
	if !r.TimedOut || r.Failure != "" || r.Head == "" {
		t.Errorf("%+v", r)
	}
}

func TestEndedTaskIsSealed(t *testing.T) {
	b := newBench(t, nil)
	p := b.plan("echo started; sleep 60")
	ctx, cancel := context.WithCancelCause(context.Background())
	done := b.start(ctx, p)
	b.until(p, "agent", "started")
	cancel(session.ErrTaskEnded)
	got := <-done
	if got.err != nil || got.result.Failure != "cancelled" || got.result.Sealed.Size == 0 {
		t.Fatalf("%+v %v", got.result, got.err)
	}
	b.noBoxes()
	never := b.plan("true")
	r, err := b.runner.Run(ctx, never)
	if err != nil || r.Failure != "cancelled" || r.Sealed.Size == 0 {
		t.Errorf("a session that never ran: %+v %v", r, err)
	}
}

// outcome is what a Run in the background came to.
type outcome struct {
	result session.Result
	err    error
}

func (b *bench) start(ctx context.Context, p session.Plan) <-chan outcome {
	done := make(chan outcome, 1)
	go func() {
		r, err := b.runner.Run(ctx, p)
		done <- outcome{r, err}
	}()
	return done
}

// until waits until text is on record as output of a command.
func (b *bench) until(p session.Plan, id, text string) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	stop := errors.New("seen")
	var err error
	for !errors.Is(err, stop) {
		if ctx.Err() != nil {
			b.t.Fatalf("%q never came", text)
		}
		err = b.store.Follow(ctx, p.ID, 0, func(e cofferdam.Event) error {
			if e.Kind == cofferdam.EventExecOutput && e.Fields["exec"] == id && strings.Contains(e.Fields["text"], text) {
				return stop
			}
			return nil
		})
	}
}
