package cli

import (
	"strings"

	"github.com/spf13/cobra"

	"cofferdam"
	"cofferdam/client"
)

func newAgent(a *app) *cobra.Command {
	return newNoun("agent", "See the coding agents that tasks may name", newAgentList(a), newAgentView(a))
}

func newAgentList(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List agents", Args: none,
		Long: "List the agents of this installation, with the version that is installed and the protocols they speak to a model." + calling(), Example: "  cofferdam agent list",
		RunE: a.atServer(func(c *cobra.Command, cl *client.Client, _ []string) error {
			all, err := cl.Agents(c.Context())
			if err != nil {
				return err
			}
			return items(a, "cofferdam/agent-list/v1", all, func(g cofferdam.Adapter) string { return g.Name },
				[]string{"AGENT", "VERSION", "PROVIDERS", "RUNS IN", "INSTALLED FROM", "TITLE"}, func(g cofferdam.Adapter) []string {
					return []string{g.Name, g.Version, strings.Join(g.Providers, ","), g.Place, strings.Join(g.Reaches, ","), g.Title}
				})
		}),
	}
}

func newAgentView(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "view AGENT", Short: "Show an agent and what it would contact", Args: exactly("AGENT"),
		Long: "Show an agent: its command line, how it is installed, and which hosts besides the model it would contact, each with the setting that keeps it from that." + calling(), Example: "  cofferdam agent view claude",
		RunE: viewed(a, (*client.Client).Agent, func(g cofferdam.Adapter) []label {
			from, told := "comes with Cofferdam", "taken while it runs"
			if g.Added {
				from = "added by the operator"
			}
			if !g.Resumes {
				told = "none: its conversation ends with its process"
			}
			lines := []label{
				{"agent", g.Name},
				{"title", g.Title},
				{"version", g.Version},
				{"from", from},
				{"providers", strings.Join(g.Providers, " ")},
				{"runs in", g.Place},
				{"command", strings.Join(g.Command, " ")},
				{"messages", told},
				{"read as", g.Reader},
				{"tools", strings.Join(g.Tools, " ")},
				{"reaches", strings.Join(g.Reaches, " ")},
			}
			for _, s := range g.Setup {
				lines = append(lines, label{"setup", s})
			}
			for _, c := range g.Contacts {
				lines = append(lines, label{"contact", c.Host + ": " + c.Why + "; closed by " + c.Closed})
			}
			return lines
		}),
	}
}
