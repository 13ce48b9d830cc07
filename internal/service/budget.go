package service

import (
	"fmt"

	"cofferdam"
)

// settleBudget writes into a request what the task may really spend: what it
// asks for, within what the operator allows, and else the operator's default.
func (s *Service) settleBudget(op string, r *cofferdam.TaskRequest) error {
	var asked cofferdam.Budget
	if r.Budget != nil {
		asked = *r.Budget
	}
	tooMuch := func(what, flag, most string) error {
		return invalid(op, what, "at most "+most+" is given to a task on this server", "ask for less with "+flag+", or have the operator raise [budget] in cofferdam.toml")
	}
	over := func(asked, most int64) bool { return most > 0 && asked > most }
	switch m := s.MaxBudget; {
	case over(asked.Tokens, m.Tokens):
		return tooMuch("limit of tokens", "--max-tokens", fmt.Sprint(m.Tokens))
	case over(asked.Cost, m.Cost):
		return tooMuch("limit of cost", "--max-cost", cofferdam.Dollars(m.Cost))
	case over(asked.Calls, m.Calls):
		return tooMuch("limit of model calls", "--max-calls", fmt.Sprint(m.Calls))
	}
	r.Budget = nil
	if b := asked.Or(s.Budget).Or(s.MaxBudget); b != (cofferdam.Budget{}) {
		r.Budget = &b
	}
	return nil
}
