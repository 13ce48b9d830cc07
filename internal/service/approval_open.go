package service

import (
	"context"
	"fmt"

	"cofferdam"
	"cofferdam/policy"
	"cofferdam/task"
)

// OpenTask opens one entry for the rest of a task, for a time and a number of
// acts, by a person's word with a fresh proof that it is theirs. What a rule
// denies stays denied, and what the organisation or the project does not let a
// task have nobody opens. It counts at once, also for a session that runs.
func (s *Service) OpenTask(ctx context.Context, name string, r cofferdam.OpenRequest) (cofferdam.Question, error) {
	const op = "service.OpenTask"
	none := cofferdam.Question{}
	a, err := s.enter(ctx, op)
	if err != nil {
		return none, err
	}
	if r.Action == "" {
		r.Action = policy.HTTP
	}
	t, err := s.Tasks.Get(ctx, a.Scope, name)
	if err != nil {
		return none, err
	}
	if t.State.Ended() && !task.MayRetry(t.State) {
		return none, &cofferdam.Error{Op: op, Kind: cofferdam.Conflict, Subject: t.Short(), Reason: "is " + string(t.State), Hint: "give a new task with --allow"}
	}
	if err := s.withinPolicy(ctx, op, a.Scope, r.Action, r.Bounds.Entry); err != nil {
		return none, err
	}
	hash := digestOf("opening", t.ID, r.Action, r.Bounds, s.Now().UnixNano())
	how, err := s.present(ctx, a.Caller, r.Proof, digestOf("opening", t.ID, r.Action, r.Bounds))
	if err != nil {
		return none, err
	}
	q, err := s.Desk.Open(ctx, cofferdam.Question{
		Scope: a.Scope, Task: t.ID, Action: r.Action, Resource: r.Bounds.Entry, Hash: hash, Reason: "a person opened it unasked",
	}, cofferdam.Answer{By: a.Caller.Principal, Comment: r.Comment, Bounds: &r.Bounds, Proof: how})
	if err != nil {
		return q, err
	}
	if err := s.Judge(ctx, a.Scope); err != nil {
		return q, &cofferdam.Error{
			Op: op, Kind: cofferdam.Unavailable, Subject: t.Short(), Reason: "it is open, but the session that runs does not know it", Hint: "cofferdam task retry " + t.Short() + " has it", Err: err,
		}
	}
	return q, nil
}

// withinPolicy refuses an entry that is none, or that the organisation or the
// project does not let a task have.
func (s *Service) withinPolicy(ctx context.Context, op string, scope cofferdam.Scope, action, entry string) error {
	rule, err := policy.ParseOpening(action, entry)
	if err != nil {
		return err
	}
	d, err := s.documents(ctx, scope)
	if err != nil {
		return err
	}
	if _, name := d.Beyond([]policy.Rule{rule}); name != "" {
		return &cofferdam.Error{
			Op: op, Kind: cofferdam.Denied, Subject: fmt.Sprintf("entry %q", entry), Reason: "it is beyond what the policy of the " + name + " lets a task have",
			Hint: "cofferdam policy view shows its limit, with --organization that of the organisation; an owner can change it",
		}
	}
	return nil
}
