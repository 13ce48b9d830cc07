package config

import (
	"fmt"

	"cofferdam"
)

// fileBudget is what tasks may spend, in the operator file: what a task gets
// that asks for nothing, and with max_ how much one may ask for; of single
// projects that alone. Of all that is said the lowest counts.
//
//	[budget]
//	tokens = 2000000      # input and output together, over all attempts
//	cost = 5.00           # US dollars
//	calls = 300           # of models: the turns of a conversation
//	time = 3600           # seconds that its agent runs
//	tool_time = 1800      # seconds that commands of our own agent run
//	egress = 100000000    # bytes sent to hosts outside
//	approvals = 10        # questions to people
//	max_cost = 20.00      # a task may ask for so much, and no more
//
//	[budget.project.web]  # the project's name
//	max_cost = 2.00
type fileBudget struct {
	Tokens    int64   `toml:"tokens"`
	Cost      float64 `toml:"cost"`
	Calls     int64   `toml:"calls"`
	Time      float64 `toml:"time"`
	ToolTime  float64 `toml:"tool_time"`
	Egress    int64   `toml:"egress"`
	Approvals int64   `toml:"approvals"`
	fileMost
	Project map[string]fileMost `toml:"project"`
}

// fileMost is how much a task may ask for.
type fileMost struct {
	MaxTokens    int64   `toml:"max_tokens"`
	MaxCost      float64 `toml:"max_cost"`
	MaxCalls     int64   `toml:"max_calls"`
	MaxTime      float64 `toml:"max_time"`
	MaxToolTime  float64 `toml:"max_tool_time"`
	MaxEgress    int64   `toml:"max_egress"`
	MaxApprovals int64   `toml:"max_approvals"`
}

// values are in the order of cofferdam.BudgetFields.
func (b fileBudget) values() []float64 {
	return []float64{float64(b.Tokens), b.Cost, float64(b.Calls), b.Time, b.ToolTime, float64(b.Egress), float64(b.Approvals)}
}

// values are in the order of cofferdam.BudgetFields.
func (m fileMost) values() []float64 {
	return []float64{float64(m.MaxTokens), m.MaxCost, float64(m.MaxCalls), m.MaxTime, m.MaxToolTime, float64(m.MaxEgress), float64(m.MaxApprovals)}
}

// fillBudget takes over limits and prices. Their ranges are those of a task's
// own limits; zero means that there is none.
func (f operatorFile) fillBudget(c *Config, fail func(key, reason string) error) error {
	if err := readLimits(f.body.Budget.values(), "budget.", &c.Budget, fail); err != nil {
		return err
	}
	if err := readLimits(f.body.Budget.fileMost.values(), "budget.max_", &c.MaxBudget, fail); err != nil {
		return err
	}
	if len(f.body.Budget.Project) > maxProjects {
		return fail("budget.project", fmt.Sprintf("has more than %d projects", maxProjects))
	}
	for name, most := range f.body.Budget.Project {
		var b cofferdam.Budget
		if err := readLimits(most.values(), "budget.project."+name+".max_", &b, fail); err != nil {
			return err
		}
		if c.ProjectBudgets == nil {
			c.ProjectBudgets = map[string]cofferdam.Budget{}
		}
		c.ProjectBudgets[name] = b
	}
	for _, v := range cofferdam.BudgetFields() {
		if have, most := *v.Of(&c.Budget), *v.Of(&c.MaxBudget); most > 0 && have > most {
			return fail("budget."+v.Key, "is more than max_"+v.Key+" lets a task have")
		}
	}
	if len(f.body.Price) > maxAllow {
		return fail("price", fmt.Sprintf("more than %d entries", maxAllow))
	}
	for _, l := range f.body.Price {
		p, err := l.Price()
		if err != nil {
			return fail("price", fmt.Sprintf("model %.60q: %v", l.Model, err))
		}
		c.Prices = append(c.Prices, p)
	}
	return nil
}

// maxProjects bounds how many projects have limits of their own.
const maxProjects = 1000

// readLimits reads numbers in people's units; 0 says that there is no limit.
func readLimits(from []float64, before string, to *cofferdam.Budget, fail func(key, reason string) error) error {
	for i, f := range cofferdam.BudgetFields() {
		if from[i] == 0 {
			continue
		}
		n, err := f.Read(from[i])
		if err != nil {
			return fail(before+f.Key, err.Error())
		}
		*f.Of(to) = n
	}
	return nil
}
