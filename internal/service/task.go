package service

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"cofferdam"
	"cofferdam/policy"
	"cofferdam/task"
)

// CreateTask takes a task and sets it in motion. What its names stand for is
// settled here, so that a mistake is told before anything starts.
func (s *Service) CreateTask(ctx context.Context, r cofferdam.TaskRequest) (cofferdam.Task, error) {
	const op = "service.CreateTask"
	by, err := s.who(ctx, op)
	if err != nil {
		return cofferdam.Task{}, err
	}
	if r.Agent == "" {
		r.Agent = "loop" // it needs nothing but a model
		if r.Command != "" {
			r.Agent = "command"
		}
	}
	if err := task.Check(r); err != nil {
		return cofferdam.Task{}, err
	}
	repo, err := s.settle(ctx, op, &r)
	if err != nil {
		return cofferdam.Task{}, err
	}
	t, err := s.Tasks.Create(ctx, task.Order{Scope: s.scope(ctx), By: by, Request: r, Repo: repo})
	if err != nil {
		return cofferdam.Task{}, err
	}
	return t, s.set(ctx, t)
}

// settle finds the repository, model, hosts and image a request names.
func (s *Service) settle(ctx context.Context, op string, r *cofferdam.TaskRequest) (cofferdam.Repo, error) {
	needs, err := s.NeedsModel(r.Agent)
	if err != nil {
		return cofferdam.Repo{}, err
	}
	if err := s.settleModel(ctx, op, r, needs); err != nil {
		return cofferdam.Repo{}, err
	}
	if err := s.settleBudget(ctx, op, r); err != nil {
		return cofferdam.Repo{}, err
	}
	if err := s.settleAllow(ctx, op, r.Allow); err != nil {
		return cofferdam.Repo{}, err
	}
	if err := s.settleContract(op, *r); err != nil {
		return cofferdam.Repo{}, err
	}
	if err := s.settleRest(op, r); err != nil {
		return cofferdam.Repo{}, err
	}
	if err := s.settleImage(ctx, op, r.Image); err != nil {
		return cofferdam.Repo{}, err
	}
	if s.Tier != nil {
		if r.Tier, err = s.Tier(ctx, r.Tier); err != nil {
			return cofferdam.Repo{}, err
		}
	}
	var repo cofferdam.Repo
	if r.Repo == "" {
		all, err := s.Repos.Repos(ctx, s.scope(ctx))
		repo, err = only(op, "repo", "--repo NAME", all, err)
		if err != nil {
			return repo, err
		}
	} else if repo, err = s.Repos.FindRepo(ctx, s.scope(ctx), r.Repo); err != nil {
		return repo, err
	}
	r.Repo = repo.Name
	return repo, nil
}

// settleAllow refuses hosts that the organisation or the project does not let a
// task have.
func (s *Service) settleAllow(ctx context.Context, op string, list []string) error {
	rules, err := policy.ParseAllow(list, s.Presets)
	if err != nil || len(rules) == 0 {
		return err
	}
	d, err := s.documents(ctx, s.scope(ctx))
	if err != nil {
		return err
	}
	if r, name := d.Beyond(rules); name != "" {
		return &cofferdam.Error{
			Op: op, Kind: cofferdam.Denied, Subject: "allow list, " + r.Origin, Reason: fmt.Sprintf("%s is beyond what the policy of the %s lets a task have", r, name),
			Hint: "cofferdam policy view shows its limit, with --organization that of the organisation; an owner can change it",
		}
	}
	return nil
}

// settleContract refuses a scope that nobody could hold: hosts and tools that are
// none, and tools of an agent that runs in the box, where no gateway sees them.
func (s *Service) settleContract(op string, r cofferdam.TaskRequest) error {
	c := r.Contract
	if c == nil {
		return nil
	}
	if _, err := policy.ParseAllow(c.Hosts, nil); err != nil || len(c.Tools) == 0 {
		return err
	}
	var tools []string
	for _, a := range s.Agents {
		if a.Name == r.Agent {
			tools = a.Tools
		}
	}
	if len(tools) == 0 {
		return invalid(op, "scope, tools", "the tools of agent "+r.Agent+" run in the box, where no gateway sees them", "leave --scope-tool out, or name the agent loop; paths and hosts of a scope hold for every agent")
	}
	for _, entry := range c.Tools {
		rule, err := policy.ParseOpening(policy.Invoke, entry)
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(tools, rule.Matches) {
			return invalid(op, fmt.Sprintf("scope, tool %q", entry), "agent "+r.Agent+" has none of this name", "its tools are "+strings.Join(tools, ", "))
		}
	}
	return nil
}

