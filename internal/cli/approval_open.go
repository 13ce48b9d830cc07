package cli

import (
	"time"

	"github.com/spf13/cobra"

	"cofferdam"
)

func newApprovalOpen(a *app) *cobra.Command {
	var r cofferdam.OpenRequest
	var span time.Duration
	c := &cobra.Command{
		Use: "open TASK ENTRY", Short: "Open one host for the rest of a task", Args: exactly("TASK", "ENTRY"),
		Long: "Open one entry for the rest of a task that has not ended, such as a host that it was refused: for a time and, with --uses, for a number of " +
			"requests. It counts at once. What a rule denies stays denied, and what is beyond a limit of the policy nobody opens. A person does this at a " +
			"terminal and proves with a password or a code that they are there." + calling(9),
		Example: "  cofferdam approval open t-42 api.example.com --for 30m --uses 10",
		RunE: func(c *cobra.Command, args []string) error {
			cl, err := answers{a}.attend("opening "+args[1], "cofferdam approval open")
			if err != nil {
				return err
			}
			t, err := cl.Task(c.Context(), args[0])
			if err != nil {
				return err
			}
			r.Bounds.Entry, r.Bounds.Seconds = args[1], span.Seconds()
			if err := a.labels([]label{{"task", t.Short() + "  " + cut(clean(t.Request.Text), 60)}, {"opens", args[1]}, {"for", span.String()}}); err != nil {
				return err
			}
			if r.Proof, err = (answers{a}).prove(c, cl); err != nil {
				return err
			}
			q, err := cl.OpenTask(c.Context(), string(t.ID), r)
			if err != nil {
				return err
			}
			if a.json {
				return a.object(q)
			}
			a.say("%s is open for %s until %s", args[1], t.Short(), q.Created.Add(span).Local().Format(time.TimeOnly))
			return nil
		},
	}
	c.Flags().DurationVar(&span, "for", time.Hour, "for how long, at most a day")
	c.Flags().IntVar(&r.Bounds.Uses, "uses", 0, "for at most so many requests")
	c.Flags().StringVar(&r.Action, "action", "", "invoke, use and so on, if the entry is no host")
	c.Flags().StringVar(&r.Comment, "comment", "", "a sentence for the record")
	return c
}
