package service

import (
	"context"
	"fmt"
	"strings"

	"cofferdam"
	"cofferdam/policy"
	"cofferdam/policy/analysis"
)

// Bounds of what is read of traces at a time. Source: docs/SPECIFICATION.md,
// "Policy".
const (
	maxReplayed = 500_000 // events
	maxTried    = 100     // sessions
)

// grantOf returns by what a task or session is judged now, or with name "" every
// task of the project; d are the documents.
func (s *Service) grantOf(ctx context.Context, scope cofferdam.Scope, name string, d policy.Documents) (policy.Grant, error) {
	var id cofferdam.SessionID
	if name != "" {
		list, err := s.worked(ctx, scope, name)
		if err != nil {
			return policy.Grant{}, err
		}
		id = list[0].ID
	}
	g, err := s.Grant(ctx, scope, id, d)
	g.At = s.Now()
	return g, err
}

// worked returns the sessions of a task in which its agent worked, the newest
// first, or the one session of that name.
func (s *Service) worked(ctx context.Context, scope cofferdam.Scope, name string) ([]cofferdam.Session, error) {
	if strings.HasPrefix(name, "s-") {
		v, err := s.Sessions.Session(ctx, scope, name)
		return []cofferdam.Session{v}, err
	}
	t, err := s.Tasks.Get(ctx, scope, name)
	if err != nil {
		return nil, err
	}
	all, err := s.Sessions.Sessions(ctx, scope, t.ID, maxTried)
	if err != nil {
		return nil, err
	}
	var list []cofferdam.Session
	for _, v := range all {
		if v.Phase == "work" {
			list = append(list, v)
		}
	}
	if len(list) == 0 {
		return nil, &cofferdam.Error{Op: "service.Sessions", Kind: cofferdam.NotFound, Subject: "session of task " + t.Short(), Reason: "its agent has not begun", Hint: "wait until it runs"}
	}
	return list, nil
}

// ExplainPolicy says why something is allowed or not, and what the smallest rule
// is that would allow it.
func (s *Service) ExplainPolicy(ctx context.Context, r cofferdam.PolicyQuestion) (analysis.Explanation, error) {
	const op = "service.ExplainPolicy"
	a, err := s.enter(ctx, op)
	if err != nil {
		return analysis.Explanation{}, err
	}
	var q policy.Query
	switch {
	case r.URL != "" && r.Action == "" && r.On == "":
		q, err = policy.ParseURL(r.URL, r.Method)
	case r.URL == "" && r.Action != "" && r.Method == "":
		q, err = policy.ParseAct(r.Action, r.On)
	default:
		err = fmt.Errorf("it has either a URL, or an action and what it is on")
	}
	if err != nil {
		return analysis.Explanation{}, invalid(op, "question", err.Error(), "give https://HOST/PATH, or --action invoke and the name of a tool")
	}
	d, err := s.documents(ctx, a.Scope)
	if err != nil {
		return analysis.Explanation{}, err
	}
	g, err := s.grantOf(ctx, a.Scope, r.Of, d)
	if err != nil {
		return analysis.Explanation{}, err
	}
	set, err := policy.New(g)
	if err != nil {
		return analysis.Explanation{}, err
	}
	return analysis.Explain(set, q), nil
}

func (s *Service) documents(ctx context.Context, scope cofferdam.Scope) (policy.Documents, error) {
	return Documents(ctx, s.Policies, scope, s.Presets, s.PublicKey)
}

// ReplayPolicy judges what a task or session did by a document that nobody has
// taken yet, with all else as it is now. What people answered is no part of it.
func (s *Service) ReplayPolicy(ctx context.Context, r cofferdam.PolicyTrial) (analysis.Replay, error) {
	const op = "service.ReplayPolicy"
	result := analysis.Replay{Schema: "cofferdam/policy-replay/v1"}
	a, err := s.enter(ctx, op)
	if err != nil {
		return result, err
	}
	scope, err := reach(a, op, r.Level)
	if err != nil {
		return result, err
	}
	trial, err := policy.ParseDocument(nameAt(scope), []byte(r.Text), s.Presets)
	if err != nil {
		return result, err
	}
	d, err := s.documents(ctx, a.Scope)
	if err != nil {
		return result, err
	}
	if scope.Project == "" {
		d.Organization = &trial
	} else {
		d.Project = &trial
	}
	list, err := s.worked(ctx, a.Scope, r.Of)
	if err != nil {
		return result, err
	}
	read := 0
	for _, v := range list {
		g, err := s.Grant(ctx, a.Scope, v.ID, d)
		if err != nil {
			return result, err
		}
		g.At = s.Now()
		set, err := policy.New(g)
		if err != nil {
			return result, err
		}
		if err := s.pages(ctx, op, v.ID, &read, func(events []cofferdam.Event) { result.Add(events, set) }); err != nil {
			return result, err
		}
	}
	return result, nil
}

// SuggestPolicy makes a document of what a task or session did.
func (s *Service) SuggestPolicy(ctx context.Context, of string) (cofferdam.PolicySuggestion, error) {
	const op = "service.SuggestPolicy"
	result := cofferdam.PolicySuggestion{Schema: "cofferdam/policy-suggestion/v1"}
	a, err := s.enter(ctx, op)
	if err != nil {
		return result, err
	}
	list, err := s.worked(ctx, a.Scope, of)
	if err != nil {
		return result, err
	}
	var seen analysis.Suggestion
	for _, v := range list {
		if err := s.pages(ctx, op, v.ID, &result.Events, seen.Add); err != nil {
			return result, err
		}
	}
	result.Text = seen.Text()
	return result, nil
}

// pages passes the events of a session on, a page at a time, and counts them.
func (s *Service) pages(ctx context.Context, op string, id cofferdam.SessionID, read *int, see func([]cofferdam.Event)) error {
	for from := uint64(0); ; {
		events, err := s.Trace.Events(ctx, id, from, MaxList)
		if err != nil || len(events) == 0 {
			return err
		}
		if *read += len(events); *read > maxReplayed {
			return &cofferdam.Error{Op: op, Kind: cofferdam.Exhausted, Subject: "trace", Reason: fmt.Sprintf("it has more than %d events", maxReplayed), Hint: "name one of its sessions"}
		}
		see(events)
		from = events[len(events)-1].Seq + 1
	}
}