// settleRest refuses a run that is longer than its session may live, and
// questions of an agent that could not be answered.
func (s *Service) settleRest(op string, r *cofferdam.TaskRequest) error {
	rest := s.Rest
	if r.Rest != nil {
		rest = rest.Lowest(*r.Rest)
	}
	if rest.Lifetime > 0 && r.Timeout > rest.Lifetime {
		return invalid(op, "timeout", fmt.Sprintf("%g seconds are longer than the maximum lifetime of a session, %g", r.Timeout, rest.Lifetime),
			"ask for less, or have the operator raise max-lifetime in the server's settings")
	}
	if !r.Ask {
		return nil
	}
	hears, err := s.Hears(r.Agent)
	if err == nil && !hears {
		err = invalid(op, "ask", "its agent "+r.Agent+" holds no conversation, so it cannot be answered", "leave --ask out, or name another agent")
	}
	return err
}

// settleImage refuses an image that this server cannot have, or that the caller
// may not name.
func (s *Service) settleImage(ctx context.Context, op, name string) error {
	switch {
	case name == "" || name == "host":
		return nil
	case !filepath.IsAbs(name):
		return s.Environments.CheckImage(name)
	}
	if err := s.ofMachine(ctx, op, "image that is a folder of the server"); err != nil {
		return err
	}
	if info, err := os.Stat(name); err != nil || !info.IsDir() {
		return invalid(op, "image "+name, "there is no such folder on the server", "leave --image away for an image of the host")
	}
	return nil
}

func (s *Service) settleModel(ctx context.Context, op string, r *cofferdam.TaskRequest, needs bool) error {
	if r.Model != "" {
		m, err := s.Models.FindModel(ctx, s.scope(ctx), r.Model)
		if err != nil {
			return err
		}
		r.Model = m.Name
		if needs && !s.speaks(r.Agent, m) {
			return s.mute(op, r.Agent, m)
		}
		return nil
	}
	if !needs {
		return nil
	}
	all, err := s.Models.Models(ctx, s.scope(ctx))
	if len(all) == 1 && !s.speaks(r.Agent, all[0]) {
		return s.mute(op, r.Agent, all[0])
	}
	all = slices.DeleteFunc(all, func(m cofferdam.Model) bool { return !s.speaks(r.Agent, m) })
	m, err := only(op, "model", "--model NAME", all, err)
	if err != nil {
		return err
	}
	r.Model = m.Name
	return nil
}

// set puts a stored task in motion. The task stays if the engine does not
// answer: the server starts it again when it can.
func (s *Service) set(ctx context.Context, t cofferdam.Task) error {
	if err := s.Flow.Ensure(ctx, t); err != nil {
		return &cofferdam.Error{
			Op: "service.set", Kind: cofferdam.Unavailable, Subject: "starting " + t.Short(), Reason: "the engine does not answer; the task is kept and starts when it does",
			Hint: "cofferdam task follow " + t.Short(), Err: err,
		}
	}
	return nil
}

// Task finds a task by id, unique prefix of an id, or short name.
func (s *Service) Task(ctx context.Context, name string) (cofferdam.Task, error) {
	if err := s.may(ctx, "service.Task"); err != nil {
		return cofferdam.Task{}, err
	}
	t, err := s.Tasks.Get(ctx, s.scope(ctx), name)
	return s.inTurn(t), err
}

// inTurn says of a task whether it waits for its turn.
func (s *Service) inTurn(t cofferdam.Task) cofferdam.Task {
	if n := len(t.Sessions); n > 0 && s.Waits != nil && !t.State.Ended() {
		t.Waits = s.Waits(t.Sessions[n-1])
	}
	return t
}

// ListTasks returns tasks, newest first.
func (s *Service) ListTasks(ctx context.Context, f task.Filter) ([]cofferdam.Task, error) {
	if err := s.may(ctx, "service.ListTasks"); err != nil {
		return nil, err
	}
	all, err := s.Tasks.List(ctx, s.scope(ctx), f)
	for i, t := range all {
		all[i] = s.inTurn(t)
	}
	return all, err
}

// CancelTask ends a task now.
func (s *Service) CancelTask(ctx context.Context, name string) (cofferdam.Task, error) {
	by, err := s.who(ctx, "service.CancelTask")
	if err != nil {
		return cofferdam.Task{}, err
	}
	t, err := s.Tasks.Cancel(ctx, s.scope(ctx), by, name)
	return s.woken(ctx, t, err)
}

// SendTask tells a task something while it runs.
func (s *Service) SendTask(ctx context.Context, name, text string) (cofferdam.TaskMessage, error) {
	const op = "service.SendTask"
	by, err := s.who(ctx, op)
	if err != nil {
		return cofferdam.TaskMessage{}, err
	}
	t, err := s.Tasks.Get(ctx, s.scope(ctx), name)
	if err != nil {
		return cofferdam.TaskMessage{}, err
	}
	hears, err := s.Hears(t.Request.Agent)
	if err != nil {
		return cofferdam.TaskMessage{}, err
	}
	if !hears && !t.State.Ended() { // of an ended task Send says so itself
		return cofferdam.TaskMessage{}, &cofferdam.Error{
			Op: op, Kind: cofferdam.Conflict, Subject: t.Short(), Reason: "its agent " + t.Request.Agent + " holds no conversation, so it cannot be told anything while it runs",
			Hint: "end it with cofferdam task cancel " + t.Short() + " and give a new task",
		}
	}
	return s.Tasks.Send(ctx, s.scope(ctx), by, string(t.ID), text)
}

