package service

import (
	"context"
	"slices"

	"cofferdam"
	"cofferdam/policy"
	"cofferdam/policy/analysis"
	"cofferdam/task"
)

// PromotePolicy says whether the record of the project's tasks suggests a wider
// class for it. It changes nothing: an owner lets a proposal count, as ever.
func (s *Service) PromotePolicy(ctx context.Context) (analysis.Promotion, error) {
	const op = "service.PromotePolicy"
	a, err := s.enter(ctx, op)
	if err != nil {
		return analysis.Promotion{}, err
	}
	st, err := s.classSince(ctx, a.Scope)
	if err != nil {
		return analysis.Promotion{}, err
	}
	if st.Class != "" {
		if err := s.recordSince(ctx, op, a.Scope, &st); err != nil {
			return analysis.Promotion{}, err
		}
	}
	return analysis.Promote(st, s.Now()), nil
}

// classSince says under which class a project is, and since which version: the
// first of those that followed one another under the same class.
func (s *Service) classSince(ctx context.Context, scope cofferdam.Scope) (analysis.Standing, error) {
	st := analysis.Standing{Refused: map[string]int{}}
	now, err := Document(ctx, s.Policies, scope, s.Presets, s.PublicKey)
	if err != nil || now.Class() == "" {
		return st, err
	}
	st.Class = now.Class()
	all, err := s.Policies.PolicyVersions(ctx, scope) // the newest first
	if err != nil {
		return st, err
	}
	for _, v := range all {
		if v.State != cofferdam.PolicyTaken {
			continue
		}
		d, err := policy.ParseDocument(nameAt(scope), []byte(v.Text), s.Presets)
		if err != nil || d.Class() != st.Class {
			break
		}
		st.Since, st.Version = v.Decided, v.Version
	}
	return st, nil
}

// recordSince adds what is on record since the class counts.
func (s *Service) recordSince(ctx context.Context, op string, scope cofferdam.Scope, st *analysis.Standing) error {
	f := task.Filter{States: []cofferdam.TaskState{cofferdam.Done, cofferdam.NothingToDo, cofferdam.Blocked, cofferdam.Failed, cofferdam.TimedOut}, Limit: task.MaxList}
	tasks, err := s.Tasks.List(ctx, scope, f)
	if err != nil {
		return err
	}
	st.Partly = len(tasks) == task.MaxList && !tasks[len(tasks)-1].Created.Before(st.Since)
	read := 0
	for _, t := range tasks {
		if t.Created.Before(st.Since) {
			continue
		}
		if t.State == cofferdam.NothingToDo || t.State == cofferdam.Done && t.Receipt != "" {
			st.Proved++
		} else {
			st.Unproved++
		}
		if err := s.tracesOf(ctx, op, t, &read, st); err != nil {
			return err
		}
	}
	return s.answersSince(ctx, scope, st)
}

// tracesOf adds what the sessions of a task have on record, as long as the bounds
// let more be read.
func (s *Service) tracesOf(ctx context.Context, op string, t cofferdam.Task, read *int, st *analysis.Standing) error {
	sessions, err := s.Sessions.Sessions(ctx, t.Scope, t.ID, maxTried)
	if err != nil {
		return err
	}
	for _, v := range sessions {
		if st.Sessions == maxTried || *read >= maxReplayed {
			st.Partly = true
			return nil
		}
		st.Sessions++
		err := s.pages(ctx, op, v.ID, read, func(events []cofferdam.Event) { count(events, st) })
		if cofferdam.KindOf(err) == cofferdam.Exhausted {
			st.Partly = true
			return nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func count(events []cofferdam.Event, st *analysis.Standing) {
	for _, e := range events {
		if e.Verdict == cofferdam.Refused {
			st.Refused[e.Rule]++
		}
		if e.Fields[cofferdam.FieldBeyond] != "" && e.Verdict != "" {
			st.Beyond++
		}
	}
}

func (s *Service) answersSince(ctx context.Context, scope cofferdam.Scope, st *analysis.Standing) error {
	all, err := s.Questions.Questions(ctx, scope, false, MaxList)
	if err != nil {
		return err
	}
	st.Partly = st.Partly || len(all) == MaxList && !all[len(all)-1].Created.Before(st.Since)
	for _, q := range all {
		if q.Created.Before(st.Since) {
			continue
		}
		said := func(allow bool) bool {
			return slices.ContainsFunc(q.Answers, func(a cofferdam.Answer) bool { return a.Allow == allow })
		}
		switch {
		case said(false):
			st.Denied++
		case said(true):
			st.Allowed++
		}
	}
	return nil
}
