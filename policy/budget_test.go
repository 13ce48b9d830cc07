package policy

import (
	"strings"
	"testing"

	"cofferdam"
)

// TestBudgetOfADocument: limits in people's units, of an organisation and a project
// alone; what cannot be meant is refused by its key.
func TestBudgetOfADocument(t *testing.T) {
	all := "[budget]\nmax_tokens = 2_000_000\nmax_cost = 0.50\nmax_calls = 300\nmax_time = 90\nmax_tool_time = 1.5\nmax_egress = 50_000_000\nmax_approvals = 10\n"
	want := cofferdam.Budget{Tokens: 2_000_000, Cost: 500_000, Calls: 300, Time: 90_000, ToolTime: 1500, Egress: 50_000_000, Approvals: 10}
	for _, name := range []string{OrganizationName, ProjectName} {
		if got := doc(t, name, all).Budget; got != want {
			t.Errorf("%s: %+v, want %+v", name, got, want)
		}
	}
	for text, key := range map[string]string{
		"max_cost = 0":         "budget.max_cost: 0 is not between 0.01 and 100",
		"max_cost = -1":        "budget.max_cost",
		"max_cost = nan":       "budget.max_cost",
		"max_cost = inf":       "budget.max_cost",
		"max_calls = 501":      "budget.max_calls",
		"max_tokens = 1e300":   "budget.max_tokens",
		"max_cost = \"5\"":     "budget",
		"cost = 5":             "budget.cost: there is no such limit; there are max_tokens, ",
		"max_Cost = 5":         "lower case",
		"project.max_cost = 5": "budget",
	} {
		if _, err := ParseDocument(ProjectName, []byte("[budget]\n"+text+"\n"), nil); cofferdam.KindOf(err) != cofferdam.Invalid || !strings.Contains(err.Error(), key) {
			t.Errorf("%s: %v, want %s", text, err, key)
		}
	}
	for _, name := range []string{"repository", "task"} {
		if _, err := ParseDocument(name, []byte(all), nil); cofferdam.KindOf(err) != cofferdam.Invalid || !strings.Contains(err.Error(), "budget: only") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestLowestBudget: of all documents that say so the lowest counts, field by field.
func TestLowestBudget(t *testing.T) {
	o, p := doc(t, OrganizationName, "[budget]\nmax_cost = 5\nmax_calls = 10\n"), doc(t, ProjectName, "[budget]\nmax_cost = 2\nmax_calls = 20\nmax_time = 60\n")
	d := Documents{Organization: &o, Project: &p}
	type most struct {
		limit int64
		whose string
	}
	for key, want := range map[string]most{
		"cost": {2_000_000, ProjectName}, "calls": {10, OrganizationName}, "time": {60_000, ProjectName}, "tokens": {},
	} {
		for _, f := range cofferdam.BudgetFields() {
			if f.Key != key {
				continue
			}
			if limit, whose := d.Most(f); (most{limit, whose}) != want {
				t.Errorf("%s: %d by %q, want %+v", key, limit, whose, want)
			}
		}
	}
}
