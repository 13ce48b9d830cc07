package cofferdam

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Budget bounds what a task may spend, over all its attempts. Zero fields say
// nothing. Source of the ranges: docs/SPECIFICATION.md.
type Budget struct {
	Tokens    int64 `json:"tokens,omitempty"`            // input and output together
	Cost      int64 `json:"cost_microdollars,omitempty"` // 1,000,000 are one US dollar
	Calls     int64 `json:"model_calls,omitempty"`       // the turns of a conversation with a model
	Time      int64 `json:"agent_milliseconds,omitempty"`
	ToolTime  int64 `json:"tool_milliseconds,omitempty"` // of our own agent's commands; those of others are part of Time
	Egress    int64 `json:"egress_bytes,omitempty"`      // sent to hosts outside, heads of requests included
	Approvals int64 `json:"approvals,omitempty"`         // questions to people
}

// BudgetField is one of the things that a Budget bounds.
type BudgetField struct {
	Key       string // in files; with max_ before it the most that may be asked for
	Flag      string
	What      string // for people: "tokens"
	Min, Max  int64  // in the unit of the Budget
	Unit      int64  // how much of that people's unit is: a dollar, a second
	Of        func(*Budget) *int64
	Model     bool                // a task that met it makes no model call any more
	Show      func(int64) string  // for people
	UsedUnder func(u Usage) int64 // what a usage has of it
}

// Read takes a limit in people's unit, such as dollars, into that of the Budget.
func (f BudgetField) Read(n float64) (int64, error) {
	unit := float64(f.Unit)
	if in := n * unit; in >= float64(f.Min) && in <= float64(f.Max) {
		return int64(in + 0.5), nil
	}
	plain := func(n float64) string { return strconv.FormatFloat(n, 'f', -1, 64) } // 1000000000 is what people write
	return 0, fmt.Errorf("%s is not between %s and %s", plain(n), plain(float64(f.Min)/unit), plain(float64(f.Max)/unit))
}

// BudgetFields lists them, in the order in which they are shown; nobody changes
// the list.
func BudgetFields() []BudgetField { return budgetFields }

var budgetFields = func() []BudgetField {
	count := func(what string) func(int64) string {
		return func(n int64) string { return fmt.Sprintf("%d %s", n, what) }
	}
	span := func(what string) func(int64) string {
		return func(n int64) string { return (time.Duration(n) * time.Millisecond).String() + " " + what }
	}
	return []BudgetField{
		{"tokens", "max-tokens", "tokens", MinTokens, MaxTokens, 1, func(b *Budget) *int64 { return &b.Tokens }, true, count("tokens"), func(u Usage) int64 { return u.InputTokens + u.OutputTokens }},
		{"cost", "max-cost", "cost", MinCost, MaxCost, 1_000_000, func(b *Budget) *int64 { return &b.Cost }, true, Dollars, func(u Usage) int64 { return u.Cost }},
		{"calls", "max-calls", "model calls", 1, MaxCalls, 1, func(b *Budget) *int64 { return &b.Calls }, true, count("model calls"), func(u Usage) int64 { return u.ModelCalls }},
		{"time", "max-time", "time of the agent", 1000, MaxBudgetTime, 1000, func(b *Budget) *int64 { return &b.Time }, false, span("of the agent"), func(u Usage) int64 { return u.Time }},
		{"tool_time", "max-tool-time", "time of tools", 1000, MaxBudgetTime, 1000, func(b *Budget) *int64 { return &b.ToolTime }, false, span("of tools"), func(u Usage) int64 { return u.ToolTime }},
		{"egress", "max-egress", "bytes sent", 1, MaxEgress, 1, func(b *Budget) *int64 { return &b.Egress }, false, count("bytes sent"), func(u Usage) int64 { return u.Egress }},
		{"approvals", "max-approvals", "questions to people", 1, MaxApprovals, 1, func(b *Budget) *int64 { return &b.Approvals }, false, count("questions to people"), func(u Usage) int64 { return u.Approvals }},
	}
}()

// Ranges of the fields of a Budget that are not about models.
const (
	MaxBudgetTime = 14 * 24 * 3600 * 1000 // milliseconds: the longest life of a session
	MaxEgress     = 1 << 40               // bytes
	MaxApprovals  = 50                    // no task asks more, whatever its budget
)

// Limits are those that count for a task now; nil: none.
func (t Task) Limits() *Budget {
	if t.Raised != nil {
		return t.Raised
	}
	return t.Request.Budget
}

// String lists what it bounds by key, in the units of its fields.
func (b Budget) String() string {
	var parts []string
	for _, f := range BudgetFields() {
		if n := *f.Of(&b); n > 0 {
			parts = append(parts, fmt.Sprintf("%s=%d", f.Key, n))
		}
	}
	return strings.Join(parts, " ")
}

// Or returns b with the fields that say nothing taken from other.
func (b Budget) Or(other Budget) Budget {
	for _, f := range BudgetFields() {
		if to := f.Of(&b); *to == 0 {
			*to = *f.Of(&other)
		}
	}
	return b
}

// Lowest takes the lower of each field of b and other; zero says nothing.
func (b Budget) Lowest(other Budget) Budget {
	for _, f := range BudgetFields() {
		if to, o := f.Of(&b), *f.Of(&other); *to == 0 || o != 0 && o < *to {
			*to = o
		}
	}
	return b
}

// Check says what is wrong with b, and by which flag it is said; "" if nothing is.
func (b Budget) Check() (what, why, flag string) {
	for _, f := range BudgetFields() {
		if n := *f.Of(&b); n != 0 && (n < f.Min || n > f.Max) {
			return "limit of " + f.What, fmt.Sprintf("must be between %s and %s", f.Show(f.Min), f.Show(f.Max)), "--" + f.Flag
		}
	}
	return "", "", ""
}

// Plus returns the sum.
func (b Budget) Plus(other Budget) Budget {
	for _, f := range BudgetFields() {
		*f.Of(&b) += *f.Of(&other)
	}
	return b
}

// Minus returns the difference.
func (b Budget) Minus(other Budget) Budget {
	for _, f := range BudgetFields() {
		*f.Of(&b) -= *f.Of(&other)
	}
	return b
}

// Usage counts what a task spent and met.
type Usage struct {
	InputTokens  int64 `json:"input_tokens"`
	OutputTokens int64 `json:"output_tokens"`
	ModelCalls   int64 `json:"model_calls"`
	Refused      int64 `json:"refused"`           // decisions that refused
	Cost         int64 `json:"cost_microdollars"` // of calls whose model has a price
	Unpriced     int64 `json:"unpriced_calls"`    // calls whose model has none
	Time         int64 `json:"agent_milliseconds"`
	ToolTime     int64 `json:"tool_milliseconds"`
	Egress       int64 `json:"egress_bytes"`
	Approvals    int64 `json:"approvals"` // questions to people
}

// Plus returns the sum.
func (u Usage) Plus(o Usage) Usage {
	return Usage{
		u.InputTokens + o.InputTokens, u.OutputTokens + o.OutputTokens, u.ModelCalls + o.ModelCalls, u.Refused + o.Refused, u.Cost + o.Cost,
		u.Unpriced + o.Unpriced, u.Time + o.Time, u.ToolTime + o.ToolTime, u.Egress + o.Egress, u.Approvals + o.Approvals,
	}
}

// Spent is what u takes of a Budget.
func (u Usage) Spent() Budget {
	var b Budget
	for _, f := range BudgetFields() {
		*f.Of(&b) = f.UsedUnder(u)
	}
	return b
}
