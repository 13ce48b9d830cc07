package flow

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"cofferdam"
	"cofferdam/gateway"
	"cofferdam/internal/engine"
	"cofferdam/internal/store"
	"cofferdam/merge"
	"cofferdam/proof"
	"cofferdam/session"
	"cofferdam/task"
)

// stage is a flow on the real engine and the real store, with sessions and a
// repository that are files in its folder, so that another process can go on.
type stage struct {
	dir    string
	store  *store.Store
	tasks  *task.Service
	engine *engine.Engine
	flow   *Flow
	scope  cofferdam.Scope
	repo   cofferdam.Repo
	actors *actors
	key    string // public
	close  []func()
}

const (
	baseCommit cofferdam.Commit = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	headCommit cofferdam.Commit = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
)

// enter opens a stage in dir. point may be nil.
func enter(ctx context.Context, dir, program string, point func(*stage, string)) (*stage, error) {
	s := &stage{dir: dir, actors: &actors{dir: dir, waiting: make(chan cofferdam.SessionID, 16), answer: make(chan struct{})}}
	var err error
	if s.store, err = store.Open(ctx, filepath.Join(dir, "cofferdam.db")); err != nil {
		return nil, err
	}
	s.close = append(s.close, func() { s.store.Close() })
	if s.scope, err = s.store.DefaultScope(ctx); err != nil {
		return nil, err
	}
	if s.repo, err = s.store.FindRepo(ctx, s.scope, "first"); err != nil {
		s.repo = cofferdam.Repo{ID: cofferdam.RepoID(cofferdam.NewID("r")), Scope: s.scope, Name: "first", Upstream: "/srv/first.git", Base: "refs/heads/main", Created: time.Now()}
		if err := s.store.AddRepo(ctx, s.repo); err != nil {
			return nil, err
		}
	}
	signer, err := s.signer()
	if err != nil {
		return nil, err
	}
	rec := &recordFile{path: filepath.Join(dir, "record")}
	s.tasks = task.New(task.Options{Store: s.store, Record: rec})
	var mu sync.Mutex
	current := func() *Flow { mu.Lock(); defer mu.Unlock(); return s.flow }
	s.actors.asks = func(ctx context.Context, p session.Plan, question string) error {
		return current().Asks(ctx, p, question)
	}
	if s.engine, err = engine.Start(ctx, engine.Options{
		Program: program, Dir: filepath.Join(dir, "engine"),
		Restarted: func(ctx context.Context, _ bool) {
			if f := current(); f != nil {
				f.Resume(ctx)
			}
		},
	}); err != nil {
		return nil, err
	}
	s.close = append(s.close, func() { s.engine.Close() })
	c, err := s.engine.Dial(ctx)
	if err != nil {
		return nil, err
	}
	s.close = append(s.close, c.Close)
	o := Options{Client: c, Tasks: s.tasks, Store: s.store, Sessions: s.actors, Repos: s.actors, Signer: signer, Record: rec, Land: merge.New(merge.Options{Record: rec}).Land}
	if point != nil {
		o.Point = func(name string) { point(s, name) }
	}
	mu.Lock()
	s.flow = New(ctx, o)
	mu.Unlock()
	s.close = append(s.close, s.flow.Close)
	return s, s.flow.Run(ctx)
}

// leave closes in the order that a server does.
func (s *stage) leave() {
	for i := len(s.close) - 1; i >= 0; i-- {
		s.close[i]()
	}
}

func (s *stage) signer() (proof.Signer, error) {
	path := filepath.Join(s.dir, "key")
	text, err := os.ReadFile(path)
	if err != nil {
		private, public := proof.NewKey("test")
		text = []byte(private + "\n" + public)
		if err := os.WriteFile(path, text, 0o600); err != nil {
			return proof.Signer{}, err
		}
	}
	private, public, _ := strings.Cut(string(text), "\n")
	s.key = public
	return proof.NewSigner(private)
}

// recordFile is a host log: a line per event.
type recordFile struct {
	mu   sync.Mutex
	path string
	n    uint64
}

func (r *recordFile) Record(_ context.Context, e cofferdam.Event) (cofferdam.Event, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e.Seq = r.n
	r.n++
	line, err := json.Marshal(e)
	if err != nil {
		return e, err
	}
	return e, write(r.path, string(line))
}

