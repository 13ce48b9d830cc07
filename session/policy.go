package session

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"cofferdam"
	"cofferdam/gateway"
	"cofferdam/policy"
)

// compiling makes the grant of one wire of a session from the documents that
// count at the time.
type compiling func(policy.Documents) (policy.Grant, error)

// ruled is a wire's policy that follows the documents while it is served here.
type ruled struct {
	scope   cofferdam.Scope
	task    cofferdam.TaskID // whose openings count; "" for none
	compile compiling
	rules   *gateway.Rules
	ledger  *ledger
}

// documents are those that count for a project now; none if nobody keeps them.
func (r *Runner) documents(ctx context.Context, scope cofferdam.Scope) (policy.Documents, error) {
	if r.o.Documents == nil {
		return policy.Documents{}, nil
	}
	d, err := r.o.Documents(ctx, scope)
	return d, failFor(cofferdam.ReasonPolicy, err)
}

// workOf is how the grant of the session's own work is made: what the task was
// given, as far as the documents let a task have it, narrowed by the project
// file of the base commit.
func (r *Runner) workOf(p Plan, project policy.Project) (compiling, error) {
	allow, err := policy.ParseAllow(append(append([]string{}, r.o.Allow...), p.Request.Allow...), r.o.Presets)
	if err != nil {
		return nil, failFor(cofferdam.ReasonPolicy, err)
	}
	within, err := scopeOf(p.Request.Contract)
	if err != nil {
		return nil, failFor(cofferdam.ReasonPolicy, err)
	}
	return func(d policy.Documents) (policy.Grant, error) {
		g, err := policy.Grant{
			Allow: allow, Repo: p.Repo.ID, Branch: p.Branch, Model: p.Model.Name, Operator: r.o.Policy,
			Provider: gateway.ProviderHost(p.Model.Provider),
		}.Under(d).Narrow(project)
		if err != nil {
			return g, err
		}
		return g.Narrow(within)
	}, nil
}

// scopeOf is how the hosts of a task's scope narrow its grant.
func scopeOf(c *cofferdam.Contract) (policy.Project, error) {
	if c == nil || len(c.Hosts) == 0 {
		return policy.Project{}, nil
	}
	hosts, err := policy.ParseAllow(c.Hosts, nil)
	return policy.Project{Name: "scope", Narrows: true, Allow: hosts}, err
}

// Grant returns what the session of a plan may do by documents, as it would be
// if it began now.
func (r *Runner) Grant(ctx context.Context, p Plan, d policy.Documents) (policy.Grant, error) {
	project, err := r.project(ctx, p)
	if err != nil {
		return policy.Grant{}, plain(err)
	}
	compile, err := r.workOf(p, project)
	if err != nil {
		return policy.Grant{}, plain(err)
	}
	return compile(d)
}

// plain is a finding as an error of its own.
func plain(err error) error {
	if f := (*failure)(nil); errors.As(err, &f) {
		return &cofferdam.Error{Op: "session.Grant", Kind: cofferdam.Invalid, Subject: "grant", Reason: f.reason, Hint: "correct what the task or its repository says", Err: err}
	}
	return err
}

// setupOf is how the grant of a setup is made: hosts that its definition names,
// within what the documents deny, ask and limit. What they give it has not.
func (r *Runner) setupOf(allow []policy.Rule) compiling {
	return func(d policy.Documents) (policy.Grant, error) {
		return policy.Grant{Allow: allow, Operator: r.o.Policy}.Under(d.Bounding()), nil
	}
}

// openings are those of people that a task still has.
func (r *Runner) openings(ctx context.Context, t cofferdam.TaskID) ([]policy.Opening, error) {
	if r.o.Openings == nil {
		return nil, nil
	}
	return r.o.Openings(ctx, t)
}

// follow has a wire's policy follow the documents until the session leaves.
func (r *Runner) follow(id cofferdam.SessionID, w ruled) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ruled[id] = append(r.ruled[id], w)
}

// Judge has every session that runs here judged by the documents as they are
// now: of one project, or with no project of all of an organisation. It returns
// the sessions whose policy is another one now, with its digest. What cannot be
// compiled any more may do nothing: that a person took a narrower policy must
// not fail because of what a task was given before. What people opened for a task
// meanwhile counts too, and makes its policy no other one.
func (r *Runner) Judge(ctx context.Context, scope cofferdam.Scope) (map[cofferdam.SessionID]cofferdam.Digest, error) {
	r.judging.Lock()
	defer r.judging.Unlock()
	r.mu.Lock()
	running := map[cofferdam.SessionID][]ruled{}
	for id, list := range r.ruled {
		if of := list[0].scope; of.Organization == scope.Organization && (scope.Project == "" || of.Project == scope.Project) {
			running[id] = append([]ruled{}, list...)
		}
	}
	r.mu.Unlock()
	moved := map[cofferdam.SessionID]cofferdam.Digest{}
	var errs error
	for id, list := range running {
		for _, w := range list {
			before := w.rules.Set().Base()
			if err := r.judge(ctx, w); err != nil && r.runs(id) { // one that has ended meanwhile takes nothing on record
				errs = errors.Join(errs, fmt.Errorf("session %s: %w", id, err))
			}
			if w.rules.Set().Base() != before {
				moved[id] = w.rules.Digest()
			}
		}
	}
	return moved, errs
}

func (r *Runner) runs(id cofferdam.SessionID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.ruled[id]) > 0
}

func (r *Runner) judge(ctx context.Context, w ruled) error {
	before := w.rules.Digest()
	d, err := r.documents(ctx, w.scope)
	var g policy.Grant
	if err == nil {
		g, err = w.compile(d)
	}
	if err == nil && w.task != "" {
		g.Openings, err = r.openings(ctx, w.task)
	}
	if err == nil {
		err = w.rules.Replace(g)
	}
	if err != nil {
		if shut := w.rules.Shut(); shut != nil {
			return errors.Join(err, shut)
		}
		r.o.Log.WarnContext(ctx, "a session may do nothing any more: its policy cannot be made", slog.Any("error", err))
	}
	if w.rules.Digest() == before {
		return err
	}
	return errors.Join(err, w.ledger.policy(ctx, w.rules.Set()))
}

// policy puts on record by what a session is judged from now on.
func (l *ledger) policy(ctx context.Context, set *policy.Set) error {
	g := set.Grant()
	fields := map[string]string{
		fieldPolicy: string(set.Digest()), cofferdam.FieldPolicy: string(set.Base()),
		fieldDropped: strings.Join(text(g.Dropped), " "), "rules": fmt.Sprint(len(g.Allow)),
	}
	for name, doc := range map[string]*policy.Document{cofferdam.FieldOrganizationText: g.Organization, cofferdam.FieldProjectText: g.Project} {
		if doc != nil {
			fields[name] = string(doc.Digest())
		}
	}
	return l.step(ctx, stepPolicy, fields)
}
