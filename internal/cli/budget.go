package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"cofferdam"
)

// budgetFlags say what a task may spend on models.
type budgetFlags struct {
	tokens, calls int64
	cost          string
}

func (b *budgetFlags) add(c *cobra.Command) {
	f := c.Flags()
	f.Int64Var(&b.tokens, "max-tokens", 0, "most tokens of models, in and out, over all attempts (default: the server's)")
	f.StringVar(&b.cost, "max-cost", "", "most money for models, in US dollars such as 0.50, over all attempts (default: the server's)")
	f.Int64Var(&b.calls, "max-calls", 0, "most calls of models, over all attempts (default: the server's)")
}

// build returns what was asked for; nil for nothing.
func (b *budgetFlags) build(c *cobra.Command) (*cofferdam.Budget, error) {
	asked := cofferdam.Budget{Tokens: b.tokens, Calls: b.calls}
	if b.cost != "" {
		var err error
		if asked.Cost, err = cofferdam.ParseDollars(b.cost); err != nil {
			return nil, usage(c, "--max-cost: "+err.Error())
		}
	}
	for _, v := range []struct {
		flag string
		have int64
	}{{"max-tokens", asked.Tokens}, {"max-cost", asked.Cost}, {"max-calls", asked.Calls}} {
		if c.Flags().Changed(v.flag) && v.have <= 0 {
			return nil, usage(c, "--"+v.flag+" has to be more than 0")
		}
	}
	if asked == (cofferdam.Budget{}) {
		return nil, nil
	}
	return &asked, nil
}

// limits tells a budget in words; "" for none.
func limits(b *cofferdam.Budget) string {
	var parts []string
	if b == nil {
		return ""
	}
	if b.Tokens > 0 {
		parts = append(parts, fmt.Sprintf("%d tokens", b.Tokens))
	}
	if b.Cost > 0 {
		parts = append(parts, cofferdam.Dollars(b.Cost))
	}
	if b.Calls > 0 {
		parts = append(parts, fmt.Sprintf("%d model calls", b.Calls))
	}
	return strings.Join(parts, ", ")
}

// spent tells what models took, in words.
func spent(u cofferdam.Usage) string {
	s := fmt.Sprintf("%d (%d tokens in, %d out)", u.ModelCalls, u.InputTokens, u.OutputTokens)
	return s + money(u, ", ")
}

// money tells the cost in words, and for how many calls nobody knows it; "" if
// nothing was called.
func money(u cofferdam.Usage, before string) string {
	switch {
	case u.ModelCalls == 0:
		return ""
	case u.Unpriced == 0:
		return before + cofferdam.Dollars(u.Cost)
	case u.Unpriced == u.ModelCalls:
		return before + "without a price"
	}
	return fmt.Sprintf("%s%s and %d calls without a price", before, cofferdam.Dollars(u.Cost), u.Unpriced)
}

// addCall adds what a model call took to what a followed task has spent.
func addCall(u *cofferdam.Usage, e cofferdam.Event) {
	in, counted := e.Fields[cofferdam.FieldInputTokens]
	if e.Kind != cofferdam.EventModelCall || e.Of == nil || !counted {
		return
	}
	u.ModelCalls++
	for _, v := range []struct {
		text string
		to   *int64
	}{{in, &u.InputTokens}, {e.Fields[cofferdam.FieldOutputTokens], &u.OutputTokens}, {e.Fields[cofferdam.FieldCost], &u.Cost}} {
		var n int64
		if _, err := fmt.Sscan(v.text, &n); err == nil {
			*v.to += n
		}
	}
	if e.Fields[cofferdam.FieldUnpriced] != "" {
		u.Unpriced++
	}
}
