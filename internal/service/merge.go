package service

import (
	"context"
	"fmt"
	"regexp"
	"time"

	"cofferdam"
	"cofferdam/task"
)

var commitText = regexp.MustCompile(`^([0-9a-f]{40}|[0-9a-f]{64})$`)

// ListMerges returns the tasks that a person may merge or has merged.
func (s *Service) ListMerges(ctx context.Context) ([]cofferdam.Task, error) {
	if err := s.may(ctx, "service.ListMerges"); err != nil {
		return nil, err
	}
	return s.Tasks.List(ctx, s.scope(ctx), task.Filter{States: []cofferdam.TaskState{cofferdam.InReview, cofferdam.Done}})
}

// ViewMerge returns what a task wants merged.
func (s *Service) ViewMerge(ctx context.Context, name string) (cofferdam.Change, error) {
	t, err := s.Task(ctx, name)
	if err != nil {
		return cofferdam.Change{}, err
	}
	if t.Head == "" {
		return cofferdam.Change{}, &cofferdam.Error{
			Op: "service.ViewMerge", Kind: cofferdam.NotFound, Subject: "change of " + t.Short(), Reason: fmt.Sprintf("there is none: the task is %s", t.State),
			Hint: "cofferdam task view " + t.Short(),
		}
	}
	return s.Merges.View(ctx, t)
}

// aboutMerge is what a proof for a verdict on a change is about: what is said of this
// commit of this task, and the policy or the reason, so that none counts for another.
func aboutMerge(verdict string, t cofferdam.TaskID, commit cofferdam.Commit, of string) cofferdam.Digest {
	return digestOf("merge", verdict, t, commit, of)
}

// ApproveMerge takes a person's word for exactly this commit, with a fresh proof that
// it is theirs: a login or the socket may be in the hands of a program.
func (s *Service) ApproveMerge(ctx context.Context, name string, r cofferdam.ApproveRequest) (cofferdam.Approval, error) {
	const op = "service.ApproveMerge"
	none := cofferdam.Approval{}
	a, err := s.enter(ctx, op)
	if err != nil {
		return none, err
	}
	if err := checkCommit(op, r.Commit); err != nil {
		return none, err
	}
	t, err := s.Tasks.Get(ctx, a.Scope, name)
	if err != nil {
		return none, err
	}
	how, err := s.present(ctx, a.Caller, r.Proof, aboutMerge("approve", t.ID, r.Commit, string(r.Policy)))
	if err != nil {
		return none, err
	}
	said, err := s.Merges.Approve(ctx, t, r, a.Caller.Principal, how)
	if err != nil {
		return said, err
	}
	_, err = s.woken(ctx, t, nil)
	return said, err
}

// RejectMerge ends a task whose change a person does not want, by their word about
// exactly this commit, with a fresh proof that it is theirs.
func (s *Service) RejectMerge(ctx context.Context, name string, r cofferdam.RejectRequest) (cofferdam.Task, error) {
	const op = "service.RejectMerge"
	a, err := s.enter(ctx, op)
	if err != nil {
		return cofferdam.Task{}, err
	}
	if err := checkCommit(op, r.Commit); err != nil {
		return cofferdam.Task{}, err
	}
	if len(r.Reason) > task.MaxComment {
		return cofferdam.Task{}, invalid(op, "reason", fmt.Sprintf("is longer than %d bytes", task.MaxComment), "say it in one sentence")
	}
	t, err := s.Tasks.Get(ctx, a.Scope, name)
	if err != nil {
		return t, err
	}
	how, err := s.present(ctx, a.Caller, r.Proof, aboutMerge("reject", t.ID, r.Commit, r.Reason))
	if err != nil {
		return t, err
	}
	t, err = s.Tasks.Reject(ctx, a.Scope, a.Caller.Principal, string(t.ID), r, how)
	return s.woken(ctx, t, err)
}

// landLimit is how long LandMerge waits for the landing it asked for: a push
// to a slow forge takes seconds, and the wish stays on record after it.
const landLimit = 60 * time.Second

// LandMerge asks for the landing of the approved commit and waits for it.
func (s *Service) LandMerge(ctx context.Context, name string, commit cofferdam.Commit) (cofferdam.Task, error) {
	const op = "service.LandMerge"
	by, err := s.who(ctx, op)
	if err != nil {
		return cofferdam.Task{}, err
	}
	if commit != "" {
		if err := checkCommit(op, commit); err != nil {
			return cofferdam.Task{}, err
		}
	}
	t, err := s.Tasks.RequestLand(ctx, s.scope(ctx), by, name, commit)
	if err != nil || t.State == cofferdam.Done {
		return t, err
	}
	if err := s.Flow.Ensure(ctx, t); err != nil { // a landing is wanted: the flow must run
		return t, &cofferdam.Error{Op: op, Kind: cofferdam.Unavailable, Subject: "landing " + t.Short(), Reason: "the engine does not answer; the wish is kept", Hint: "cofferdam task follow " + t.Short(), Err: err}
	}
	if t, err = s.woken(ctx, t, nil); err != nil {
		return t, err
	}
	return s.landed(ctx, t)
}

// landed waits until the task is done, is no longer in review, or says why it
// did not land.
func (s *Service) landed(ctx context.Context, t cofferdam.Task) (cofferdam.Task, error) {
	waiting, cancel := context.WithTimeout(ctx, landLimit)
	defer cancel()
	asked := t
	err := s.Tasks.Watch(waiting, t.ID, func(now cofferdam.Task) error {
		t = now
		if now.State != cofferdam.InReview || now.Reason != "" && !now.Updated.Equal(asked.Updated) {
			return errRest // landed, ended, or sent back with a reason
		}
		return nil
	})
	if ctx.Err() != nil {
		return t, err
	}
	if t.State == cofferdam.Done {
		return t, nil
	}
	reason := t.Comment
	if reason == "" {
		reason = fmt.Sprintf("it is still %s", t.State)
	}
	kind, hint := cofferdam.Conflict, "cofferdam merge view "+t.Short()+"; cofferdam task retry "+t.Short()+" makes a new attempt from the base branch as it is now"
	switch t.Reason {
	case cofferdam.ReasonRepository: // nothing is wrong with the change
		hint = "once that is mended, cofferdam merge land " + t.Short() + " asks again"
	case cofferdam.ReasonPolicy:
		kind, hint = cofferdam.Denied, "cofferdam merge view "+t.Short()+" shows who has approved and what the policy wants; once that is met, cofferdam merge land "+t.Short()+" asks again"
	}
	return t, &cofferdam.Error{Op: "service.LandMerge", Kind: kind, Subject: "landing " + t.Short(), Reason: reason, Hint: hint}
}

func checkCommit(op string, c cofferdam.Commit) error {
	if commitText.MatchString(string(c)) {
		return nil
	}
	return invalid(op, "commit", fmt.Sprintf("%.80q is not the whole id of a commit", string(c)), "cofferdam merge view shows it")
}
