package flow

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"

	"cofferdam"
	"cofferdam/gateway"
	"cofferdam/proof"
	"cofferdam/session"
	"cofferdam/task"
)

// What a session is for in its attempt. The store keeps them.
const (
	forBase  = "base"  // the checks on the base
	forWork  = "work"  // the agent
	forProof = "proof" // the checks on what the agent left
)

// prepare finds the base commit and sees that the checks do on it what the
// definition of done says.
func (s *steps) prepare(ctx context.Context, t cofferdam.Task) error {
	var err error
	if t.State == cofferdam.Queued {
		if t, err = s.move(ctx, t, verdict{to: cofferdam.Preparing}, nil); err != nil {
			return err
		}
	}
	if t.State != cofferdam.Preparing {
		return nil
	}
	repo, err := s.o.Store.RepoByID(ctx, t.Repo)
	if err != nil {
		return err
	}
	if t.BaseAt == "" {
		if t, err = s.findBase(ctx, t, repo); err != nil {
			return err
		}
	}
	res, err := s.session(ctx, t, forBase, session.Plan{Phase: gateway.Proof, Repo: repo, Commit: t.BaseAt, Checks: t.Request.Checks})
	if err != nil {
		return err
	}
	v := ofBase(t.Request.Checks, res)
	if v.to == "" {
		v.to = cofferdam.Running
	}
	_, err = s.move(ctx, t, v, nil)
	return err
}

// findBase fixes the commit that the attempt starts from and the branch that it
// writes. Nothing has been pushed before: whoever has that branch is another.
func (s *steps) findBase(ctx context.Context, t cofferdam.Task, repo cofferdam.Repo) (cofferdam.Task, error) {
	if err := s.o.Repos.Sync(ctx, repo); err != nil {
		return t, coded(cofferdam.ReasonRepository, err)
	}
	at, err := s.o.Repos.Resolve(ctx, repo, t.Base)
	if err != nil {
		return t, coded(cofferdam.ReasonRepository, err)
	}
	branch, err := s.o.Repos.FreeBranch(ctx, repo, task.Branch(t.Number, t.Attempt))
	if err != nil {
		return t, coded(cofferdam.ReasonRepository, err)
	}
	return s.move(ctx, t, verdict{to: t.State}, func(t *cofferdam.Task) { t.BaseAt, t.Branch = at, branch })
}

// work runs the agent and judges what it left, not what it says.
func (s *steps) work(ctx context.Context, t cofferdam.Task) error {
	if t.State != cofferdam.Running && t.State != cofferdam.Waiting {
		return nil
	}
	repo, err := s.o.Store.RepoByID(ctx, t.Repo)
	if err != nil {
		return err
	}
	var model cofferdam.Model
	if t.Request.Model != "" {
		if model, err = s.o.Store.FindModel(ctx, t.Scope, t.Request.Model); err != nil {
			return coded(cofferdam.ReasonProvider, err)
		}
	}
	res, err := s.session(ctx, t, forWork, session.Plan{Phase: gateway.Work, Repo: repo, Commit: t.BaseAt, Branch: t.Branch, Model: model})
	if err != nil {
		return err
	}
	if t, err = s.o.Tasks.ByID(ctx, t.ID); err != nil { // its agent may have waited meanwhile
		return err
	}
	changed := res.Head != "" && res.Head != t.BaseAt
	v := ofWork(t.Request.Checks, res, changed)
	if v.to != cofferdam.TimedOut { // from where all else can follow
		if t, err = s.goesOn(ctx, t); err != nil {
			return err
		}
	}
	if v.to == "" {
		v.to = cofferdam.Verifying
		on, err := s.o.Repos.IsAncestor(ctx, repo, t.BaseAt, res.Head)
		if err != nil {
			return coded(cofferdam.ReasonRepository, err)
		}
		if !on {
			v = blocked(cofferdam.ReasonAgent, "the agent's commit does not build on the base")
		}
	}
	_, err = s.move(ctx, t, v, func(t *cofferdam.Task) {
		if changed {
			t.Head = res.Head
		}
	})
	return err
}

