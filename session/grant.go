package session

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"cofferdam"
	"cofferdam/gateway"
	"cofferdam/policy"
	"cofferdam/sandbox"
)

// maxProjectFile bounds what is read of a repository's project file; policy has
// the same bound and says it better.
const maxProjectFile = 64<<10 + 1

// grant is what the session may do and use.
type grant struct {
	caller *gateway.Caller
	limits cofferdam.Limits
	rest   cofferdam.Rest
	keep   time.Duration // of the workspace, as the project file has it
	hosts  []policy.Rule // what the work may reach, and setup no more than that
}

// authorize fixes what this session may do: what the task was given, narrowed
// by the project file of the base commit, with the operator's policy over it.
func (a *attempt) authorize(ctx context.Context) error {
	if len(a.adapter.Providers) > 0 && a.plan.Model.Name == "" {
		return fail(cofferdam.ReasonProvider, "agent "+a.adapter.Name+" calls a model, and the task has none")
	}
	project, err := a.project(ctx, a.plan)
	if err != nil {
		return err
	}
	compile, err := a.workOf(a.plan, project)
	if err != nil {
		return err
	}
	a.grant.limits, a.grant.keep = limits(a.plan.Request.Limits, project), project.Keep
	a.grant.rest = a.o.Rest.Lowest(project.Rest)
	if r := a.plan.Request.Rest; r != nil {
		a.grant.rest = a.grant.rest.Lowest(*r)
	}
	if err := (spending{a}).timeLeft(); err != nil {
		return err
	}
	if a.grant.caller, err = a.caller(ctx, compile, a.plan.Phase); err != nil {
		return err
	}
	g := a.grant.caller.Policy.Set().Grant()
	reach, err := policy.Grant{Allow: g.Hosts()}.Narrow(project)
	if err != nil {
		return failFor(cofferdam.ReasonPolicy, err)
	}
	a.grant.hosts = reach.Allow
	return a.ledger.policy(ctx, a.grant.caller.Policy.Set())
}

// project reads the project file, which comes from the base commit: what an
// agent writes into it narrows nothing and widens nothing.
func (r *Runner) project(ctx context.Context, of Plan) (policy.Project, error) {
	text, err := r.o.ReadFile(ctx, of.Repo.ID, of.base(), policy.ProjectPath, maxProjectFile)
	if err != nil && cofferdam.KindOf(err) == cofferdam.NotFound {
		return policy.Project{}, nil
	}
	if err != nil {
		return policy.Project{}, failFor(cofferdam.ReasonPolicy, err)
	}
	p, err := policy.ParseProject(text)
	return p, failFor(cofferdam.ReasonPolicy, err)
}

// caller makes the identity under which the gateways know a wire.
func (a *attempt) caller(ctx context.Context, compile compiling, phase gateway.Phase) (*gateway.Caller, error) {
	a.judging.Lock()
	defer a.judging.Unlock()
	d, err := a.documents(ctx, a.plan.Scope)
	if err != nil {
		return nil, err
	}
	g, err := compile(d)
	if err != nil {
		return nil, failFor(cofferdam.ReasonPolicy, err)
	}
	g.At = time.Now()
	follows := ruled{scope: a.plan.Scope, compile: compile, ledger: a.ledger}
	if phase == gateway.Work {
		follows.task = a.plan.Task
		if g.Openings, err = a.openings(ctx, follows.task); err != nil {
			return nil, err
		}
	}
	set, err := policy.New(g)
	if err != nil {
		return nil, failFor(cofferdam.ReasonPolicy, err)
	}
	rules := gateway.NewRules(set)
	follows.rules = rules
	a.follow(a.plan.ID, follows)
	p := a.plan
	c := &gateway.Caller{
		Scope: p.Scope, Task: p.Task, Session: p.ID, Actor: cofferdam.Principal{Kind: cofferdam.Platform, Name: string(phase)},
		Phase: phase, Policy: rules, Record: a.ledger, Live: a.live,
	}
	if phase != gateway.Proof { // a check answers for itself: nobody waits for people there
		c.Ask = a.o.Ask
	}
	if phase == gateway.Work {
		c.Actor = cofferdam.Principal{Kind: cofferdam.Agent, Name: a.adapter.Name}
	}
	if phase != gateway.Setup {
		c.Repo, c.Branch, c.Model = p.Repo, p.Branch, p.Model
		c.Base, c.Contract = p.baseBranch(), p.Request.Contract
	}
	if phase == gateway.Proof {
		// Of the agents' branches a session sees its attempt's and no other: the
		// commit to prove is there. The grant names none, so none may be written.
		c.Branch = cmp.Or(p.Sees, cofferdam.Ref(fmt.Sprintf("refs/heads/cofferdam/t-%d-%d", p.Number, p.Attempt))) // an older server's plan says none
	}
	a.ledger.look(func(s *seen) { // what an earlier process let through counts as well
		c.Counts.Acts.Store(s.acts)
		c.Counts.Refused.Store(s.usage.Refused)
		c.Counts.ModelCalls.Store(s.usage.ModelCalls)
		c.Counts.InputTokens.Store(s.usage.InputTokens)
		c.Counts.OutputTokens.Store(s.usage.OutputTokens)
		c.Counts.Cost.Store(s.usage.Cost)
		c.Counts.Unpriced.Store(s.usage.Unpriced)
	})
	c.Budget = spending{a}.meter(ctx)
	return c, nil
}

// limits are those of a task, nil if it names none, in a project.
func limits(asked *cofferdam.Limits, project policy.Project) cofferdam.Limits {
	l := sandbox.DefaultLimits
	if asked != nil {
		l = fill(*asked, l)
	}
	l = project.NarrowLimits(l)
	if asked == nil || asked.Temp == 0 {
		l.Temp = min(l.Temp, l.Memory/4) // as a box has it that names none
	}
	return l
}

// fill returns l with the fields that say nothing taken from other.
func fill(l, other cofferdam.Limits) cofferdam.Limits {
	for _, f := range []struct{ to, from *int64 }{
		{&l.Memory, &other.Memory},
		{&l.Disk, &other.Disk},
		{&l.Temp, &other.Temp},
		{&l.PIDs, &other.PIDs},
		{&l.OpenFiles, &other.OpenFiles},
	} {
		if *f.to == 0 {
			*f.to = *f.from
		}
	}
	if l.CPU == 0 {
		l.CPU = other.CPU
	}
	return l
}
