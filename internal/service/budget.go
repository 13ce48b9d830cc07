package service

import (
	"context"

	"cofferdam"
)

// settleBudget writes into a request what the task may really spend: what it
// asks for, within what the operator and the policies of its organisation and its
// project let a task have, and else the operator's default. Of all that is said the
// lowest counts.
func (s *Service) settleBudget(ctx context.Context, op string, r *cofferdam.TaskRequest) error {
	var asked cofferdam.Budget
	if r.Budget != nil {
		asked = *r.Budget
	}
	most, whose := s.MaxBudget, "on this server"
	// The operator names projects of the server's own organisation: one of the same
	// name elsewhere is another one.
	if len(s.ProjectBudgets) > 0 && s.scope(ctx).Organization == s.Scope.Organization {
		name, err := s.projectName(ctx)
		if err != nil {
			return err
		}
		if own, has := s.ProjectBudgets[name]; has {
			most, whose = most.Lowest(own), "of this project"
		}
	}
	docs, err := Documents(ctx, s.Policies, s.scope(ctx), s.Presets, s.PublicKey)
	if err != nil {
		return err
	}
	for _, f := range cofferdam.BudgetFields() {
		m, by, raise := f.Of(&most), whose, "the operator raise [budget] in cofferdam.toml"
		if limit, of := docs.Most(f); limit > 0 && (*m == 0 || limit < *m) {
			*m, by, raise = limit, "by the policy of the "+of, "an owner raise [budget] in it"
		}
		if *m > 0 && *f.Of(&asked) > *m {
			return invalid(op, "limit of "+f.What, "at most "+f.Show(*m)+" is given to a task "+by, "ask for less with --"+f.Flag+", or have "+raise)
		}
	}
	r.Budget = nil
	if b := asked.Or(s.Budget).Lowest(most); b != (cofferdam.Budget{}) {
		r.Budget = &b
	}
	return nil
}

// raised are the limits of a task once those that more names have taken the place of
// its own. What it names has to be within what a task may have now; the others stay.
func (s *Service) raised(ctx context.Context, op string, t cofferdam.Task, more cofferdam.Budget) (*cofferdam.Budget, error) {
	r := cofferdam.TaskRequest{Budget: &more}
	if err := s.settleBudget(ctx, op, &r); err != nil {
		return nil, err
	}
	all := more
	if had := t.Limits(); had != nil {
		all = more.Or(*had)
	}
	return &all, nil
}

// projectName is what people call the project that the caller is in.
func (s *Service) projectName(ctx context.Context) (string, error) {
	scope := s.scope(ctx)
	all, err := s.Projects.Projects(ctx, scope.Organization)
	for _, p := range all {
		if p.Scope == scope {
			return p.Name, nil
		}
	}
	return "", err
}
