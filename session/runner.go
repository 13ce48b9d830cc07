package session

import (
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"sync"
	"time"

	"cofferdam"
	"cofferdam/agent"
	"cofferdam/agent/loop"
	"cofferdam/environment"
	"cofferdam/gateway"
	"cofferdam/gateway/wire"
	"cofferdam/policy"
	"cofferdam/sandbox"
	"cofferdam/trace"
)

// Options is what a Runner works with. What is not marked as optional is needed.
type Options struct {
	Dir          string // of this room alone: what redaction holds back, between two processes
	Driver       sandbox.Driver
	Tier         sandbox.Tier // optional; gvisor
	Trace        *trace.Store
	Environments *environment.Cache
	// Router serves the wires. Connect, optional, is how a box is connected;
	// without it the box's queue is attached to a wire with that Router.
	Router  wire.Router
	Connect func(ctx context.Context, box sandbox.Box, c *gateway.Caller, names []wire.Name) (Wire, error)
	// CloneURL is where a box finds its repository.
	CloneURL func(cofferdam.Repo) string
	// Resolve returns what a ref of the mirror holds, NotFound if there is none.
	Resolve func(context.Context, cofferdam.Repo, cofferdam.Ref) (cofferdam.Commit, error)
	// ReadFile reads a file of a commit from the mirror, NotFound if there is none.
	ReadFile func(ctx context.Context, id cofferdam.RepoID, c cofferdam.Commit, path string, limit int) ([]byte, error)
	// Redact returns a writer that passes on to w what is written to it, less
	// the values of secrets, also when they are split over writes.
	Redact func(w io.Writer) Clean

	// Said, optional, returns what people said to a task after the message of
	// that number, in order.
	Said func(ctx context.Context, t cofferdam.TaskID, after int64) ([]cofferdam.TaskMessage, error)
	// LastSaid, optional, is Said for a session whose agent has ended: if there
	// is nothing, nobody can say anything to it from then on.
	LastSaid func(ctx context.Context, s cofferdam.SessionID, t cofferdam.TaskID, after int64) ([]cofferdam.TaskMessage, error)
	// Asks, optional, is told that a session's agent waits for an answer to
	// question, and, with "", that it does not any more.
	Asks func(ctx context.Context, p Plan, question string) error
	Ask  gateway.Asker // optional; people who answer what policy asks, for setup and agent
	// Documents, optional, returns the policies that count for a project.
	Documents func(ctx context.Context, scope cofferdam.Scope) (policy.Documents, error)
	// Openings, optional, returns what people opened for a task by their answers.
	Openings func(ctx context.Context, t cofferdam.TaskID) ([]policy.Opening, error)
	// Conversation keeps the messages of our own loop, apart from the machine.
	Conversation func(cofferdam.Scope, cofferdam.SessionID) loop.Conversation
	Workspaces   Workspaces // optional; without it a workspace ends with its box, and has no checkpoints
	// Sign signs the manifest of a checkpoint, Vouch returns what of it is signed,
	// Tampered if nothing is. Host is the host's log. All are needed for checkpoints.
	Sign  func(manifest []byte) ([]byte, error)
	Vouch func(note []byte) ([]byte, error)
	Host  cofferdam.Recorder

	// Image finds what a box has at "/"; nil knows the host and folders.
	Image func(ctx context.Context, scope cofferdam.Scope, w environment.ImageWant) (environment.Image, error)
	// RawSecret, optional, returns a secret that the operator grants to the setup
	// of a repository.
	RawSecret    func(ctx context.Context, repo cofferdam.Repo, name string) (RawSecret, error)
	Allow        []string            // optional; hosts every task may reach
	Presets      map[string][]string // optional; of preset:NAME
	Policy       string              // optional; Cedar text of the operator
	Env          []string            // optional; of every command: where the registries are, and the certificates to trust
	Trust        []sandbox.File      // optional; by which programs in a box trust the gateways
	Agents       agent.Set           // optional; the zero Set has those that come with the program
	AgentTimeout time.Duration       // optional; agent.Timeout
	CheckTimeout time.Duration       // optional; DefaultCheckTimeout, of each check
	MaxOutput    int64               // optional; DefaultMaxOutput, of each command
	Rest         cofferdam.Rest      // optional; the defaults of package cofferdam
	Parallel     int                 // optional; cofferdam.DefaultParallel, sessions with a box that runs
	// ProjectParallel is how many of those one project has; optional, Parallel.
	ProjectParallel int
	Look            time.Duration // optional; DefaultLook
	Patience        time.Duration // optional; DefaultPatience
	Log             *slog.Logger  // optional
}

// Wire is the live network of a box.
type Wire interface {
	// ResetStale ends the connections of a box that no wire serves any more,
	// given the box's table of sockets.
	ResetStale(procNetTCP []byte) int
	Close() error
}

// Clean is a writer that removes secrets on the way.
type Clean interface {
	io.Writer
	Flush() error // passes on what is held back
	Held() int    // bytes held back, because a secret could begin there
}

