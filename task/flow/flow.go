package flow

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"cofferdam"
	"cofferdam/proof"
	"cofferdam/session"
	"cofferdam/task"
)

// Sessions runs one session to its end. Run with a plan that has run before
// goes on where that run stopped, or returns its result. See
// session.ErrTaskEnded for how a run is told to end.
type Sessions interface {
	Run(ctx context.Context, p session.Plan) (session.Result, error)
}

// Repos is what a task needs of a repository's mirror and its upstream.
type Repos interface {
	Sync(ctx context.Context, r cofferdam.Repo) error
	// FreeBranch returns want, or one of a name like it if the upstream has want.
	FreeBranch(ctx context.Context, r cofferdam.Repo, want cofferdam.Ref) (cofferdam.Ref, error)
	Resolve(ctx context.Context, r cofferdam.Repo, ref cofferdam.Ref) (cofferdam.Commit, error)
	IsAncestor(ctx context.Context, r cofferdam.Repo, old, new cofferdam.Commit) (bool, error)
	// Land moves base from old to new, fast-forward only. If base holds new
	// already that is no error; if it holds anything else, a Conflict.
	Land(ctx context.Context, r cofferdam.Repo, base cofferdam.Ref, old, new cofferdam.Commit) error
}

// Store is what a flow needs kept beside what package task keeps.
type Store interface {
	RepoByID(ctx context.Context, id cofferdam.RepoID) (cofferdam.Repo, error)
	FindModel(ctx context.Context, scope cofferdam.Scope, name string) (cofferdam.Model, error)
	// BeginSession keeps a plan before its session starts: purpose is base, work
	// or proof, try counts from 1.
	BeginSession(ctx context.Context, purpose string, try int, p session.Plan) error
	// LatestSession returns the newest try; result is nil while it has none.
	LatestSession(ctx context.Context, t cofferdam.TaskID, attempt int, purpose string) (p session.Plan, result *session.Result, try int, err error)
	// SaveResult keeps a result; saving again changes nothing and is no error.
	SaveResult(ctx context.Context, r session.Result) error
	// OpenSessions lists the plans of all sessions without a result.
	OpenSessions(ctx context.Context) ([]session.Plan, error)
	TaskUsage(ctx context.Context, t cofferdam.TaskID) (cofferdam.Usage, error)
	// AddReceipt keeps a receipt, or returns the one that is there.
	AddReceipt(ctx context.Context, r task.Receipt) (task.Receipt, error)
	LandingOf(ctx context.Context, t cofferdam.TaskID, commit cofferdam.Commit) (task.Landing, error)
	FinishLanding(ctx context.Context, t cofferdam.TaskID, commit cofferdam.Commit, at time.Time) error
	DropLanding(ctx context.Context, t cofferdam.TaskID, commit cofferdam.Commit) error
}

// Signer signs receipts; proof.Signer is one.
type Signer interface {
	Sign(r proof.Receipt) ([]byte, error)
}

// Options is what a Flow is made from. All fields are needed unless a comment
// says otherwise.
type Options struct {
	Client   client.Client
	Tasks    *task.Service
	Store    Store
	Sessions Sessions
	Repos    Repos
	Signer   Signer
	Record   cofferdam.Recorder // the host log
	// Landable is asked right before the base branch moves, beside
	// Tasks.Landable; package merge offers one that checks the receipt's
	// signature. nil: nobody more is asked.
	Landable func(ctx context.Context, t cofferdam.Task) error
	// Land calls move, which moves the base branch, once policy let it and that is
	// on record; package merge offers it. by is who asked for the landing.
	Land func(ctx context.Context, t cofferdam.Task, by cofferdam.Principal, move func(context.Context) error) error
	Log  *slog.Logger // nil: none
	// Point is told where the flow stands: "prepare:before", "prepare:after"
	// and so on for every activity, and "land:moved" between the move of the
	// base branch and its entry in the store. Crash tests end the process
	// there. nil: nobody is told.
	Point func(name string)
}

// Bounds of the flow. Source: docs/SPECIFICATION.md, "Task".
const (
	maxActivities  = 256 // most of them wait for a session's turn
	maxStarts      = 8   // workflows that are started at a time after the server was
	maxTurns       = 200 // of one workflow run, then it begins a fresh history
	maxTries       = 3   // sessions for one purpose when boxes are lost
	maxRepeats     = 6   // of an activity that fails; with the pauses below 15 s
	firstPause     = 500 * time.Millisecond
	longestPause   = 10 * time.Second
	heartbeatLimit = 30 * time.Second
	heartbeatPause = heartbeatLimit / 3
	stepLimit      = cofferdam.MaxLifetime*time.Second + 24*time.Hour // no session lives longer, nor any other step
	quickLimit     = time.Minute
	waitPause      = 15 * time.Minute // a waiting workflow looks by itself this often
	sweepPause     = 15 * time.Second
	stopPause      = 10 * time.Second
	startPause     = time.Second // between tries to begin
)

