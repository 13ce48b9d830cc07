package task

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"cofferdam"
)

// Options is what a Service is made from: a Store and a Record; the rest is
// optional.
type Options struct {
	Store  Store
	Record cofferdam.Recorder // the host log
	Now    func() time.Time   // nil: time.Now
	// Hourly is how many tasks a project gets within an hour; 0: any number.
	Hourly int
}

// Service is the verbs of a task. Safe for concurrent use.
type Service struct {
	store   Store
	record  cofferdam.Recorder
	now     func() time.Time
	changes *changes
	hourly  int
	making  sync.Mutex // one task is counted and made at a time, where there is a limit
}

// New returns a Service.
func New(o Options) *Service {
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Service{store: o.Store, record: o.Record, now: o.Now, changes: newChanges(), hourly: o.Hourly}
}

// Order is what Create needs beside the request: whose it is and what its names
// stand for.
type Order struct {
	cofferdam.Scope
	By      cofferdam.Principal
	Request cofferdam.TaskRequest
	Repo    cofferdam.Repo // what Request.Repo stands for
}

// Create takes a task. With a Request.Key that was used before for the same
// request it returns the task made then.
func (s *Service) Create(ctx context.Context, o Order) (cofferdam.Task, error) {
	if err := Check(o.Request); err != nil {
		return cofferdam.Task{}, err
	}
	base := o.Repo.Base
	if o.Request.Base != "" {
		ref, err := BranchRef(o.Request.Base)
		if err != nil {
			return cofferdam.Task{}, invalid("base branch", err.Error(), "give the name of a branch, such as main")
		}
		base = ref
	}
	if o.Repo.Scope != o.Scope || o.Repo.ID == "" || base == "" {
		return cofferdam.Task{}, invalid("repository", "is not one of this project", "list repositories with cofferdam repo list")
	}
	now := s.now().UTC()
	t := cofferdam.Task{
		Schema: "cofferdam/task/v1", ID: cofferdam.TaskID(cofferdam.NewID("t")), Scope: o.Scope,
		Request: o.Request, Repo: o.Repo.ID, State: cofferdam.Queued, Attempt: 1, Base: base,
		RegressionOnly: regressionOnly(o.Request.Checks), By: o.By, Created: now, Updated: now,
	}
	full, done, err := s.admit(ctx, t)
	if err != nil {
		return cofferdam.Task{}, err
	}
	defer done()
	kept, made, err := s.store.CreateTask(ctx, t, func(t cofferdam.Task) error {
		if full != nil {
			return full // here, because a repeated request has its task already and makes none
		}
		if _, err := s.record.Record(ctx, s.event(t, "", o.By)); err != nil {
			return unrecorded("task.Create", t, err)
		}
		return nil
	})
	if err == nil && made {
		s.changes.tell()
	}
	return kept, err
}

// window is what Options.Hourly is about.
const window = time.Hour

// admit says why a project gets no new task now, with the time in which it does.
// Until done is called no other task is counted, so that two at the same moment
// are not both the last one.
func (s *Service) admit(ctx context.Context, t cofferdam.Task) (full error, done func(), err error) {
	if s.hourly == 0 {
		return nil, func() {}, nil
	}
	s.making.Lock()
	at, err := s.store.NewestTask(ctx, t.Scope, s.hourly)
	if err != nil {
		s.making.Unlock()
		return nil, nil, err
	}
	if after := at.Add(window).Sub(t.Created); !at.IsZero() && after > 0 {
		after = min(after, window) // a clock that was put back
		full = &cofferdam.Error{
			Op: "task.Create", Kind: cofferdam.Exhausted, Subject: "task", After: after,
			Reason: fmt.Sprintf("this project has made the %d tasks that it may make within an hour", s.hourly),
			Hint:   fmt.Sprintf("try again in %s, or have the operator raise tasks-per-hour", after.Round(time.Second)),
		}
	}
	return full, s.making.Unlock, nil
}

// unrecorded is the refusal of a change that could not be put on record. What
// the recorder says of it, a full disk perhaps, is what a person reads.
func unrecorded(op string, t cofferdam.Task, cause error) error {
	e := &cofferdam.Error{Op: op, Kind: cofferdam.Unavailable, Subject: t.Short() + " cannot be put on record", Reason: "the record does not take it", Hint: "see whether the disk of the state folder is full", Err: cause}
	var told *cofferdam.Error
	if errors.As(cause, &told) {
		e.Kind, e.Reason = told.Kind, told.Error()
		if told.Hint != "" {
			e.Hint = told.Hint
		}
	}
	return e
}

func regressionOnly(checks []cofferdam.Check) bool {
	for _, c := range checks {
		if c.MustFailFirst {
			return false
		}
	}
	return true
}

// Get finds a task by id, unique prefix of an id, or short name "t-42".
func (s *Service) Get(ctx context.Context, scope cofferdam.Scope, name string) (cofferdam.Task, error) {
	return s.store.FindTask(ctx, scope, name)
}

