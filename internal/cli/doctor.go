package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"cofferdam/internal/config"
	"cofferdam/internal/doctor"
	"cofferdam/sandbox"
)

func newDoctor(a *app) *cobra.Command {
	s := &serverFlags{}
	c := &cobra.Command{
		Use: "doctor", Short: "Check this host, with a fix for each fault", Args: none,
		Long: "Check this host: what boxes, gateways and server need, each with its fix, and which tiers of box it has. Any user may ask, and no " +
			"server is needed. The server refuses to start on the same checks." + exits(0, 1, 2), Example: "  sudo cofferdam doctor",
		RunE: func(c *cobra.Command, _ []string) error {
			conf, err := s.load(a, c)
			if err != nil {
				return err
			}
			r := doctor.Run(c.Context(), doctor.Options{Config: conf, Presets: config.Presets(c.Context(), conf, config.ThisMachine())})
			if a.json {
				if err := a.object(r); err != nil {
					return err
				}
			} else {
				a.findings(r.Items)
				a.tiers(r)
			}
			if failed := len(r.Failed()); failed > 0 {
				a.say("%d of %d checks failed", failed, len(r.Items))
				return outcome(1)
			}
			return nil
		},
	}
	s.add(c)
	return c
}

func (a *app) findings(list []sandbox.Finding) {
	for _, f := range list {
		fmt.Fprintf(a.Out, "%-4s  %-22s %s\n", clean(f.Level), clean(f.Name), clean(f.Detail))
		if f.Fix != "" {
			fmt.Fprintf(a.Out, "      %-22s fix: %s\n", "", clean(f.Fix))
		}
	}
}

// tiers says which tiers of box this host has, and what each of the others
// lacks. The findings of the server's own tier were printed before.
func (a *app) tiers(r doctor.Report) {
	for i, t := range r.Tiers {
		if i == 0 {
			fmt.Fprintln(a.Out, "\ntiers of box (docs/tiers.md says which protects against what):")
		}
		word, more := "usable", ""
		if !t.Usable {
			word = "no"
		}
		if t.Tier == r.Tier {
			more = "the one of this server's boxes"
		}
		fmt.Fprintf(a.Out, "%-18s %-7s %s\n", clean(string(t.Tier)), word, more)
		if t.Tier == r.Tier {
			continue
		}
		for _, f := range t.Findings {
			if f.Level == sandbox.OK {
				continue
			}
			fmt.Fprintf(a.Out, "  %-4s  %-22s %s\n", clean(f.Level), clean(f.Name), clean(f.Detail))
			if f.Fix != "" {
				fmt.Fprintf(a.Out, "        %-22s fix: %s\n", "", clean(f.Fix))
			}
		}
	}
}