// Runner runs sessions. Safe for concurrent use; a session runs in one process
// at a time.
type Runner struct {
	o     Options
	turns *turns

	mu    sync.Mutex
	alive map[cofferdam.SessionID]life    // sessions with a box that run here; guarded by mu
	ruled map[cofferdam.SessionID][]ruled // of each that runs here, the policies of its wires; guarded by mu

	// judging is held while documents are read and what follows from them is put
	// in place, so that no session is left with older ones. Before mu.
	judging sync.Mutex
}

// New returns a Runner.
func New(o Options) (*Runner, error) {
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, &cofferdam.Error{
			Op: "session.New", Kind: cofferdam.Unavailable, Subject: "folder " + o.Dir, Hint: "make it writable", Err: err,
		}
	}
	if o.Tier == "" {
		o.Tier = sandbox.GVisor
	}
	if o.AgentTimeout == 0 {
		o.AgentTimeout = agent.Timeout
	}
	if o.CheckTimeout == 0 {
		o.CheckTimeout = DefaultCheckTimeout
	}
	if o.MaxOutput == 0 {
		o.MaxOutput = DefaultMaxOutput
	}
	if o.Look == 0 {
		o.Look = DefaultLook
	}
	o.Rest = o.Rest.Lowest(cofferdam.Rest{Idle: cmp.Or(o.Rest.Idle, cofferdam.DefaultIdle), Lifetime: cmp.Or(o.Rest.Lifetime, cofferdam.DefaultLifetime)})
	if o.Patience == 0 {
		o.Patience = DefaultPatience
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	r := &Runner{o: o, turns: newTurns(cmp.Or(o.Parallel, cofferdam.DefaultParallel), o.ProjectParallel), alive: map[cofferdam.SessionID]life{}, ruled: map[cofferdam.SessionID][]ruled{}}
	if o.Connect == nil {
		r.o.Connect = r.attachWire
	}
	return r, nil
}

// Run runs a session to its end and returns what came of it. If an earlier Run
// of the same Plan was cut, by the end of its process or of ctx, it goes on
// where that one stopped, and if that one had ended, the same Result is
// returned again.
//
// An error means that the session is not at its end: nothing was decided about
// the work, the box lives on, and Run can be called again. Whatever stops the
// session itself is in the Result.
func (r *Runner) Run(ctx context.Context, p Plan) (Result, error) {
	a, err := r.open(ctx, p) // the log, read up to where the last process stopped
	if err != nil {
		return Result{}, err
	}
	defer a.leave() // lets go of the wire; every grant of this process is dead
	if !a.ended() {
		err = inOrder(ctx,
			ticket{a}.wait,    // its turn: only so many run at a time
			a.authorize,       // what this session may do, and nothing else
			outfit{a}.prepare, // the environment, made in a box of its own
			a.enter,           // the box
			a.connect,         // its only wire
			a.checkout,        // the workspace, at the exact commit
			outfit{a}.dress,   // what the repository wants run in a new box
			a.work,            // the agent, or the checks
			a.capture,         // what the agent left, onto its branch
		)
		err = a.settle(ctx, err) // the result, on record
	}
	if err != nil {
		return Result{}, err
	}
	return a.finish(ctx) // the box is gone, the log is sealed
}

// inOrder does one step after the other as long as each can be done.
func inOrder(ctx context.Context, steps ...func(context.Context) error) error {
	for _, step := range steps {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// failure ends a session: a finding, not an accident. What is not a failure is
// an error of this machine, and the session can go on after it.
type failure struct {
	code   string // a reason code of Result.Failure
	reason string // the sentence for people
}

func (f *failure) Error() string { return f.reason }

func fail(code, reason string) error { return &failure{code, reason} }

// failFor makes a failure of what is wrong with the task itself; other errors
// stay what they are. One that may pass says what it was about, should it not.
func failFor(code string, err error) error {
	switch cofferdam.KindOf(err) {
	case cofferdam.Invalid, cofferdam.Denied, cofferdam.NotFound, cofferdam.Forbidden:
		return fail(code, err.Error()+" ("+cofferdam.HintOf(err)+")")
	case cofferdam.Unavailable, cofferdam.Exhausted:
		return &Accident{code, err}
	}
	return err
}

// Accident is an error of this machine that Run returns, with what it was about: the
// reason code for a session that is given up because of it.
type Accident struct {
	Code string
	Err  error
}

// Error returns the cause's text.
func (a *Accident) Error() string { return a.Err.Error() }

// Unwrap returns the cause.
func (a *Accident) Unwrap() error { return a.Err }

// settle turns how the steps ended into the session's result and puts it on
// record. An error that is no finding is returned: the session is not over.
func (a *attempt) settle(ctx context.Context, err error) error {
	var f *failure
	switch {
	case errors.Is(context.Cause(ctx), ErrTaskEnded):
		a.result.Failure, a.result.Reason = cofferdam.ReasonCancelled, "its task has ended"
	case ctx.Err() != nil:
		return context.Cause(ctx) // what failed then failed because of that
	case errors.As(err, &f):
		a.result.Failure, a.result.Reason = f.code, f.reason
	case err != nil:
		return err
	}
	return a.recordResult()
}
