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
		{name: "out of range", asked: &b{Calls: 501}, refused: "--max-calls", because: "500"},
		{name: "below zero", asked: &b{Cost: -1}, refused: "--max-cost", because: "$0.01"},
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

// TestRetryWithLimits: a limit that a retry names takes the place of the task's own,
// within what a task may have now; the others stay, and so does what was asked for.
func TestRetryWithLimits(t *testing.T) {
	s, _ := world(t)
	s.MaxBudget = cofferdam.Budget{Tokens: 9000}
	r := request()
	r.Budget = &cofferdam.Budget{Tokens: 5000, Calls: 7}
	task, err := s.CreateTask(as(alice), r)
	if err != nil {
		t.Fatal(err)
	}
	end := func() {
		t.Helper()
		if _, err := s.CancelTask(as(alice), task.Short()); err != nil {
			t.Fatal(err)
		}
	}
	end()
	s.MaxBudget.Calls = 3 // since then: it binds what is named
	for _, more := range []cofferdam.Budget{{Tokens: 9001}, {Calls: 4}} {
		if _, err := s.RetryTask(as(alice), task.Short(), false, &more); cofferdam.KindOf(err) != cofferdam.Invalid || cofferdam.HintOf(err) == "" {
			t.Errorf("%+v: %v", more, err)
		}
	}
	got, err := s.RetryTask(as(alice), task.Short(), false, &cofferdam.Budget{Tokens: 8000})
	if want := (cofferdam.Budget{Tokens: 8000, Calls: 7}); err != nil || got.Limits() == nil || *got.Limits() != want || got.Request.Budget.Tokens != 5000 {
		t.Errorf("%+v %v, want %+v", got.Limits(), err, want)
	}
	end()
	if got, err = s.RetryTask(as(alice), task.Short(), false, nil); err != nil || got.Limits() == nil || got.Limits().Tokens != 8000 {
		t.Errorf("a retry that names none: %+v %v", got.Limits(), err)
	}
}

// TestBudgetOfPolicies: what the policies of the organisation and the project let a
// task ask for counts beside what the operator says, and of all the lowest.
func TestBudgetOfPolicies(t *testing.T) {
	s, _ := world(t)
	tess := as(cofferdam.Principal{Kind: cofferdam.TestPerson, Name: "tess"})
	s.MaxBudget = cofferdam.Budget{Tokens: 9000, Calls: 50, Egress: 100}
	take(t, s, tess, propose(t, s, tess, cofferdam.OfOrganization, "[budget]\nmax_cost = 5\nmax_calls = 20\nmax_egress = 1000\n"))
	proposed := propose(t, s, tess, "", "[budget]\nmax_cost = 2\nmax_calls = 30\nmax_time = 60\n")
	ask := func(b cofferdam.Budget) (cofferdam.Task, error) {
		r := request()
		r.Budget = &b
		return s.CreateTask(tess, r)
	}
	if got, err := ask(cofferdam.Budget{Cost: 3_000_000}); err != nil || got.Request.Budget.Cost != 3_000_000 {
		t.Errorf("what is only proposed counts: %+v, %v", got.Request.Budget, err)
	}
	take(t, s, tess, proposed)
	got, err := ask(cofferdam.Budget{})
	if want := (cofferdam.Budget{Tokens: 9000, Cost: 2_000_000, Calls: 20, Time: 60_000, Egress: 100}); err != nil || got.Request.Budget == nil || *got.Request.Budget != want {
		t.Errorf("%+v %v, want %+v", got.Request.Budget, err, want)
	}
	for _, c := range []struct {
		asked         cofferdam.Budget
		because, hint string
	}{
		{cofferdam.Budget{Cost: 2_000_001}, "$2.00 is given to a task by the policy of the project", "an owner raise [budget] in it"},
		{cofferdam.Budget{Calls: 21}, "20 model calls is given to a task by the policy of the organisation", "an owner raise [budget] in it"},
		{cofferdam.Budget{Tokens: 9001}, "9000 tokens is given to a task on this server", "the operator raise [budget] in cofferdam.toml"},
	} {
		if _, err := ask(c.asked); cofferdam.KindOf(err) != cofferdam.Invalid || !strings.Contains(err.Error(), c.because) || !strings.Contains(cofferdam.HintOf(err), c.hint) {
			t.Errorf("%+v: %v (%s)", c.asked, err, cofferdam.HintOf(err))
		}
	}
}