// RetryTask starts a new attempt; with resume it goes on in the workspace of the
// one before, as that was left. more are limits in the place of those it has.
func (s *Service) RetryTask(ctx context.Context, name string, resume bool, more *cofferdam.Budget) (cofferdam.Task, error) {
	const op = "service.RetryTask"
	by, err := s.who(ctx, op)
	if err != nil {
		return cofferdam.Task{}, err
	}
	before, err := s.Tasks.Get(ctx, s.scope(ctx), name)
	if err != nil {
		return before, err
	}
	if more != nil {
		if more, err = s.raised(ctx, op, before, *more); err != nil {
			return before, err
		}
	}
	undo := func() {}
	if resume {
		if undo, err = s.Workspaces.PassOn(ctx, before); err != nil {
			return before, err
		}
	}
	t, err := s.Tasks.Retry(ctx, s.scope(ctx), by, name, more)
	if err != nil {
		undo()
		return t, err
	}
	return t, s.set(ctx, t)
}

// woken tells the flow of a change. What counts is stored already, and the
// flow looks at the store by itself as well, so a miss is not the caller's error.
func (s *Service) woken(ctx context.Context, t cofferdam.Task, err error) (cofferdam.Task, error) {
	if err != nil {
		return t, err
	}
	_ = s.Flow.Wake(ctx, t) // only a hint
	return t, nil
}

// AtRest says whether nothing more happens to a task without a person.
func AtRest(s cofferdam.TaskState) bool {
	return s.Ended() || s == cofferdam.InReview || s == cofferdam.Waiting
}

// errRest ends a Watch.
var errRest = errors.New("at rest")

// WaitTask returns the task once it is in the state or has ended, for state ""
// once it is at rest, or as it is when limit is over. A state that lasts for a
// moment only can be missed. Of a task that has ended the record is sealed then.
func (s *Service) WaitTask(ctx context.Context, name string, state cofferdam.TaskState, limit time.Duration) (cofferdam.Task, error) {
	t, err := s.Task(ctx, name)
	if err != nil {
		return t, err
	}
	waiting, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err = s.Tasks.Watch(waiting, t.ID, func(now cofferdam.Task) error {
		t = now
		if now.State == state || now.State.Ended() || state == "" && AtRest(now.State) {
			return errRest
		}
		return nil
	})
	if errors.Is(err, errRest) || waiting.Err() != nil && ctx.Err() == nil {
		if t.State.Ended() {
			s.sealed(waiting, t.ID)
		}
		return t, ctx.Err()
	}
	return t, err
}

// sealed returns once the records of all sessions of a task that has ended are
// sealed, or after sealGrace: a keeper that is away does not hold up the news. A
// task that was cancelled has ended before they are.
func (s *Service) sealed(ctx context.Context, id cofferdam.TaskID) {
	ctx, cancel := context.WithTimeout(ctx, sealGrace)
	defer cancel()
	tick := time.NewTicker(sealLook)
	defer tick.Stop()
	for {
		all, err := s.Sessions.Sessions(ctx, s.scope(ctx), id, MaxList)
		if err == nil && !slices.ContainsFunc(all, func(v cofferdam.Session) bool {
			return v.Sealed.IsZero() && v.State != "stopped" && v.State != "failed"
		}) {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// Bounds of a followed task. Source: docs/SPECIFICATION.md, "API".
const (
	sealGrace   = 1 * time.Minute        // for the record once a task has ended
	sealLook    = 100 * time.Millisecond // between two looks whether it is sealed
	followGrace = 5 * time.Second        // for the last events once a task is at rest
	maxFollowed = 64                     // sessions of one task that are followed
)

// FollowTask sends the task at once and at every change, and every event of its
// sessions, until the task is at rest.
func (s *Service) FollowTask(ctx context.Context, name string, send func(cofferdam.Progress) error) error {
	t, err := s.Task(ctx, name)
	if err != nil {
		return err
	}
	f := &follower{s: s, items: make(chan cofferdam.Progress), seen: map[cofferdam.SessionID]bool{}, rests: make(chan struct{})}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go f.run(ctx, t.ID)
	for p := range f.items {
		if err := send(p); err != nil {
			cancel()
			for range f.items { // let run end
			}
			return fmt.Errorf("sending progress of %s: %w", t.Short(), err)
		}
	}
	return f.err
}
