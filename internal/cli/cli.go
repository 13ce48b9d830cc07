// Package cli is the command line, one file per command: parse, call, print.
// It speaks to the server through package client like any stranger.
//
// It never decides what is allowed, keeps no state and does not log: it prints
// what was asked for on stdout, everything else on stderr, and an error as what
// could not be done and why, then what to do. The invariant: text that came from
// an agent reaches a terminal with its control and direction characters made
// visible.
package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"cofferdam"
	"cofferdam/client"
	"cofferdam/internal/config"
	"cofferdam/internal/local"
)

// System is what a command touches of the machine; a test puts its own in.
type System struct {
	In       io.Reader
	Out, Err io.Writer
	Getenv   func(string) string
	// Terminal says whether In, Out and Err are terminals.
	Terminal func(stream any) bool
	Width    func() int // of the terminal at Out or Err
	Exec     func(path string, args, env []string) error
	Environ  func() []string
	Sleep    func(ctx context.Context, d time.Duration)
}

// ThisSystem is the process's own.
func ThisSystem() System {
	return System{
		In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Getenv: os.Getenv, Environ: os.Environ, Exec: execProgram,
		Sleep: func(ctx context.Context, d time.Duration) {
			select {
			case <-time.After(d):
			case <-ctx.Done():
			}
		},
		Terminal: func(stream any) bool {
			f, ok := stream.(*os.File)
			return ok && term.IsTerminal(int(f.Fd())) // a descriptor fits an int
		},
		Width: func() int {
			for _, f := range []*os.File{os.Stdout, os.Stderr} {
				if w, _, err := term.GetSize(int(f.Fd())); err == nil && w > 0 { // a descriptor fits an int
					return w
				}
			}
			return 80
		},
	}
}

// app is one call of the program: its system and the flags every command has.
type app struct {
	System
	json, quiet, noInput, debug bool
	server, tokenFile, file     string
	project                     string
	color                       string    // auto, always or never
	stdout                      io.Writer // Out as it was given
	own                         int       // exit code of every failure; 0: that of its kind
	look                        local.Look
}

// checkedWriter remembers the first error, for a part of an answer is none:
// whoever reads a table in a file on a full disk has to learn of it.
type checkedWriter struct {
	w   io.Writer
	err error
}

func (c *checkedWriter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	if err != nil && c.err == nil {
		c.err = err
	}
	return n, err
}

// Main runs one command and returns the exit code.
func Main(ctx context.Context, sys System, args []string) int {
	out := &checkedWriter{w: sys.Out}
	a := &app{System: sys, stdout: sys.Out}
	a.Out = out
	var root *cobra.Command
	if len(args) > 0 && args[0] == "run" { // the one command that is waited for by the millisecond
		a.look = local.LookAtHost()
		root = rootWith(a, []commandGroup{{"start", "Start", func(a *app) []*cobra.Command { return []*cobra.Command{newRun(a)} }}})
		eachCommand(root, finish)
	} else {
		root = newRoot(a)
	}
	root.SetArgs(args)
	root.SetIn(sys.In)
	root.SetOut(out)
	root.SetErr(sys.Err)
	called, err := root.ExecuteContextC(ctx)
	if out.err != nil && ctx.Err() == nil {
		err = &cofferdam.Error{Op: "cli.Print", Kind: cofferdam.Unavailable, Subject: "writing the answer", Reason: plain(out.err), Hint: "free some space, or write it elsewhere; what was asked has been done", Err: out.err}
	}
	if called.CommandPath() == runPath {
		a.own = ownFailure
	} else if err != nil && ctx.Err() != nil && !isOutcome(err) {
		err = interrupted{}
	}
	return a.fail(err, wantsJSON(args))
}

// wantsJSON finds --json also where the flags could not be parsed.
func wantsJSON(args []string) bool {
	for _, arg := range args {
		switch arg {
		case "--":
			return false
		case "--json", "--json=true":
			return true
		}
	}
	return false
}

// newRoot is the program with all its commands.
func newRoot(a *app) *cobra.Command {
	root := rootWith(a, groups())
	root.AddCommand(newDebug(a))
	root.SetHelpCommand(newHelp())
	root.SetHelpCommandGroupID("server")
	root.InitDefaultHelpCmd()
	eachCommand(root, finish)
	return root
}

