package service

import (
	"strings"
	"testing"

	"cofferdam"
)

// TestBudgetOfATask: what a task asks for, within what the operator allows,
// else the operator's default, else the operator's bound.
func TestBudgetOfATask(t *testing.T) {
	type b = cofferdam.Budget
	for _, c := range []struct {
		name             string
		asked            *b
		normal, most     b
		want             b
		refused, because string
	}{
		{name: "nobody says anything"},
		{name: "the task's", asked: &b{Tokens: 5000}, want: b{Tokens: 5000}},
		{name: "the operator's", normal: b{Cost: 20_000, Calls: 9}, want: b{Cost: 20_000, Calls: 9}},
		{name: "each where it speaks", asked: &b{Tokens: 5000, Calls: 100}, normal: b{Cost: 20_000, Calls: 9}, want: b{Tokens: 5000, Cost: 20_000, Calls: 100}},
		{name: "the bound of one who asks for nothing", most: b{Cost: 50_000}, want: b{Cost: 50_000}},
		{name: "up to the bound", asked: &b{Cost: 50_000}, normal: b{Cost: 20_000}, most: b{Cost: 50_000}, want: b{Cost: 50_000}},
		{name: "too many tokens", asked: &b{Tokens: 5001}, most: b{Tokens: 5000}, refused: "--max-tokens", because: "5000"},
		{name: "too much money", asked: &b{Cost: 60_000}, most: b{Cost: 50_000}, refused: "--max-cost", because: "$0.05"},
		{name: "too many calls", asked: &b{Calls: 3}, most: b{Calls: 2}, refused: "--max-calls", because: "2"},
		{name: "out of range", asked: &b{Calls: 501}, refused: "default", because: "500"},
		{name: "below zero", asked: &b{Cost: -1}, refused: "default", because: "$0.01"},
	} {
		s, _ := world(t)
		s.Budget, s.MaxBudget = c.normal, c.most
		r := request()
		r.Budget = c.asked
		task, err := s.CreateTask(as(alice), r)
		if c.refused != "" {
			if cofferdam.KindOf(err) != cofferdam.Invalid || !strings.Contains(cofferdam.HintOf(err), c.refused) || !strings.Contains(err.Error(), c.because) {
				t.Errorf("%s: %v (%s)", c.name, err, cofferdam.HintOf(err))
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		got := task.Request.Budget
		if got == nil {
			got = &b{}
		}
		if *got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, *got, c.want)
		}
	}
}

// TestBudgetOfAProject: a project's own limits count where they are lower, and
// nothing of another project's does.
func TestBudgetOfAProject(t *testing.T) {
	s, _ := world(t)
	projects, err := s.Projects.Projects(t.Context(), s.Scope.Organization)
	if err != nil || len(projects) == 0 {
		t.Fatalf("%v %v", projects, err)
	}
	s.MaxBudget = cofferdam.Budget{Tokens: 9000, Egress: 100}
	s.ProjectBudgets = map[string]cofferdam.Budget{
		projects[0].Name: {Tokens: 5000, Egress: 1000, Approvals: 2}, "another": {Tokens: 1000, Calls: 1},
	}
	r := request()
	r.Budget = &cofferdam.Budget{Tokens: 5001}
	if _, err := s.CreateTask(as(alice), r); cofferdam.KindOf(err) != cofferdam.Invalid || !strings.Contains(err.Error(), "of this project") {
		t.Errorf("more than the project has: %v", err)
	}
	r.Budget = nil
	task, err := s.CreateTask(as(alice), r)
	if want := (cofferdam.Budget{Tokens: 5000, Egress: 100, Approvals: 2}); err != nil || task.Request.Budget == nil || *task.Request.Budget != want {
		t.Errorf("%+v %v, want %+v", task.Request.Budget, err, want)
	}
}