const (
	queue        = "cofferdam"
	workflowName = "task"
	wakeSignal   = "wake"
)

// Input is all that a workflow is told.
type Input struct {
	Task    cofferdam.TaskID `json:"task"`
	Attempt int              `json:"attempt"`
}

// Flow works on tasks. Safe for concurrent use.
type Flow struct {
	o      Options
	steps  *steps
	worker worker.Worker
	stop   context.CancelCauseFunc
	life   context.Context
	swept  sync.WaitGroup
}

var _ Starter = (*Flow)(nil)

// errClosing is why steps are interrupted when this process goes away.
var errClosing = errors.New("the server is going away")

// New returns a Flow that works once Run was called. ctx is its life: steps are
// interrupted when it ends, or at Close.
func New(ctx context.Context, o Options) *Flow {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Point == nil {
		o.Point = func(string) {}
	}
	if o.Landable == nil {
		o.Landable = func(context.Context, cofferdam.Task) error { return nil }
	}
	life, stop := context.WithCancelCause(ctx)
	return &Flow{o: o, life: life, stop: stop, steps: newSteps(o)}
}

// hire starts a worker. One that did not start never does: each try needs a new one.
func (f *Flow) hire() error {
	w := worker.New(f.o.Client, queue, worker.Options{
		BackgroundActivityContext:          f.life,
		MaxConcurrentActivityExecutionSize: maxActivities,
		WorkerStopTimeout:                  stopPause,
		DisableRegistrationAliasing:        true,
	})
	w.RegisterWorkflowWithOptions(attempt, workflow.RegisterOptions{Name: workflowName})
	for name, do := range f.steps.table() {
		w.RegisterActivityWithOptions(do, activity.RegisterOptions{Name: string(name)})
	}
	if err := w.Start(); err != nil {
		return fmt.Errorf("starting to work on tasks: %w", err)
	}
	f.worker = w
	return nil
}

// Run starts to work: it takes up everything that is open in the store and
// then looks for what was missed, until Close. It returns once the first is done.
// An engine that is away is waited for as long as ctx lasts.
func (f *Flow) Run(ctx context.Context) error {
	var asleep []Input
	for {
		err := error(nil)
		if f.worker == nil {
			err = f.hire()
		}
		if err == nil {
			asleep, err = f.resume(ctx)
		}
		if err == nil {
			break
		}
		f.o.Log.WarnContext(ctx, "work cannot begin and is tried again", slog.Any("error", err))
		select {
		case <-ctx.Done():
			return err
		case <-time.After(startPause):
		}
	}
	f.swept.Go(func() {
		if err := f.startAll(f.life, asleep); err != nil && f.life.Err() == nil {
			f.o.Log.WarnContext(f.life, "workflows of waiting tasks cannot be started again", slog.Any("error", err))
		}
		f.sweep()
	})
	return nil
}

// Close interrupts what is being done and waits for it. Sessions live on in
// their boxes; the next Run goes on with them.
func (f *Flow) Close() {
	f.stop(errClosing)
	if f.worker != nil {
		f.worker.Stop()
	}
	f.swept.Wait()
}

// Ensure implements Starter.
func (f *Flow) Ensure(ctx context.Context, t cofferdam.Task) error {
	return f.start(ctx, Input{t.ID, t.Attempt}, enumspb.WORKFLOW_ID_CONFLICT_POLICY_USE_EXISTING)
}

// Wake implements Starter.
func (f *Flow) Wake(ctx context.Context, t cofferdam.Task) error {
	in := Input{t.ID, t.Attempt}
	if _, err := f.o.Client.SignalWithStartWorkflow(ctx, workflowID(in), wakeSignal, nil, options(in), workflowName, in); err != nil {
		return fmt.Errorf("waking %s: %w", t.Short(), err)
	}
	return nil
}

// Asks is for sessions: a task's agent waits for an answer to question, or, with
// "", does not any more.
func (f *Flow) Asks(ctx context.Context, p session.Plan, question string) error {
	return f.steps.asks(ctx, p, question)
}

// Resume starts a workflow for everything that is open in the store or in the
// engine, in place of any that the engine remembers: its steps ran in a process
// that is gone, or are found running by their successors. To be called whenever
// the engine was started again.
func (f *Flow) Resume(ctx context.Context) error {
	asleep, err := f.resume(ctx)
	if err != nil {
		return err
	}
	return f.startAll(ctx, asleep)
}

// resume starts what has something to do and returns what waits for a person
// and has a workflow: that one may be stuck in a step of a process that is gone,
// but there is time. What waits without a workflow gets one when it is woken.
func (f *Flow) resume(ctx context.Context) (asleep []Input, err error) {
	open, err := f.open(ctx)
	if err != nil {
		return nil, err
	}
	running, err := f.running(ctx)
	if err != nil {
		return nil, err
	}
	var busy []Input
	for _, in := range open {
		step, err := f.o.Tasks.Next(ctx, in.Task, in.Attempt)
		if err != nil {
			return nil, fmt.Errorf("asking what is next for %s: %w", in.Task, err)
		}
		switch {
		case step.Do != task.DoWait:
			busy = append(busy, in)
		case slices.Contains(running, in):
			asleep = append(asleep, in)
		}
	}
	for _, in := range running {
		if !slices.Contains(open, in) {
			busy = append(busy, in)
		}
	}
	return asleep, f.startAll(ctx, busy)
}