// verify runs the checks on the agent's commit in a fresh box and signs what
// was seen. A crash between any two lines leads to the same receipt: its id and
// time come from the session that ran the checks.
func (s *steps) verify(ctx context.Context, t cofferdam.Task) error {
	if t.State != cofferdam.Verifying {
		return nil
	}
	repo, err := s.o.Store.RepoByID(ctx, t.Repo)
	if err != nil {
		return err
	}
	res, err := s.session(ctx, t, forProof, session.Plan{Phase: gateway.Proof, Repo: repo, Commit: t.Head, Base: t.BaseAt, Checks: t.Request.Checks})
	if err != nil {
		return err
	}
	if v := ofProof(t.Request.Checks, res); v.to != "" {
		_, err = s.move(ctx, t, v, nil)
		return err
	}
	receipt, err := s.receipt(ctx, t, res)
	if err != nil {
		return err
	}
	_, err = s.move(ctx, t, verdict{to: cofferdam.InReview}, func(t *cofferdam.Task) { t.Receipt = receipt.ID })
	return err
}

// receipt signs, records and keeps the proof for the task's commit.
func (s *steps) receipt(ctx context.Context, t cofferdam.Task, res session.Result) (task.Receipt, error) {
	_, base, _, err := s.o.Store.LatestSession(ctx, t.ID, t.Attempt, forBase)
	if err != nil {
		return task.Receipt{}, err
	}
	_, work, _, err := s.o.Store.LatestSession(ctx, t.ID, t.Attempt, forWork)
	if err != nil {
		return task.Receipt{}, err
	}
	if base == nil || work == nil {
		return task.Receipt{}, fmt.Errorf("signing receipt of %s: a session before has no result", t.Short())
	}
	r := statement(t, *base, *work, res)
	if r.Terms.Used, err = s.o.Store.TaskUsage(ctx, t.ID); err != nil {
		return task.Receipt{}, err
	}
	note, err := s.o.Signer.Sign(r)
	if err != nil {
		return task.Receipt{}, fmt.Errorf("signing receipt of %s: %w", t.Short(), err)
	}
	if _, err := s.o.Record.Record(ctx, cofferdam.Event{
		Scope: t.Scope, Task: t.ID, Session: res.Session, Actor: platform(), Source: "proof", Kind: cofferdam.EventReceipt,
		Resource: string(t.Head), Outcome: "ok", Durable: true,
		Fields: map[string]string{"receipt": string(r.ID), "base": string(t.BaseAt), "note": string(cofferdam.DigestOfSum(sha256.Sum256(note)))},
	}); err != nil {
		return task.Receipt{}, fmt.Errorf("recording receipt of %s: %w", t.Short(), err)
	}
	s.o.Point("verify:signed")
	return s.o.Store.AddReceipt(ctx, task.Receipt{
		ID: r.ID, Scope: t.Scope, Task: t.ID, Attempt: t.Attempt, Commit: t.Head, Report: r.Report(), Note: note, Created: r.Time,
	})
}

// statement is what the receipt says.
func statement(t cofferdam.Task, base, work, res session.Result) proof.Receipt {
	sum := sha256.Sum256([]byte(res.Session))
	r := proof.Receipt{
		ID: cofferdam.ReceiptID("c-" + hex.EncodeToString(sum[:16])), Scope: t.Scope,
		Task: t.ID, Number: t.Number, Attempt: t.Attempt, Repo: t.Repo, Branch: t.Branch, Base: t.BaseAt, Commit: t.Head,
		Environment: res.Box.Environment, Image: res.Box.Image, Tier: res.Box.Tier, Kernel: res.Box.Kernel, Policy: res.Box.Policy,
		RegressionOnly: t.RegressionOnly, Time: res.Sealed.Time,
		Terms: &proof.Terms{Contract: t.Request.Contract, Budget: t.Limits()},
	}
	for i, c := range t.Request.Checks {
		before, after := base.Checks[i], res.Checks[i]
		r.Checks = append(r.Checks, cofferdam.CheckResult{
			Check: c, BaseExit: before.Exit, Exit: after.Exit, Output: both(after), Held: holds(after),
		})
	}
	for _, run := range []session.Result{work, base, res} {
		r.Terms.Judged = append(r.Terms.Judged, run.Judged...)
		r.Terms.Passed = append(r.Terms.Passed, run.Passed...)
		r.Terms.Strays.Refused += run.Strays.Refused
		r.Terms.Strays.Marked = append(r.Terms.Strays.Marked, run.Strays.Marked...)
		r.Sessions = append(r.Sessions, proof.Head{Session: run.Session, Size: run.Sealed.Size, Root: run.Sealed.Root, Time: run.Sealed.Time})
	}
	return r
}

