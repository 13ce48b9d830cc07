package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"cofferdam"
)

func newStatus(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "status", Short: "What runs, what waits for you", Args: none,
		Long: "Say what runs and what waits for a person." + calling(), Example: "  cofferdam status",
		RunE: func(c *cobra.Command, _ []string) error {
			cl, err := a.dial()
			if err != nil {
				return err
			}
			s, err := cl.Status(c.Context())
			if err != nil {
				return err
			}
			if a.json {
				return a.object(s)
			}
			if a.quiet {
				for _, t := range s.Waiting {
					fmt.Fprintln(a.Out, t.ID)
				}
				return nil
			}
			lines := []label{{"server", "version " + s.Version + " (build " + clean(s.Build) + "), up " + age(s.Started)}}
			for _, k := range s.Keepers {
				text := fmt.Sprintf("process %d, build %s, %d boxes", k.Process, clean(k.Build), k.Boxes)
				if k.Boxes == 1 {
					text = strings.TrimSuffix(text, "es")
				}
				if k.Draining {
					text += ": it is being replaced and ends with its last box"
				}
				lines = append(lines, label{"keeper", text})
			}
			for _, state := range sortedStates(s.Tasks) {
				lines = append(lines, label{string(state), fmt.Sprint(s.Tasks[state])})
			}
			if err := a.labels(lines); err != nil {
				return err
			}
			for _, t := range s.Waiting {
				fmt.Fprintf(a.Out, "%-13s %s  %s\n", "for you:", t.Short(), clean(cut(t.Request.Text, 60)))
			}
			questions, err := cl.Approvals(c.Context(), true)
			if err != nil && cofferdam.KindOf(err) != cofferdam.Denied { // a token may be good for the status alone
				return err
			}
			for _, q := range questions {
				fmt.Fprintf(a.Out, "%-13s %s  %s %s, %s left; see cofferdam approval view %[2]s\n", "question:", string(q.ID)[:min(14, len(q.ID))], clean(q.Action), cut(clean(q.Resource), 40), left(q))
			}
			for _, w := range s.Workspaces {
				fmt.Fprintf(a.Out, "%-13s %s: %s\n", "workspace:", w.Short(), clean(keptLabel(cofferdam.Task{}, w).value))
			}
			return nil
		},
	}
}

func sortedStates(m map[cofferdam.TaskState]int) []cofferdam.TaskState {
	var out []cofferdam.TaskState
	for s := range m {
		out = append(out, s)
	}
	slices.Sort(out)
	return out
}