// startAll starts workflows, a few at a time, in place of those that run.
func (f *Flow) startAll(ctx context.Context, all []Input) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	slots := make(chan struct{}, maxStarts)
	var started sync.WaitGroup
	for _, in := range all {
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			started.Wait()
			return context.Cause(ctx)
		}
		started.Go(func() {
			defer func() { <-slots }()
			if err := f.start(ctx, in, enumspb.WORKFLOW_ID_CONFLICT_POLICY_TERMINATE_EXISTING); err != nil {
				cancel(err)
			}
		})
	}
	started.Wait()
	return context.Cause(ctx)
}

// running lists what the engine thinks is under way.
func (f *Flow) running(ctx context.Context) ([]Input, error) {
	var all []Input
	var page []byte
	for {
		l, err := f.o.Client.ListWorkflow(ctx, &workflowservice.ListWorkflowExecutionsRequest{
			Query: "ExecutionStatus = 'Running'", NextPageToken: page,
		})
		if err != nil {
			return nil, fmt.Errorf("listing what the engine works on: %w", err)
		}
		for _, e := range l.GetExecutions() {
			if in, ok := inputOf(e.GetExecution().GetWorkflowId()); ok {
				all = append(all, in)
			}
		}
		if page = l.GetNextPageToken(); len(page) == 0 {
			return all, nil
		}
	}
}

// open lists the attempts that have not ended, and those that have but left a
// session behind.
func (f *Flow) open(ctx context.Context) ([]Input, error) {
	tasks, err := f.o.Tasks.Open(ctx)
	if err != nil {
		return nil, fmt.Errorf("listing open tasks: %w", err)
	}
	plans, err := f.o.Store.OpenSessions(ctx)
	if err != nil {
		return nil, fmt.Errorf("listing open sessions: %w", err)
	}
	seen, all := map[Input]bool{}, []Input{}
	add := func(in Input) {
		if !seen[in] {
			seen[in], all = true, append(all, in)
		}
	}
	for _, t := range tasks {
		add(Input{t.ID, t.Attempt})
	}
	for _, p := range plans {
		add(Input{p.Task, p.Attempt})
	}
	return all, nil
}

// sweep looks for what was missed, until the flow is closed.
func (f *Flow) sweep() {
	tick := time.NewTicker(sweepPause)
	defer tick.Stop()
	idle := map[Input]bool{}
	for {
		select {
		case <-f.life.Done():
			return
		case <-tick.C:
			idle = f.look(f.life, idle)
		}
	}
}

// look finds attempts that have something to do while nothing is done for them,
// because the engine was away when it should have been told, and wakes those
// that were so the last time as well: what is new is left alone once. The store
// is the truth, so nothing can stay forgotten.
func (f *Flow) look(ctx context.Context, before map[Input]bool) (idle map[Input]bool) {
	open, err := f.open(ctx)
	if err != nil {
		f.o.Log.WarnContext(ctx, "open tasks cannot be listed", slog.Any("error", err))
		return before
	}
	idle = map[Input]bool{}
	for _, in := range open {
		step, err := f.o.Tasks.Next(ctx, in.Task, in.Attempt)
		if err != nil || step.Do == task.DoWait || f.steps.busy(in) {
			continue
		}
		idle[in] = true
		if before[in] {
			if err := f.Wake(ctx, cofferdam.Task{ID: in.Task, Attempt: in.Attempt}); err != nil {
				f.o.Log.WarnContext(ctx, "a task cannot be woken", slog.String("task", string(in.Task)), slog.Any("error", err))
			}
		}
	}
	return idle
}

func (f *Flow) start(ctx context.Context, in Input, p enumspb.WorkflowIdConflictPolicy) error {
	o := options(in)
	o.WorkflowIDConflictPolicy = p
	if _, err := f.o.Client.ExecuteWorkflow(ctx, o, workflowName, in); err != nil {
		return fmt.Errorf("starting work on %s: %w", in.Task, err)
	}
	return nil
}

func options(in Input) client.StartWorkflowOptions {
	return client.StartWorkflowOptions{
		ID: workflowID(in), TaskQueue: queue,
		WorkflowIDReusePolicy: enumspb.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE,
	}
}

func workflowID(in Input) string {
	return "task/" + string(in.Task) + "/" + strconv.Itoa(in.Attempt)
}

// inputOf is the reverse of workflowID.
func inputOf(id string) (in Input, ok bool) {
	part := strings.Split(id, "/")
	if len(part) != 3 || part[0] != "task" {
		return in, false
	}
	n, err := strconv.Atoi(part[2])
	return Input{cofferdam.TaskID(part[1]), n}, err == nil
}
