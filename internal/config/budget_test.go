package config

import (
	"strings"
	"testing"

	"cofferdam"
)

func TestBudget(t *testing.T) {
	load := func(text string) (Config, error) {
		return Load(map[string]string{"config": write(t, "c.toml", text, 0o600)}, none)
	}
	c, err := load("[budget]\ntokens = 2_000_000\ncost = 5\nmax_cost = 20.5\nmax_calls = 500\n[[price]]\nmodel = \"a-*\"\ninput = 1\noutput = 0.25\n" +
		"[[price]]\nmodel = \"a-*\"\nabove = 200000\ninput = 2\noutput = 4\ncache_read = 0\ncache_write = 2.5\n")
	if err != nil {
		t.Fatal(err)
	}
	if want := (cofferdam.Budget{Tokens: 2_000_000, Cost: 5_000_000}); c.Budget != want {
		t.Errorf("budget %+v, want %+v", c.Budget, want)
	}
	if want := (cofferdam.Budget{Cost: 20_500_000, Calls: 500}); c.MaxBudget != want {
		t.Errorf("the most a task may ask for %+v, want %+v", c.MaxBudget, want)
	}
	if len(c.Prices) != 2 || c.Prices[0] != (cofferdam.Price{Model: "a-*", Input: 1e6, Output: 250_000, CacheRead: 1e6, CacheWrite: 1e6}) ||
		c.Prices[1] != (cofferdam.Price{Model: "a-*", Above: 200_000, Input: 2e6, Output: 4e6, CacheWrite: 2_500_000}) {
		t.Errorf("prices %+v", c.Prices)
	}
	if c, err = load(""); err != nil || c.Budget != (cofferdam.Budget{}) || c.MaxBudget != (cofferdam.Budget{}) || len(c.Prices) != 0 {
		t.Errorf("without a word: %+v %+v %v, %v", c.Budget, c.MaxBudget, c.Prices, err)
	}
	for text, key := range map[string]string{
		"[budget]\ntokens = 999\n":                                    "budget.tokens",
		"[budget]\ntokens = -1\n":                                     "budget.tokens",
		"[budget]\ntokens = 1_000_000_001\n":                          "budget.tokens",
		"[budget]\ncost = 0.009\n":                                    "budget.cost",
		"[budget]\ncost = 100.01\n":                                   "budget.cost",
		"[budget]\ncost = nan\n":                                      "budget.cost",
		"[budget]\ncost = inf\n":                                      "budget.cost",
		"[budget]\ncost = \"5\"\n":                                    "budget.cost",
		"[budget]\ncalls = 501\n":                                     "budget.calls",
		"[budget]\ncalls = 1.5\n":                                     "budget.calls",
		"[budget]\ncost = 5\nmax_cost = 4\n":                          "budget.cost",
		"[budget]\ndollars = 5\n":                                     "budget.dollars",
		"budget = 5\n":                                                "budget",
		"[budget]\ntime = 0.5\n":                                      "budget.time",
		"[budget]\nmax_egress = 1.5\n":                                "budget.max_egress",
		"[budget]\napprovals = 51\n":                                  "budget.approvals",
		"[budget]\nproject = 5\n":                                     "budget.project",
		"[budget.project]\nweb = 5\n":                                 "budget.project.web",
		"[budget.project.web]\ncost = 5\n":                            "budget.project.web.cost",
		"[budget.project.web]\nmax_cost = 101\n":                      "budget.project.web.max_cost",
		"[[price]]\nmodel = \"a\"\ninput = 1\noutput = -1\n":          "price",
		"[[price]]\nmodel = \"*a\"\ninput = 1\noutput = 1\n":          "price",
		"[[price]]\ninput = 1\noutput = 1\n":                          "price",
		"[[price]]\nmodel = \"a\"\ninput = 1\n":                       "price",
		"[[price]]\nmodel = \"a\"\ninput = 1\noutput = 1\neach = 3\n": "price.each",
		strings.Repeat("[[price]]\nmodel = \"a\"\n", maxAllow+1):      "price",
	} {
		_, err := load(text)
		if err == nil || !strings.Contains(err.Error(), `"`+key) {
			t.Fatalf("%.60q: %v does not name %s", text, err, key)
		}
		if hint := cofferdam.HintOf(err); hint == "" || strings.Contains(hint, "allows nothing") {
			t.Errorf("%.60q: the hint %q is not about budgets or prices", text, hint)
		}
		if strings.Contains(err.Error(), "e+") {
			t.Errorf("%.60q: %v has a number with an exponent", text, err)
		}
	}
}

// TestBudgetOfProjects: what a project's tasks may ask for, in people's units.
func TestBudgetOfProjects(t *testing.T) {
	text := "[budget]\ntime = 90\negress = 1000\n[budget.project.web]\nmax_cost = 2.00\nmax_tool_time = 1.5\nmax_approvals = 3\n"
	c, err := Load(map[string]string{"config": write(t, "b.toml", text, 0o600)}, none)
	want := cofferdam.Budget{Cost: 2_000_000, ToolTime: 1500, Approvals: 3}
	if err != nil || c.Budget != (cofferdam.Budget{Time: 90_000, Egress: 1000}) || len(c.ProjectBudgets) != 1 || c.ProjectBudgets["web"] != want {
		t.Errorf("%+v %+v %v", c.Budget, c.ProjectBudgets, err)
	}
}
