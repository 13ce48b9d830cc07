package config

import (
	"fmt"
	"math"
	"strconv"
	"strings"

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
type fileBudget map[string]any

// plainNumber writes n without an exponent: 1000000000 is what people write.
func plainNumber(n float64) string { return strconv.FormatFloat(n, 'f', -1, 64) }

// fillBudget takes over limits and prices. Their ranges are those of a task's
// own limits; zero means that there is none.
func (f operatorFile) fillBudget(c *Config, fail func(key, reason string) error) error {
	for key, v := range f.body.Budget {
		if key == "project" {
			if err := f.fillProjects(c, v, fail); err != nil {
				return err
			}
			continue
		}
		field, most := budgetField(key)
		if field == nil {
			return fail("budget."+key, "is no limit; "+budgetKeys())
		}
		to := field.Of(&c.Budget)
		if most {
			to = field.Of(&c.MaxBudget)
		}
		if why := readLimit(*field, v, to); why != "" {
			return fail("budget."+key, why)
		}
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

// fillProjects takes over the limits of single projects.
func (f operatorFile) fillProjects(c *Config, v any, fail func(key, reason string) error) error {
	tables, ok := v.(map[string]any)
	if !ok || len(tables) > maxProjects {
		return fail("budget.project", fmt.Sprintf("is no table of at most %d projects", maxProjects))
	}
	c.ProjectBudgets = map[string]cofferdam.Budget{}
	for name, v := range tables {
		table, ok := v.(map[string]any)
		if !ok {
			return fail("budget.project."+name, "is no table")
		}
		var b cofferdam.Budget
		for key, v := range table {
			field, most := budgetField(key)
			if field == nil || !most {
				return fail("budget.project."+name+"."+key, "is no limit of a project; "+budgetKeys()+", with max_ before it")
			}
			if why := readLimit(*field, v, field.Of(&b)); why != "" {
				return fail("budget.project."+name+"."+key, why)
			}
		}
		c.ProjectBudgets[name] = b
	}
	return nil
}

// budgetField finds the field of a key; most says that max_ was before it.
func budgetField(key string) (field *cofferdam.BudgetField, most bool) {
	name, most := strings.CutPrefix(key, "max_")
	for _, f := range cofferdam.BudgetFields() {
		if f.Key == name {
			return &f, most
		}
	}
	return nil, most
}

func budgetKeys() string {
	text := "there are"
	for _, f := range cofferdam.BudgetFields() {
		text += " " + f.Key
	}
	return text
}

// readLimit reads a number in people's unit; 0 says that there is no limit.
func readLimit(f cofferdam.BudgetField, v any, to *int64) (why string) {
	var n float64
	switch v := v.(type) {
	case int64:
		n = float64(v)
	case float64:
		if f.Unit == 1 && v != math.Trunc(v) {
			return "is no whole number"
		}
		n = v
	default:
		return "is no number"
	}
	if n *= float64(f.Unit); n != 0 && !(n >= float64(f.Min) && n <= float64(f.Max)) { // also what is not a number
		unit := float64(f.Unit)
		return fmt.Sprintf("%s is not between %s and %s", plainNumber(n/unit), plainNumber(float64(f.Min)/unit), plainNumber(float64(f.Max)/unit))
	}
	*to = int64(n + 0.5)
	return ""
}
