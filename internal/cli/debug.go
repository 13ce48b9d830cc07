package cli

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"cofferdam/internal/demo"
)

// newDebug is for developers and demos; nothing in it is promised.
func newDebug(a *app) *cobra.Command {
	c := newNoun("debug", "For developers: demo, rehearsal model, reference; no promise", newDemo(a), newRehearse(a), newReference(a))
	c.Hidden = true
	return c
}

func newDemo(a *app) *cobra.Command {
	var o demo.Options
	c := &cobra.Command{
		Use: "demo", Short: "Play the story of make demo", Args: none, Long: "Play the story of make demo on a temporary server with a labelled test person." + exits(0, 1, 2, 130), Example: "  cofferdam debug demo --agent claude\n  cofferdam debug demo --model real",
		RunE: func(c *cobra.Command, _ []string) error {
			exe, err := os.Executable()
			if err != nil {
				return fmt.Errorf("finding this program's folder: %w", err)
			}
			o.Programs, o.Out, o.Progress = filepath.Dir(exe), a.Out, a.Err
			return demo.Run(c.Context(), o)
		},
	}
	c.Flags().StringVar(&o.Agent, "agent", "loop", "loop, command, claude, codex, opencode or gemini")
	c.Flags().StringVar(&o.Model, "model", demo.Rehearsal, "rehearsal, a script; or real: the provider whose key is in ANTHROPIC_API_KEY, OPENAI_API_KEY or GEMINI_API_KEY")
	c.Flags().BoolVar(&o.Keep, "keep", false, "leave the temporary folder")
	return c
}
