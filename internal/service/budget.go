package service

import (
	"context"

	"cofferdam"
)

// settleBudget writes into a request what the task may really spend: what it
// asks for, within what the operator allows the task of a project, and else the
// operator's default. Of all levels the lowest counts.
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
	for _, f := range cofferdam.BudgetFields() {
		if n, m := *f.Of(&asked), *f.Of(&most); m > 0 && n > m {
			return invalid(op, "limit of "+f.What, "at most "+f.Show(m)+" is given to a task "+whose, "ask for less with --"+f.Flag+", or have the operator raise [budget] in cofferdam.toml")
		}
	}
	r.Budget = nil
	if b := asked.Or(s.Budget).Lowest(most); b != (cofferdam.Budget{}) {
		r.Budget = &b
	}
	return nil
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