// ByID finds a task of any scope; for the platform, not for faces.
func (s *Service) ByID(ctx context.Context, id cofferdam.TaskID) (cofferdam.Task, error) {
	return s.store.TaskByID(ctx, id)
}

// List returns the tasks of a scope, newest first.
func (s *Service) List(ctx context.Context, scope cofferdam.Scope, f Filter) ([]cofferdam.Task, error) {
	if f.Limit <= 0 || f.Limit > MaxList {
		f.Limit = MaxList
	}
	return s.store.Tasks(ctx, scope, f)
}

// Open returns every task that has not ended, of all scopes: what a server that
// starts has to go on with.
func (s *Service) Open(ctx context.Context) ([]cofferdam.Task, error) { return s.store.OpenTasks(ctx) }

// Cancel ends a task now. What is running for it notices and is torn down.
// Cancelling a task that was cancelled is no error.
func (s *Service) Cancel(ctx context.Context, scope cofferdam.Scope, by cofferdam.Principal, name string) (cofferdam.Task, error) {
	t, err := s.store.FindTask(ctx, scope, name)
	if err != nil || t.State == cofferdam.Cancelled {
		return t, err
	}
	return s.move(ctx, t.ID, by, func(t *cofferdam.Task) error {
		if t.State.Ended() {
			return s.stale("task.Cancel", *t, fmt.Sprintf("has ended already: %s", t.State), "")
		}
		t.State, t.Reason, t.Comment = cofferdam.Cancelled, cofferdam.ReasonCancelled, "cancelled by "+by.Name
		return nil
	})
}

// Retry starts a new attempt of a task that ended without landing, or that a
// person has in review. It starts from the base branch as it is then. limits take
// the place of those that the task has; nil leaves them. What was used stays used.
func (s *Service) Retry(ctx context.Context, scope cofferdam.Scope, by cofferdam.Principal, name string, limits *cofferdam.Budget) (cofferdam.Task, error) {
	t, err := s.store.FindTask(ctx, scope, name)
	if err != nil {
		return t, err
	}
	if err := checkBudget(cofferdam.TaskRequest{Budget: limits}); err != nil {
		return t, err
	}
	var said map[string]string
	if limits != nil {
		said = map[string]string{"budget": limits.String()}
	}
	return s.moveWith(ctx, t.ID, by, said, func(t *cofferdam.Task) error {
		if err := mayMove(t.State, cofferdam.Queued); err != nil {
			return s.stale("task.Retry", *t, err.Error(), "only a task that ended without landing, or is in review, can be tried again")
		}
		if t.Attempt >= MaxAttempt {
			return &cofferdam.Error{Op: "task.Retry", Kind: cofferdam.Exhausted, Subject: t.Short(), Reason: fmt.Sprintf("had %d attempts", t.Attempt), Hint: "give a new task"}
		}
		if l, err := s.store.LandingOf(ctx, t.ID, t.Head); err == nil && t.Head != "" && t.State == cofferdam.InReview {
			return s.stale("task.Retry", *t, "is being landed since "+l.Asked.Format(time.RFC3339), "wait until it has landed")
		}
		if err := s.void(ctx, *t, by); err != nil {
			return err
		}
		t.Attempt++
		if limits != nil {
			t.Raised = limits
		}
		t.State, t.Reason, t.Comment = cofferdam.Queued, "", ""
		t.BaseAt, t.Head, t.Receipt, t.Branch = "", "", "", Branch(t.Number, t.Attempt)
		return nil
	})
}

// void puts on record that the approval of a commit counts no longer, because
// its task will have another.
func (s *Service) void(ctx context.Context, t cofferdam.Task, by cofferdam.Principal) error {
	if t.Head == "" {
		return nil
	}
	a, err := s.store.Approval(ctx, t.ID, t.Head)
	if cofferdam.KindOf(err) == cofferdam.NotFound {
		return nil
	}
	if err != nil {
		return err
	}
	_, err = s.record.Record(ctx, cofferdam.Event{
		Scope: t.Scope, Task: t.ID, Actor: by, Source: "task", Kind: cofferdam.EventVoid, Resource: t.Short(), Durable: true,
		Fields: map[string]string{"commit": string(t.Head), "approved_by": a.By.String()},
	})
	if err != nil {
		return unrecorded("task.Retry", t, err)
	}
	return nil
}