// both is one digest over what a check wrote to either stream.
func both(r session.CheckRun) cofferdam.Digest {
	return cofferdam.DigestOfSum(sha256.Sum256([]byte(string(r.Stdout) + "\n" + string(r.Stderr) + "\n")))
}

func platform() cofferdam.Principal {
	return cofferdam.Principal{Kind: cofferdam.Platform, Name: "flow"}
}

// move reports a finding; what the task's sessions spent goes with it.
func (s *steps) move(ctx context.Context, t cofferdam.Task, v verdict, set func(*cofferdam.Task)) (cofferdam.Task, error) {
	usage, err := s.o.Store.TaskUsage(ctx, t.ID)
	if err != nil {
		return t, err
	}
	return s.o.Tasks.Advance(ctx, task.Move{
		Task: t.ID, Attempt: t.Attempt, From: t.State, To: v.to, Reason: v.reason, Comment: v.comment,
		Set: func(t *cofferdam.Task) {
			t.Usage = usage
			if set != nil {
				set(t)
			}
		},
	})
}

// session runs the session for a purpose, or returns the result it had. A lost
// box is no finding about the work: it is tried again in a new one, a few times.
func (s *steps) session(ctx context.Context, t cofferdam.Task, purpose string, p session.Plan) (session.Result, error) {
	p.Scope, p.Task, p.Number, p.Attempt, p.Request = t.Scope, t.ID, t.Number, t.Attempt, t.Request
	if p.Phase == gateway.Proof {
		p.Sees = t.Branch
	}
	if b := t.Limits(); b != nil {
		p.Budget = *b
	}
	for {
		plan, res, try, err := s.o.Store.LatestSession(ctx, t.ID, t.Attempt, purpose)
		switch {
		case cofferdam.KindOf(err) == cofferdam.NotFound, err == nil && res != nil && res.Failure == cofferdam.ReasonBox && try < maxTries:
			plan, try = p, try+1
			plan.ID = cofferdam.SessionID(cofferdam.NewID("s"))
			if plan.Spent, err = s.o.Store.TaskUsage(ctx, t.ID); err != nil {
				return session.Result{}, err
			}
			if err := s.o.Store.BeginSession(ctx, purpose, try, plan); err != nil {
				return session.Result{}, err
			}
			s.o.Tasks.SessionBegan()
		case err != nil:
			return session.Result{}, err
		case res != nil:
			return *res, nil
		}
		if err := s.run(ctx, plan); err != nil {
			return session.Result{}, err
		}
	}
}

// run runs one session, which waits for its turn, and keeps its result.
func (s *steps) run(ctx context.Context, p session.Plan) error {
	res, err := s.o.Sessions.Run(ctx, p)
	if err != nil {
		return err
	}
	if res.Session != p.ID {
		return fmt.Errorf("running session %s: the result is of %q", p.ID, res.Session)
	}
	return s.o.Store.SaveResult(context.WithoutCancel(ctx), res)
}

// asks moves a task to waiting when its agent asks a person, and back when it
// goes on, with "".
func (s *steps) asks(ctx context.Context, p session.Plan, question string) error {
	t, err := s.o.Tasks.ByID(ctx, p.Task)
	if err != nil || t.Attempt != p.Attempt {
		return err
	}
	if question == "" {
		_, err := s.goesOn(ctx, t)
		return err
	}
	if t.State != cofferdam.Running {
		return nil
	}
	_, err = s.move(ctx, t, verdict{to: cofferdam.Waiting, comment: "its agent asks: " + words(question)}, nil)
	return fresh(err)
}

// goesOn moves a task that waited back to running.
func (s *steps) goesOn(ctx context.Context, t cofferdam.Task) (cofferdam.Task, error) {
	if t.State != cofferdam.Waiting {
		return t, nil
	}
	_, err := s.move(ctx, t, verdict{to: cofferdam.Running}, nil)
	if err = fresh(err); err != nil {
		return t, err
	}
	return s.o.Tasks.ByID(ctx, t.ID)
}

// fresh passes over a task that has moved on: whoever works on it looks again.
func fresh(err error) error {
	if errors.Is(err, task.ErrStale) {
		return nil
	}
	return err
}
