package cli

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"os"

	"github.com/spf13/cobra"

	"cofferdam"
	"cofferdam/agent/rehearsal"
)

// rehearse is what the flags of debug rehearse say.
type rehearse struct {
	listen, record, out, keyEnv, keyFile string
}

func newRehearse(a *app) *cobra.Command {
	var o rehearse
	c := &cobra.Command{
		Use: "rehearse [FILE]", Short: "Serve a scripted model that says it is one, or record a real one", Args: atMost("FILE"),
		Long: "Serve the script FILE as a model provider on loopback, in the protocols of Anthropic, OpenAI and Gemini. Its answers are\n" +
			"labelled as a rehearsal. With --record, pass everything on to a real provider instead and write what it answers\n" +
			"as such a script; the provider's key is attached on the way and is not in the script." + exits(0, 1, 2, 130),
		Example: "  cofferdam debug rehearse talk.txt --listen 127.0.0.1:8123\n" +
			"  cofferdam debug rehearse --record https://api.anthropic.com --key-env ANTHROPIC_API_KEY --out talk.txt",
		RunE: func(c *cobra.Command, args []string) error {
			addr, err := netip.ParseAddrPort(o.listen)
			if err != nil || !addr.Addr().IsLoopback() {
				return usage(c, "--listen "+quoted(o.listen)+" is no loopback ADDRESS:PORT")
			}
			serve, err := o.serving(c, a, args)
			if err != nil {
				return err
			}
			var lc net.ListenConfig
			l, err := lc.Listen(c.Context(), "tcp", o.listen)
			if err != nil {
				return cofferdamError("address "+o.listen, plain(err), "choose another with --listen")
			}
			fmt.Fprintf(a.Out, "http://%s\n", l.Addr())
			return serve(c.Context(), l)
		},
	}
	f := c.Flags()
	f.StringVar(&o.listen, "listen", "127.0.0.1:0", "loopback address")
	f.StringVar(&o.record, "record", "", "URL of a provider to record")
	f.StringVar(&o.out, "out", "", "with --record: file to write")
	f.StringVar(&o.keyEnv, "key-env", "", "with --record: environment variable that has the provider's key")
	f.StringVar(&o.keyFile, "key-file", "", "with --record: file that has the provider's key")
	return c
}

// serving checks what was asked for and returns what does it.
func (o rehearse) serving(c *cobra.Command, a *app, args []string) (func(context.Context, net.Listener) error, error) {
	if o.record != "" {
		if len(args) > 0 || o.out == "" {
			return nil, usage(c, "--record needs --out FILE and no script")
		}
		r, err := o.recorder(c, a)
		if err != nil {
			return nil, err
		}
		a.say("rehearsal: passing on to %s, and writing what it answers to %s", r.Provider.Host, o.out)
		return r.Serve, nil
	}
	if len(args) == 0 || o.out != "" || o.keyEnv != "" || o.keyFile != "" {
		return nil, usage(c, "a script FILE, or --record URL and --out FILE")
	}
	f, err := os.Open(args[0])
	if err != nil {
		return nil, cofferdamError("file "+args[0], plain(err), "check its name")
	}
	defer f.Close()
	s, err := rehearsal.Parse(f)
	if err != nil {
		return nil, cofferdamError("file "+args[0], err.Error(), "correct that; cofferdam debug rehearse --help and docs/models.md have an example")
	}
	a.say("rehearsal: a script answers here, not a model")
	return func(ctx context.Context, l net.Listener) error { return rehearsal.Serve(ctx, l, s) }, nil
}

func (o rehearse) recorder(c *cobra.Command, a *app) (*rehearsal.Recorder, error) {
	u, err := url.Parse(o.record)
	if err != nil || (u.Scheme != "https" && u.Scheme != "http") || u.Host == "" || u.User != nil {
		return nil, usage(c, "--record "+quoted(o.record)+" is no http or https URL without a password")
	}
	r := &rehearsal.Recorder{Provider: u, File: o.out, Problem: func(text string) { a.say("rehearsal: %s", text) }}
	switch {
	case o.keyEnv != "" && o.keyFile != "":
		return nil, usage(c, "--key-env and --key-file are two keys")
	case o.keyEnv != "":
		if r.Key = cofferdam.Sensitive(os.Getenv(o.keyEnv)); r.Key == "" {
			return nil, cofferdamError("environment variable "+o.keyEnv, "it has no key", "set it for this command, or use --key-file")
		}
	case o.keyFile != "":
		if r.Key, err = a.readSecret(o.keyFile, "key", "--key-file key.txt"); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// atMost takes one argument for each name, or less.
func atMost(names ...string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		return exactly(names[:min(len(args), len(names))]...)(c, args)
	}
}