// rootWith is the program with some of its commands.
func rootWith(a *app, list []commandGroup) *cobra.Command {
	root := &cobra.Command{
		Use:   "cofferdam",
		Short: "Run coding agents that nobody has to trust",
		Long: "Cofferdam runs coding agents in boxes whose only exits are gateways, proves what they made, and lets a person merge it." +
			exits(0, 1, 2),
		Example:       "  sudo cofferdam serve\n  cofferdam repo add shop /srv/git/shop.git\n  cofferdam task run \"fix the failing test\" --check \"go test ./...\"",
		SilenceErrors: true, SilenceUsage: true,
		Args: cobra.ArbitraryArgs, SuggestionsMinimumDistance: 2,
		RunE: func(c *cobra.Command, args []string) error { return group(c, args) },
	}
	f := root.PersistentFlags()
	f.BoolVar(&a.json, "json", false, "answer in JSON; errors too")
	f.BoolVarP(&a.quiet, "quiet", "q", false, "print ids only")
	f.BoolVar(&a.noInput, "no-input", false, "never ask")
	f.Var(&choice{to: &a.color, of: []string{"auto", "always", "never"}}, "color", "colour status words: auto, always or never (NO_COLOR)")
	f.BoolVar(&a.debug, "debug", false, "print the cause of an error and the id of its request")
	f.StringVar(&a.server, "server", "", "unix:PATH or http://127.0.0.1:PORT (COFFERDAM_SERVER)")
	f.StringVar(&a.tokenFile, "token-file", "", "file with the server's token (COFFERDAM_TOKEN_FILE)")
	f.StringVar(&a.project, "project", "", "the project that is meant, if you are in several (COFFERDAM_PROJECT)")
	f.StringVar(&a.file, "config", "", "configuration file")
	for _, g := range list {
		root.AddGroup(&cobra.Group{ID: g.id, Title: g.title + ":"})
		for _, c := range g.commands(a) {
			c.GroupID = g.id
			root.AddCommand(c)
		}
	}
	root.CompletionOptions.DisableDefaultCmd = true
	root.SetHelpFunc(func(c *cobra.Command, _ []string) { help(c) })
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		reason, _, _ := strings.Cut(err.Error(), ": strconv.") // the rest speaks of Go
		if reason == "unknown flag: --version" && c == root {
			reason += "; did you mean cofferdam version?"
		}
		return usage(c, reason)
	})
	return root
}

type commandGroup struct {
	id, title string
	commands  func(a *app) []*cobra.Command
}

func groups() []commandGroup {
	return []commandGroup{
		{"start", "Start", func(a *app) []*cobra.Command {
			return []*cobra.Command{newRun(a), newStatus(a), newLogin(a), newLogout(a)}
		}},
		{"work", "Work", func(a *app) []*cobra.Command {
			return []*cobra.Command{newTask(a), newSession(a), newMerge(a)}
		}},
		{"guard", "Guard", func(a *app) []*cobra.Command {
			return []*cobra.Command{newApproval(a), newPolicy(a), newBudget(a), newRepo(a), newModel(a), newAgent(a), newEnvironment(a), newSandbox(a), newWorkspace(a)}
		}},
		{"evidence", "Evidence", func(a *app) []*cobra.Command { return []*cobra.Command{newTrace(a), newProof(a)} }},
		{"server", "Server", func(a *app) []*cobra.Command {
			return []*cobra.Command{newServe(a), newAdmin(a), newDoctor(a), newConfig(a), newVersion(a), newCompletion(a)}
		}},
	}
}

func eachCommand(c *cobra.Command, do func(*cobra.Command)) {
	do(c)
	for _, sub := range c.Commands() {
		eachCommand(sub, do)
	}
}

// finish gives a command what all have: one value per flag.
func finish(c *cobra.Command) {
	c.DisableFlagsInUseLine = true
	c.Flags().SortFlags = false
	once := func(f *pflag.Flag) {
		if _, many := f.Value.(pflag.SliceValue); many {
			return
		}
		if _, done := f.Value.(*onceValue); !done {
			f.Value = &onceValue{Value: f.Value, name: f.Name}
		}
		if f.DefValue == "0s" {
			f.DefValue = "" // help says in words what leaving it away means
		}
	}
	c.LocalNonPersistentFlags().VisitAll(once)
	c.PersistentFlags().VisitAll(once)
}

// onceValue refuses a flag that is given twice: which one counts would be a guess.
type onceValue struct {
	pflag.Value
	name string
	set  bool
}

// Set takes the first value only.
func (v *onceValue) Set(s string) error {
	if v.set {
		return cofferdamError("flag --"+v.name, "is given twice", "give it once")
	}
	v.set = true
	return v.Value.Set(s)
}

// choice is a flag with few values; "" stands for the first.
type choice struct {
	to *string
	of []string
}

