package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"cofferdam/internal/config"
	"cofferdam/internal/doctor"
)

func newDoctor(a *app) *cobra.Command {
	s := &serverFlags{}
	c := &cobra.Command{
		Use: "doctor", Short: "Check this host, with a fix for each fault", Args: none,
		Long: "Check this host: what boxes, gateways and server need, each with its fix. The server refuses to start on the same checks." + exits(0, 1, 2), Example: "  sudo cofferdam doctor",
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
				for _, f := range r.Items {
					fmt.Fprintf(a.Out, "%-4s  %-22s %s\n", clean(f.Level), clean(f.Name), clean(f.Detail))
					if f.Fix != "" {
						fmt.Fprintf(a.Out, "      %-22s fix: %s\n", "", clean(f.Fix))
					}
				}
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
