package cli

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"cofferdam/agent/rehearsal"
	"cofferdam/internal/demo"
)

// newDebug is for developers and demos; nothing in it is promised.
func newDebug(a *app) *cobra.Command {
	c := newNoun("debug", "For developers: demo, rehearsal model, reference; no promise", newDemo(a), newRehearsal(a), newReference(a))
	c.Hidden = true
	return c
}

func newDemo(a *app) *cobra.Command {
	var o demo.Options
	c := &cobra.Command{
		Use: "demo", Short: "Play the story of make demo", Args: none, Long: "Play the story of make demo on a temporary server with a labelled test person." + exits(0, 1, 2, 130), Example: "  cofferdam debug demo --agent claude",
		RunE: func(c *cobra.Command, _ []string) error {
			exe, err := os.Executable()
			if err != nil {
				return fmt.Errorf("finding this program's folder: %w", err)
			}
			o.Programs, o.Out, o.Progress = filepath.Dir(exe), a.Out, a.Err
			return demo.Run(c.Context(), o)
		},
	}
	c.Flags().StringVar(&o.Agent, "agent", "command", "command or claude")
	c.Flags().BoolVar(&o.Keep, "keep", false, "leave the temporary folder")
	return c
}

func newRehearsal(a *app) *cobra.Command {
	var script, listen string
	c := &cobra.Command{
		Use: "rehearsal", Short: "Serve a scripted model that says it is one", Args: none,
		Long: "Serve a scripted model on loopback. Its answers are labelled as a rehearsal." + exits(0, 1, 2, 130), Example: "  cofferdam debug rehearsal --script talk.txt --listen 127.0.0.1:8123",
		RunE: func(c *cobra.Command, _ []string) error {
			addr, err := netip.ParseAddrPort(listen)
			if err != nil || !addr.Addr().IsLoopback() {
				return usage(c, "--listen "+quoted(listen)+" is no loopback ADDRESS:PORT")
			}
			if script == "" {
				return usage(c, "--script FILE is missing")
			}
			f, err := os.Open(script)
			if err != nil {
				return cofferdamError("file "+script, plain(err), "check its name")
			}
			defer f.Close()
			s, err := rehearsal.Parse(f)
			if err != nil {
				return cofferdamError("file "+script, err.Error(), "correct the line that is named")
			}
			var lc net.ListenConfig
			l, err := lc.Listen(c.Context(), "tcp", listen)
			if err != nil {
				return cofferdamError("address "+listen, plain(err), "choose another with --listen")
			}
			fmt.Fprintf(a.Out, "http://%s\n", l.Addr())
			a.say("rehearsal: a script answers here, not a model")
			return rehearsal.Serve(c.Context(), l, s)
		},
	}
	c.Flags().StringVar(&script, "script", "", "file with the script")
	c.Flags().StringVar(&listen, "listen", "127.0.0.1:0", "loopback address")
	return c
}
