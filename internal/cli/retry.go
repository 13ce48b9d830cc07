package cli

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"cofferdam"
	"cofferdam/client"
)

func newTaskRetry(a *app) *cobra.Command {
	var (
		resume bool
		limits budgetFlags
	)
	c := &cobra.Command{
		Use: "retry TASK", Short: "Make a new attempt of a task", Args: exactly("TASK"), ValidArgsFunction: a.completeTasks,
		Long: "Make a new attempt of a task that ended without landing, from the base branch as it is now. With --resume it goes on in the workspace " +
			"of the last attempt, as that was left, uncommitted changes included. A limit that is named takes the place of the one the task has; what was used stays used." + calling(10),
		Example: "  cofferdam task retry t-1\n  cofferdam task retry t-1 --resume --max-time 2h",
		RunE: func(c *cobra.Command, args []string) error {
			more, err := limits.build(c)
			if err != nil {
				return err
			}
			try, verb := (*client.Client).RetryTask, "started a new attempt of"
			if resume {
				try, verb = (*client.Client).ResumeTask, "started a new attempt in the workspace of"
			}
			return a.change(c, args[0], func(cl *client.Client, ctx context.Context, name string) (cofferdam.Task, error) {
				return try(cl, ctx, name, more)
			}, verb)
		},
	}
	c.Flags().BoolVar(&resume, "resume", false, "go on in the workspace of the last attempt")
	limits.add(c, "as before")
	return c
}

// moreOf is the command by which a task goes on that ended at a limit; "" for one that
// did not. It names the limits of which more than half is used, or else all.
func moreOf(t cofferdam.Task) string {
	b := t.Limits()
	if b == nil || t.Reason != cofferdam.ReasonBudget && (t.Reason != cofferdam.ReasonTime || b.Time == 0 || t.Usage.Time < b.Time) {
		return ""
	}
	var near, all []string
	for _, f := range cofferdam.BudgetFields() {
		most := *f.Of(b)
		if most == 0 {
			continue
		}
		all = append(all, "--"+f.Flag+" MORE")
		if f.UsedUnder(t.Usage) > most/2 {
			near = append(near, "--"+f.Flag+" MORE")
		}
	}
	if len(near) == 0 {
		near = all
	}
	return strings.Join(append([]string{"cofferdam task retry", t.Short(), "--resume"}, near...), " ")
}
