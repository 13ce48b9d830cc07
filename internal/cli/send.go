package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"cofferdam"
	"cofferdam/client"
)

func newTaskSend(a *app) *cobra.Command {
	var file string
	c := &cobra.Command{
		Use: "send TASK TEXT|-f FILE", Short: "Tell a task's agent something, or answer what it asks", ValidArgsFunction: a.completeTasks,
		Args: func(c *cobra.Command, args []string) error {
			switch {
			case len(args) == 0:
				return usage(c, "TASK is missing: say which task is meant")
			case len(args) == 1 && file == "":
				return usage(c, "TEXT is missing: say what the agent should know, or give -f FILE")
			case len(args) == 2 && file != "":
				return usage(c, "give TEXT or -f FILE, not both")
			case len(args) > 2:
				return usage(c, "one argument too many: "+quoted(args[2])+"; put the text in quotes")
			}
			return nil
		},
		Long: "Tell a task's agent something while it runs, or before it begins. The agent hears it after the tool call it is in, " +
			"and goes on in its own conversation. Of a task that waits for a person, the next message is the answer." + calling(12),
		Example: "  cofferdam task send t-1 \"leave the public API as it is\"\n  cofferdam task send t-1 -f notes.txt",
		RunE: a.atServer(func(c *cobra.Command, cl *client.Client, args []string) error {
			text := ""
			var err error
			if file != "" {
				if text, err = a.readText(file, maxText); err != nil {
					return err
				}
			} else {
				text = args[1]
			}
			m, err := cl.SendTask(c.Context(), args[0], text)
			if err != nil {
				return err
			}
			return a.sent(args[0], m)
		}),
	}
	c.Flags().StringVarP(&file, "file", "f", "", "read the text from this file; - is stdin")
	return c
}

// sent prints the message's number for scripts, a sentence for people.
func (a *app) sent(task string, m cofferdam.TaskMessage) error {
	if a.json {
		return a.object(m)
	}
	heard := "its agent hears it after the tool call it is in"
	switch m.While {
	case cofferdam.Waiting:
		heard = "it is the answer that its agent waits for"
	case cofferdam.Queued, cofferdam.Preparing:
		heard = "its agent hears it when it begins"
	}
	a.say("kept message %d to %s; %s", m.Number, task, heard)
	_, err := fmt.Fprintln(a.Out, m.Number)
	return err
}
