package config

import (
	"fmt"
	"strconv"

	"cofferdam"
)

// fileBudget is what tasks may spend on models, in the operator file: what a
// task gets that asks for nothing, and how much one may ask for.
//
//	[budget]
//	tokens = 2000000      # input and output together, over all attempts
//	cost = 5.00           # US dollars
//	calls = 300
//	max_cost = 20.00      # a task may ask for so much, and no more
type fileBudget struct {
	Tokens    int64   `toml:"tokens"`
	Cost      float64 `toml:"cost"`
	Calls     int64   `toml:"calls"`
	MaxTokens int64   `toml:"max_tokens"`
	MaxCost   float64 `toml:"max_cost"`
	MaxCalls  int64   `toml:"max_calls"`
}

// plainNumber writes n without an exponent: 1000000000 is what people write.
func plainNumber(n float64) string { return strconv.FormatFloat(n, 'f', -1, 64) }

// fillBudget takes over limits and prices. Their ranges are those of a task's
// own limits; zero means that there is none.
func (f operatorFile) fillBudget(c *Config, fail func(key, reason string) error) error {
	b := f.body.Budget
	for _, v := range []struct {
		key       string
		from      float64
		unit      float64
		least, to int64
		field     *int64
	}{
		{"tokens", float64(b.Tokens), 1, cofferdam.MinTokens, cofferdam.MaxTokens, &c.Budget.Tokens},
		{"cost", b.Cost, 1e6, cofferdam.MinCost, cofferdam.MaxCost, &c.Budget.Cost},
		{"calls", float64(b.Calls), 1, 1, cofferdam.MaxCalls, &c.Budget.Calls},
		{"max_tokens", float64(b.MaxTokens), 1, cofferdam.MinTokens, cofferdam.MaxTokens, &c.MaxBudget.Tokens},
		{"max_cost", b.MaxCost, 1e6, cofferdam.MinCost, cofferdam.MaxCost, &c.MaxBudget.Cost},
		{"max_calls", float64(b.MaxCalls), 1, 1, cofferdam.MaxCalls, &c.MaxBudget.Calls},
	} {
		n := v.from * v.unit
		if n != 0 && !(n >= float64(v.least) && n <= float64(v.to)) { // also what is not a number
			return fail("budget."+v.key, fmt.Sprintf("%s is not between %s and %s", plainNumber(v.from), plainNumber(float64(v.least)/v.unit), plainNumber(float64(v.to)/v.unit)))
		}
		*v.field = int64(n + 0.5)
	}
	for _, v := range []struct {
		key       string
		have, max int64
	}{
		{"tokens", c.Budget.Tokens, c.MaxBudget.Tokens}, {"cost", c.Budget.Cost, c.MaxBudget.Cost}, {"calls", c.Budget.Calls, c.MaxBudget.Calls},
	} {
		if v.max > 0 && v.have > v.max {
			return fail("budget."+v.key, "is more than max_"+v.key+" lets a task have")
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