// Reject ends a task in review: a person does not want its change.
func (s *Service) Reject(ctx context.Context, scope cofferdam.Scope, by cofferdam.Principal, name string, r cofferdam.RejectRequest, how string) (cofferdam.Task, error) {
	if !by.IsPerson() {
		return cofferdam.Task{}, onlyPersons("task.Reject", name, "reject")
	}
	t, err := s.store.FindTask(ctx, scope, name)
	if err != nil {
		return t, err
	}
	said := map[string]string{"commit": string(r.Commit), "proof": how}
	return s.moveWith(ctx, t.ID, by, said, func(t *cofferdam.Task) error {
		if t.State != cofferdam.InReview {
			return s.stale("task.Reject", *t, fmt.Sprintf("is %s, not in review", t.State), "")
		}
		if r.Commit != t.Head {
			return s.stale("task.Reject", *t, fmt.Sprintf("wants %.12s merged, not %.12s", t.Head, r.Commit), "cofferdam merge view "+t.Short()+" shows what there is now")
		}
		if _, err := s.store.LandingOf(ctx, t.ID, t.Head); err == nil {
			return s.stale("task.Reject", *t, "is being landed", "wait until it has landed")
		}
		t.State, t.Reason, t.Comment = cofferdam.Blocked, cofferdam.ReasonRejected, clip("rejected by "+by.Name+": "+r.Reason)
		return nil
	})
}

// RequestLand asks that the approved commit of a task lands. commit is what the
// person saw; "" takes the task's own. It only keeps the wish: wake the flow.
func (s *Service) RequestLand(ctx context.Context, scope cofferdam.Scope, by cofferdam.Principal, name string, commit cofferdam.Commit) (cofferdam.Task, error) {
	if !by.IsPerson() {
		return cofferdam.Task{}, onlyPersons("task.RequestLand", name, "land")
	}
	t, err := s.store.FindTask(ctx, scope, name)
	if err != nil || t.State == cofferdam.Done {
		return t, err
	}
	if commit == "" {
		commit = t.Head
	}
	if t.State != cofferdam.InReview || commit != t.Head {
		return t, s.stale("task.RequestLand", t, fmt.Sprintf("is %s at commit %q", t.State, t.Head), "look at it again with cofferdam merge view "+t.Short())
	}
	if err := s.Landable(ctx, t); err != nil {
		return t, err
	}
	l := Landing{Scope: t.Scope, Task: t.ID, Attempt: t.Attempt, Commit: commit, Base: t.Base, By: by, Asked: s.now().UTC()}
	if err := s.store.AskLanding(ctx, l); err != nil {
		return t, err
	}
	s.changes.tell()
	return t, nil
}

// Landable holds the gate before a landing: a receipt and a person's approval
// for exactly the task's commit.
func (s *Service) Landable(ctx context.Context, t cofferdam.Task) error {
	const op = "task.Landable"
	if _, err := s.store.ReceiptFor(ctx, t.ID, t.Head); cofferdam.KindOf(err) == cofferdam.NotFound {
		return &cofferdam.Error{Op: op, Kind: cofferdam.Conflict, Subject: t.Short(), Reason: "has no proof for its commit", Hint: "cofferdam task retry " + t.Short(), Err: err}
	} else if err != nil {
		return err
	}
	a, err := s.store.Approval(ctx, t.ID, t.Head)
	switch {
	case cofferdam.KindOf(err) == cofferdam.NotFound:
		return &cofferdam.Error{Op: op, Kind: cofferdam.AwaitsPerson, Subject: t.Short(), Reason: "no person has approved its commit", Hint: "cofferdam merge approve " + t.Short(), Err: err}
	case err != nil:
		return err
	case !a.By.IsPerson() || a.Commit != t.Head:
		return &cofferdam.Error{Op: op, Kind: cofferdam.Tampered, Subject: t.Short(), Reason: "its approval is not a person's word for its commit", Hint: "do not land it; keep the state folder and look into the host log"}
	}
	return nil
}

func onlyPersons(op, name, verb string) error {
	return &cofferdam.Error{Op: op, Kind: cofferdam.Forbidden, Subject: name, Reason: "only a person may " + verb, Hint: "a person runs this at a terminal"}
}

func (s *Service) stale(op string, t cofferdam.Task, reason, hint string) error {
	return &cofferdam.Error{Op: op, Kind: cofferdam.Conflict, Subject: t.Short(), Reason: reason, Hint: hint}
}

// event is a change of state as it goes on record.
func (s *Service) event(t cofferdam.Task, from cofferdam.TaskState, by cofferdam.Principal) cofferdam.Event {
	f := map[string]string{"to": string(t.State), "attempt": strconv.Itoa(t.Attempt)}
	for k, v := range map[string]string{
		"from": string(from), "reason": t.Reason, "comment": t.Comment,
		"base": string(t.BaseAt), "commit": string(t.Head), "receipt": string(t.Receipt), "landed": string(t.Landed),
	} {
		if v != "" {
			f[k] = v
		}
	}
	return cofferdam.Event{
		Scope: t.Scope, Task: t.ID, Actor: by, Source: "task", Kind: cofferdam.EventTaskState,
		Resource: t.Short(), Reason: t.Comment, Fields: f, Durable: t.State.Ended(),
	}
}

// MaxComment bounds the one sentence for people that a task carries.
const MaxComment = 1 << 10

func clip(s string) string {
	if len(s) <= MaxComment {
		return s
	}
	cut := MaxComment
	for cut > 0 && s[cut]&0xc0 == 0x80 { // not inside a character
		cut--
	}
	return s[:cut] + "…"
}