// Set takes one of them.
func (c *choice) Set(s string) error {
	if !slices.Contains(c.of, s) {
		return fmt.Errorf("it is one of %s", strings.Join(c.of, ", "))
	}
	*c.to = s
	return nil
}

// String returns the value.
func (c *choice) String() string {
	if c.to == nil || *c.to == "" {
		return ""
	}
	return *c.to
}

// Type names the value in help.
func (c *choice) Type() string { return "string" }

// group answers a noun without a verb.
func group(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return c.Help()
	}
	reason := "there is no command " + quoted(args[0])
	if near := c.SuggestionsFor(args[0]); len(near) > 0 {
		reason += "; did you mean " + strings.Join(near, " or ") + "?"
	}
	return usage(c, reason)
}

// help prints what a command does, how it is called, and its exit codes last.
func help(c *cobra.Command) {
	text, codes := split(c)
	fmt.Fprintf(c.OutOrStdout(), "%s\n\n%s\nExit codes:\n%s\n", text, c.UsageString(), codes)
}

func newNoun(use, short string, verbs ...*cobra.Command) *cobra.Command {
	c := &cobra.Command{
		Use: use, Short: short, Long: short + "." + exits(0, 2),
		Example: "  cofferdam " + use + " " + verbs[0].Name() + " --help",
		Args:    cobra.ArbitraryArgs, SuggestionsMinimumDistance: 2,
		RunE: func(c *cobra.Command, args []string) error { return group(c, args) },
	}
	c.AddCommand(verbs...)
	return c
}

func newHelp() *cobra.Command {
	return &cobra.Command{
		Use: "help [COMMAND]", Short: "Help about a command", Long: "Help about a command." + exits(0, 2), Example: "  cofferdam help task run",
		RunE: func(c *cobra.Command, args []string) error {
			target, rest, err := c.Root().Find(args)
			if err != nil || len(rest) > 0 {
				return usage(c.Root(), "there is no command "+quoted(strings.Join(args, " ")))
			}
			return target.Help()
		},
	}
}

// atServer is a command that begins by reaching the server.
func (a *app) atServer(do func(c *cobra.Command, cl *client.Client, args []string) error) func(*cobra.Command, []string) error {
	return func(c *cobra.Command, args []string) error {
		cl, err := a.dial()
		if err != nil {
			return err
		}
		return do(c, cl, args)
	}
}

// viewed is a command that finds one thing by its name and shows it.
func viewed[T any](a *app, find func(*client.Client, context.Context, string) (T, error), lines func(T) []label) func(*cobra.Command, []string) error {
	return a.atServer(func(c *cobra.Command, cl *client.Client, args []string) error {
		v, err := find(cl, c.Context(), args[0])
		if err != nil {
			return err
		}
		if a.json {
			return a.object(v)
		}
		return a.labels(lines(v))
	})
}

// removing is a command that forgets a thing and says so.
func (a *app) removing(noun string, remove func(*client.Client, context.Context, string) error) func(*cobra.Command, []string) error {
	return a.atServer(func(c *cobra.Command, cl *client.Client, args []string) error {
		if err := remove(cl, c.Context(), args[0]); err != nil {
			return err
		}
		return a.removed(noun, args[0])
	})
}

// dial makes the client that the flags, environment and file name.
func (a *app) dial() (*client.Client, error) {
	c, err := a.clientConfig()
	if err != nil {
		return nil, err
	}
	o := client.Options{Server: c.Server, Project: c.Project, Token: a.keptLogin(c.Server)}
	if c.TokenFile != "" {
		if o.Token, err = config.ReadToken(c.TokenFile); err != nil {
			return nil, err
		}
	}
	o.Browse = browsing(a)
	return client.New(o)
}

// browsing sends the person to a browser, which asks for their passkey.
func browsing(a *app) func(cofferdam.Errand) {
	return func(e cofferdam.Errand) {
		fmt.Fprintf(a.Err, "Open this in a browser, which asks for your passkey; it is for you alone, until %s:\n  %s\n", e.Expires.Local().Format(time.TimeOnly), clean(e.Address))
	}
}

func (a *app) clientConfig() (config.Client, error) {
	flags := map[string]string{"server": a.server, "token-file": a.tokenFile, "project": a.project, "config": a.file}
	if a.noInput {
		flags["no-input"] = "1"
	}
	return config.LoadClient(flags, a.Getenv)
}

func cofferdamError(subject, reason, hint string) error {
	return &cofferdam.Error{Op: "cli.Run", Kind: cofferdam.Invalid, Subject: subject, Reason: reason, Hint: hint}
}
