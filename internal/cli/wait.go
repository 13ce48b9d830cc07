package cli

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"cofferdam"
	"cofferdam/client"
)

// longestWait is one request; the server allows 10 minutes.
const longestWait = 5 * time.Minute

func newTaskWait(a *app) *cobra.Command {
	var limit time.Duration
	var state string
	c := &cobra.Command{
		Use: "wait TASK", Short: "Wait until a task is at rest or in a state, exit with its outcome", Args: exactly("TASK"), ValidArgsFunction: a.completeTasks,
		Long: "Wait without output until a task is at rest, and exit with its outcome; 8 if --timeout is over before.\n\n" +
			"With --state wait until the task is in that state, and exit with 0 then. Nothing else ends the wait but the task's end: " +
			"the code is its outcome then, and 1 instead of 0. A state that a task has for a moment only can be missed." + calling(8, 9, 10, 12, 130),
		Example: "  cofferdam task wait t-1 --timeout 10m\n  cofferdam task wait t-1 --state running",
		RunE: func(c *cobra.Command, args []string) error {
			if limit < 0 {
				return usage(c, "--timeout has to be 0 or longer")
			}
			if c.Flags().Changed("state") && state == "" {
				return usage(c, "--state is empty: name one, such as running")
			}
			cl, err := a.dial()
			if err != nil {
				return err
			}
			w := wait{name: args[0], state: stateOf(state)}
			if c.Flags().Changed("timeout") {
				w.until = time.Now().Add(limit)
			}
			t, err := w.wait(c.Context(), cl)
			if err != nil {
				return err
			}
			if a.json {
				if err := a.object(t); err != nil {
					return err
				}
			}
			return a.waited(t, w.state)
		},
	}
	c.Flags().DurationVar(&limit, "timeout", 0, "wait no longer than this (default: for ever)")
	c.Flags().StringVar(&state, "state", "", "wait for this state instead of rest, such as running or \"in review\"")
	return c
}

// wait waits for a state of a task, or, without one, for its rest.
type wait struct {
	name  string
	state cofferdam.TaskState
	until time.Time // zero: for ever
}

// over says whether there is nothing more to wait for.
func (w wait) over(t cofferdam.Task) bool {
	if w.state == "" {
		return codeOf(t) != 8
	}
	return t.State == w.state || t.State.Ended()
}

func (w wait) wait(ctx context.Context, cl *client.Client) (cofferdam.Task, error) {
	for {
		limit := longestWait
		if !w.until.IsZero() {
			limit = max(0, min(limit, time.Until(w.until).Round(time.Second)))
		}
		t, err := cl.WaitTask(ctx, w.name, w.state, limit)
		if err != nil || w.over(t) || !w.until.IsZero() && time.Until(w.until) <= time.Second/2 {
			return t, err
		}
	}
}

// waited turns what was waited for into the command's end.
func (a *app) waited(t cofferdam.Task, state cofferdam.TaskState) error {
	switch {
	case state == "":
		return ended(t)
	case t.State == state:
		return nil
	case !t.State.Ended():
		return outcome(8)
	}
	a.say("%s, not %s", sentence(t), state)
	if err := ended(t); err != nil {
		return err
	}
	return outcome(1)
}
