package cli

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"cofferdam"
	"cofferdam/client"
)

// budgetFlags say what a task may spend, as it was typed, by key.
type budgetFlags struct{ text map[string]*string }

// add names them; unsaid is what counts where one is not given.
func (b *budgetFlags) add(c *cobra.Command, unsaid string) {
	b.text = map[string]*string{}
	about := map[string]string{
		"tokens": "most tokens of models, in and out", "cost": "most money for models, in US dollars such as 0.50", "calls": "most calls of models, which are the turns of its agent",
		"time": "longest run of its agent, such as 45m", "tool_time": "longest run of all commands of the agent loop together", "egress": "most bytes sent to hosts outside, such as 20MiB",
		"approvals": "most questions to people",
	}
	for _, f := range cofferdam.BudgetFields() {
		b.text[f.Key] = c.Flags().String(f.Flag, "", about[f.Key]+", over all attempts (default: "+unsaid+")")
	}
}

// build returns what was asked for; nil for nothing.
func (b *budgetFlags) build(c *cobra.Command) (*cofferdam.Budget, error) {
	var asked cofferdam.Budget
	for _, f := range cofferdam.BudgetFields() {
		if !c.Flags().Changed(f.Flag) {
			continue
		}
		n, err := parseLimit(f.Key, *b.text[f.Key])
		if err != nil {
			return nil, usage(c, "--"+f.Flag+": "+err.Error())
		}
		if n <= 0 {
			return nil, usage(c, "--"+f.Flag+" is at least "+f.Show(f.Min))
		}
		*f.Of(&asked) = n
	}
	if asked == (cofferdam.Budget{}) {
		return nil, nil
	}
	return &asked, nil
}

// parseLimit reads what people type into the unit of a Budget.
func parseLimit(key, text string) (int64, error) {
	switch key {
	case "cost":
		return cofferdam.ParseDollars(text)
	case "time", "tool_time":
		d, err := time.ParseDuration(text)
		if err != nil {
			return 0, fmt.Errorf("%.40q is no duration such as 90s or 1h30m", text)
		}
		return d.Milliseconds(), nil
	case "egress":
		return parseSize(text)
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%.40q is no whole number", text)
	}
	return n, nil
}

// limits tells a budget in words; "" for none.
func limits(b *cofferdam.Budget) string {
	var parts []string
	if b == nil {
		return ""
	}
	for _, f := range cofferdam.BudgetFields() {
		if n := *f.Of(b); n > 0 {
			parts = append(parts, f.Show(n))
		}
	}
	return strings.Join(parts, ", ")
}

// took tells what a task used beside models; "" for nothing.
func took(u cofferdam.Usage) string {
	var parts []string
	for _, f := range cofferdam.BudgetFields() {
		if n := f.UsedUnder(u); n > 0 && !f.Model {
			parts = append(parts, f.Show(n))
		}
	}
	return strings.Join(parts, ", ")
}

func newBudget(a *app) *cobra.Command {
	return newNoun("budget", "See what tasks may spend, and have spent", newBudgetView(a))
}

// budgetLine is one limit of a task.
type budgetLine struct {
	Key   string `json:"key"`
	Used  int64  `json:"used"`
	Limit int64  `json:"limit,omitempty"`
	field cofferdam.BudgetField
}

func newBudgetView(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "view TASK", Short: "Show what a task may spend and has spent", Args: exactly("TASK"), ValidArgsFunction: a.completeTasks,
		Long:    "Show each limit of a task and what its sessions have used of it, as of the last change of its state. What runs now is in its trace." + calling(),
		Example: "  cofferdam budget view t-1",
		RunE: a.atServer(func(c *cobra.Command, cl *client.Client, args []string) error {
			t, err := cl.Task(c.Context(), args[0])
			if err != nil {
				return err
			}
			var b cofferdam.Budget
			if l := t.Limits(); l != nil {
				b = *l
			}
			var lines []budgetLine
			for _, f := range cofferdam.BudgetFields() {
				lines = append(lines, budgetLine{f.Key, f.UsedUnder(t.Usage), *f.Of(&b), f})
			}
			return items(a, "cofferdam/budget/v1", lines, func(l budgetLine) string { return l.Key },
				[]string{"WHAT", "USED", "LIMIT", "PERCENT"}, func(l budgetLine) []string {
					if l.Limit == 0 {
						return []string{l.Key, l.field.Show(l.Used), "-", "-"}
					}
					return []string{l.Key, l.field.Show(l.Used), l.field.Show(l.Limit), fmt.Sprintf("%d%%", l.Used*100/l.Limit)}
				})
		}),
	}
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