// write appends a line at once.
func write(path, line string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.WriteString(line + "\n")
	return err
}

func lines(path string) []string {
	text, _ := os.ReadFile(path)
	return strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
}

// actors plays sessions and the repository by what a task's text says:
//
//	good            mends what fails on the base
//	idle            changes nothing and says so
//	waits           runs until it is told to end
//	asks            asks a person, then mends what fails
//	loses N         its first N boxes for the agent are lost
//	foreign         its commit does not build on the base
//	broken          ends with an error that no repetition helps
//	boxless         gets no box, however often it tries
//	away            is unavailable at first
type actors struct {
	dir     string
	waiting chan cofferdam.SessionID
	asks    func(ctx context.Context, p session.Plan, question string) error
	answer  chan struct{} // closed by the answer

	mu       sync.Mutex
	lost     map[cofferdam.TaskID]int // guarded by mu
	away     int                      // guarded by mu
	running  map[cofferdam.SessionID]bool
	together bool // the same session ran twice at a time; guarded by mu
	unsynced bool // Sync fails; guarded by mu
	branched bool // the upstream has every branch of the usual name; guarded by mu
}

func (a *actors) enter(id cofferdam.SessionID) func() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.running == nil {
		a.running, a.lost = map[cofferdam.SessionID]bool{}, map[cofferdam.TaskID]int{}
	}
	a.together = a.together || a.running[id]
	a.running[id] = true
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		delete(a.running, id)
	}
}

// Run plays one session. What ran before and ended answers the same again.
func (a *actors) Run(ctx context.Context, p session.Plan) (session.Result, error) {
	defer a.enter(p.ID)()
	if err := write(filepath.Join(a.dir, "runs"), fmt.Sprintf("%s %s %s", p.Phase, p.Commit, p.ID)); err != nil {
		return session.Result{}, err
	}
	sum := sha256.Sum256([]byte(p.ID))
	r := session.Result{
		Session: p.ID, Said: cofferdam.SaidDone, Usage: cofferdam.Usage{InputTokens: 10, Refused: 1},
		Sealed: session.Head{Size: 3, Root: cofferdam.DigestOfSum(sum), Time: time.Unix(1_800_000_000, 0).UTC()},
		Box:    session.Box{Tier: "none", Kernel: "test", Image: "host"},
	}
	if context.Cause(ctx) == session.ErrTaskEnded {
		r.Failure, r.Reason = "cancelled", "its task has ended"
		return r, nil
	}
	if p.Phase == gateway.Proof {
		for _, c := range p.Checks {
			run := session.CheckRun{Command: c.Command, Stdout: "sha256:0", Stderr: "sha256:0"}
			if c.MustFailFirst && p.Commit == baseCommit {
				run.Exit = 1
			}
			r.Checks = append(r.Checks, run)
		}
		return r, nil
	}
	return a.work(ctx, p, r)
}

func (a *actors) work(ctx context.Context, p session.Plan, r session.Result) (session.Result, error) {
	word, n := "", 0
	fmt.Sscanf(p.Request.Text, "%s %d", &word, &n)
	switch word {
	case "idle":
		r.Said = cofferdam.SaidNothingToDo
		return r, nil
	case "waits":
		select {
		case a.waiting <- p.ID:
		default:
		}
		<-ctx.Done()
		if context.Cause(ctx) != session.ErrTaskEnded {
			return session.Result{}, context.Cause(ctx)
		}
		r.Failure, r.Reason = "cancelled", "its task has ended"
		return r, nil
	case "asks":
		if err := a.asks(ctx, p, "which way?"); err != nil {
			return r, err
		}
		a.waiting <- p.ID
		select {
		case <-a.answer:
		case <-ctx.Done():
			return session.Result{}, context.Cause(ctx)
		}
		if err := a.asks(ctx, p, ""); err != nil {
			return r, err
		}
	case "loses":
		a.mu.Lock()
		a.lost[p.Task]++
		lost := a.lost[p.Task] <= n
		a.mu.Unlock()
		if lost {
			r.Failure, r.Reason = "box", "the box is gone"
			return r, nil
		}
	case "broken":
		return r, &cofferdam.Error{Op: "session.Run", Kind: cofferdam.Invalid, Subject: "session", Reason: "cannot be"}
	case "boxless":
		return r, &session.Accident{Code: cofferdam.ReasonEnvironment, Err: &cofferdam.Error{
			Op: "microvm.Create", Kind: cofferdam.Unavailable, Subject: "microvm-kernel", Reason: "no kernel here\nand none there", Hint: "install one",
		}}
	case "away":
		a.mu.Lock()
		a.away++
		away := a.away <= 2
		a.mu.Unlock()
		if away {
			return r, &cofferdam.Error{Op: "session.Run", Kind: cofferdam.Unavailable, Subject: "keeper", Reason: "does not answer"}
		}
	}
	r.Head = headCommit
	if word == "foreign" {
		r.Head = "cccccccccccccccccccccccccccccccccccccccc"
	}
	return r, nil
}

