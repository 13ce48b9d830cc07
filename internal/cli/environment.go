package cli

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"cofferdam"
	"cofferdam/client"
)

func newEnvironment(a *app) *cobra.Command {
	return newNoun("environment", "See and remove what boxes are made from",
		newEnvironmentList(a), newEnvironmentView(a), newEnvironmentRemove(a), newEnvironmentRollback(a), newEnvironmentPrune(a))
}

func newEnvironmentList(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List environments", Args: none,
		Long: "List what boxes are made from and what is kept: results of setups, and images; the newest first." + calling(), Example: "  cofferdam environment list",
		RunE: a.atServer(func(c *cobra.Command, cl *client.Client, _ []string) error {
			all, err := cl.Environments(c.Context())
			if err != nil {
				return err
			}
			return a.environments(all)
		}),
	}
}

func (a *app) environments(all []cofferdam.Environment) error {
	return items(a, "cofferdam/environment-list/v1", all, func(e cofferdam.Environment) string { return string(e.Digest) },
		[]string{"DIGEST", "KIND", "NAME", "SIZE", "USED", "AGE"}, func(e cofferdam.Environment) []string {
			return []string{shortDigest(e.Digest), e.Kind, cut(e.Name, 36), mebibytes(e.Size), age(e.Used), age(e.Created)}
		})
}

// shortDigest is enough of a digest to name it.
func shortDigest(d cofferdam.Digest) string {
	digits := strings.TrimPrefix(string(d), "sha256:")
	return digits[:min(12, len(digits))]
}

func mebibytes(n int64) string { return fmt.Sprintf("%.1fMiB", float64(n)/(1<<20)) }

func newEnvironmentView(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "view DIGEST", Short: "Show an environment", Args: exactly("DIGEST"),
		Long: "Show an environment, by its digest or a unique prefix of it: from what it was made, and why it was." + calling(), Example: "  cofferdam environment view 5f1c09ab",
		RunE: viewed(a, (*client.Client).Environment, func(e cofferdam.Environment) []label {
			lines := []label{
				{"digest", string(e.Digest)}, {"kind", e.Kind}, {"name", e.Name}, {"image", e.Image}, {"source", e.Source}, {"made for", e.Why},
			}
			for _, s := range e.Setup {
				lines = append(lines, label{"setup", s})
			}
			for _, h := range e.Allow {
				lines = append(lines, label{"allow", h})
			}
			lines = append(lines, label{"size", mebibytes(e.Size)}, label{"created", stamp(e.Created)}, label{"used", stamp(e.Used)})
			if !e.Before.IsZero() {
				lines = append(lines, label{"before", "one made " + stamp(e.Before) + " is kept: cofferdam environment rollback"})
			}
			if e.Gone != "" {
				lines = append(lines, label{"gone", e.Gone})
			}
			return lines
		}),
	}
}

func newEnvironmentRemove(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "remove DIGEST", Aliases: []string{"rm"}, Short: "Remove an environment, so that it is made anew", Args: exactly("DIGEST"),
		Long: "Remove an environment. The next task that wants it makes it anew, and looks up the tags of an image anew. A box that runs keeps what it has; " +
			"an image that was used within a day stays." + calling(),
		Example: "  cofferdam environment remove 5f1c09ab",
		RunE:    a.removing("environment", (*client.Client).RemoveEnvironment),
	}
}

func newEnvironmentRollback(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "rollback DIGEST", Short: "Go back to the setup's result before the last one", Args: exactly("DIGEST"),
		Long: "When a setup runs again with the same definition, because its result was too old, the one before is kept. This puts it back in its place, where it " +
			"counts as made now. A box that runs keeps what it has. An earlier definition has an environment of its own: revert the file." + calling(),
		Example: "  cofferdam environment rollback 5f1c09ab",
		RunE: a.atServer(func(c *cobra.Command, cl *client.Client, args []string) error {
			if err := cl.RollbackEnvironment(c.Context(), args[0]); err != nil {
				return err
			}
			e, err := cl.Environment(c.Context(), args[0])
			if err != nil {
				return err
			}
			return a.environments([]cofferdam.Environment{e})
		}),
	}
}

func newEnvironmentPrune(a *app) *cobra.Command {
	var older time.Duration
	var size string
	c := &cobra.Command{
		Use: "prune", Short: "Remove environments by age and size", Args: none,
		Long:    "Remove environments that are older than --older, then those unused for longest until all together are no larger than --size. It prints what went." + calling(),
		Example: "  cofferdam environment prune --older 336h --size 20GiB",
		RunE: func(c *cobra.Command, _ []string) error {
			bytes, err := parseSize(size)
			if err != nil {
				return usage(c, "--size: "+err.Error())
			}
			if older < 0 || older == 0 && bytes == 0 {
				return usage(c, "give --older, --size or both")
			}
			cl, err := a.dial()
			if err != nil {
				return err
			}
			gone, err := cl.PruneEnvironments(c.Context(), cofferdam.PruneRequest{Age: older.Seconds(), Size: bytes})
			if err != nil {
				return err
			}
			return a.environments(gone)
		},
	}
	c.Flags().DurationVar(&older, "older", 0, "those made before that, such as 336h")
	c.Flags().StringVar(&size, "size", "", "size of all that stay, such as 20GiB")
	return c
}