// base is the repository: the last line of a file is where its base branch is.
func (a *actors) base() cofferdam.Commit {
	l := lines(filepath.Join(a.dir, "base"))
	if l[len(l)-1] == "" {
		return baseCommit
	}
	return cofferdam.Commit(l[len(l)-1])
}

func (a *actors) Sync(context.Context, cofferdam.Repo) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.unsynced {
		return &cofferdam.Error{Op: "git.Sync", Kind: cofferdam.NotFound, Subject: "upstream /srv/first.git", Reason: "there is none"}
	}
	return nil
}

func (a *actors) FreeBranch(_ context.Context, _ cofferdam.Repo, want cofferdam.Ref) (cofferdam.Ref, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.branched {
		return want + "-2", nil
	}
	return want, nil
}

func (a *actors) Resolve(context.Context, cofferdam.Repo, cofferdam.Ref) (cofferdam.Commit, error) {
	return a.base(), nil
}

func (a *actors) IsAncestor(_ context.Context, _ cofferdam.Repo, _, new cofferdam.Commit) (bool, error) {
	return new[0] != 'c', nil
}

func (a *actors) Land(_ context.Context, _ cofferdam.Repo, _ cofferdam.Ref, old, new cofferdam.Commit) error {
	switch a.base() {
	case new:
		return nil
	case old:
		return write(filepath.Join(a.dir, "base"), string(new))
	}
	return &cofferdam.Error{Op: "git.Land", Kind: cofferdam.Conflict, Subject: "refs/heads/main", Reason: "has moved"}
}

var ada = cofferdam.Principal{Kind: cofferdam.Person, Name: "ada"}

func (s *stage) create(ctx context.Context, text string, checks ...cofferdam.Check) (cofferdam.Task, error) {
	if checks == nil {
		checks = []cofferdam.Check{{Command: "make test", MustFailFirst: true}}
	}
	t, err := s.tasks.Create(ctx, task.Order{Scope: s.scope, By: ada, Repo: s.repo, Request: cofferdam.TaskRequest{Text: text, Agent: "command", Command: "true", Checks: checks}})
	if err != nil {
		return t, err
	}
	return t, s.flow.Ensure(ctx, t)
}

// until waits for the task to be in a state that stop names, or to have ended.
func (s *stage) until(ctx context.Context, t cofferdam.Task, stop cofferdam.TaskState) (cofferdam.Task, error) {
	err := s.tasks.Watch(ctx, t.ID, func(now cofferdam.Task) error {
		t = now
		if now.State == stop || now.State.Ended() {
			return errReached
		}
		return nil
	})
	if err == errReached {
		err = nil
	}
	return t, err
}

var errReached = fmt.Errorf("reached")

// merge is what a person does: approve the commit, ask that it lands.
func (s *stage) merge(ctx context.Context, t cofferdam.Task) error {
	if _, err := s.store.AddApproval(ctx, t, cofferdam.Approval{Commit: t.Head, By: ada, Time: time.Now()}); err != nil {
		return err
	}
	if _, err := s.tasks.RequestLand(ctx, s.scope, ada, string(t.ID), t.Head); err != nil {
		return err
	}
	return s.flow.Wake(ctx, t)
}

// program builds cofferdam-engine with the flags of the Makefile.
func program() (string, error) {
	root, err := filepath.Abs("../..")
	if err != nil {
		return "", err
	}
	out := filepath.Join(root, "bin", "cofferdam-engine")
	cmd := exec.Command("go", "build", "-ldflags", "-s -w", "-o", out, ".")
	cmd.Dir = filepath.Join(root, "cmd", "cofferdam-engine")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if said, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building the engine: %w\n%s", err, said)
	}
	return out, nil
}
