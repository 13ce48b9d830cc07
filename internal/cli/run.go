package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"cofferdam"
	"cofferdam/internal/config"
	"cofferdam/internal/local"
	"cofferdam/sandbox"
)

// ownFailure is the exit code of run when the command did not run: a code of
// its own, because all others may be the command's. Source: ARCHITECTURE.md.
const ownFailure = 125

// runPath is the command whose exit code is another program's.
const runPath = "cofferdam run"

type runFlags struct {
	o    local.Options
	tier string
	env  []string
}

func newRun(a *app) *cobra.Command {
	r := &runFlags{}
	c := &cobra.Command{
		Use: "run [--] CMD...", Short: "Run one command in a throw-away box on this machine, no server needed", Args: cobra.ArbitraryArgs,
		Long: "Run one command in a box of its own on this machine and exit as it does. It sees this machine with credentials unreadable, may write the " +
			"current folder, and reaches no network but the names you allow; a trace of the run is kept. No server is needed, and no root. The exit code is that of the command; 128 and n if signal n ended it." +
			exits(0, ownFailure, 126, 127),
		Example: "  cofferdam run -- make test\n  cofferdam run --allow preset:npm -- npm ci\n  cofferdam run --copy -- ./configure",
		RunE:    func(c *cobra.Command, args []string) error { return r.run(a, c, args) },
	}
	f := c.Flags()
	f.SetInterspersed(false) // what follows CMD is CMD's
	f.StringVar(&r.o.Workspace, "workspace", "", "folder the command may write (default: the current one)")
	f.BoolVar(&r.o.Copy, "copy", false, "give the command a copy of it, and leave the original untouched")
	f.StringArrayVar(&r.o.Allow, "allow", nil, "HOST[:PORT], *.HOST[:PORT] or preset:NAME the command may reach; splice:HOST passes unread, credentials:HOST may be sent keys of the box (may repeat)")
	f.StringArrayVar(&r.env, "env", nil, "NAME=VALUE, or NAME to pass one of yours on if it is set, for the command (may repeat)")
	f.StringVar(&r.o.Trace, "trace", "", "write the trace into this file (default: one in the state folder)")
	f.StringVar(&r.tier, "tier", string(sandbox.Process), "kind of box; others need the server")
	return c
}

// run fills the options and runs the command.
func (r *runFlags) run(a *app, c *cobra.Command, args []string) error {
	if len(args) == 0 || args[0] == "" {
		return usage(c, "CMD is missing: say what is to be run")
	}
	if err := r.checkTier(c); err != nil {
		return err
	}
	var ok bool
	if r.o.Stdin, ok = a.In.(*os.File); !ok {
		return usage(c, "its input is no file")
	}
	if r.o.Stdout, ok = a.stdout.(*os.File); !ok {
		return usage(c, "its output is no file")
	}
	if r.o.Stderr, ok = a.Err.(*os.File); !ok {
		return usage(c, "its error output is no file")
	}
	var err error
	if r.o.Env, err = r.variables(a, c); err != nil {
		return err
	}
	flags := map[string]string{}
	if c.Flags().Changed("config") {
		flags["config"] = a.file
	}
	if r.o.Config, err = config.Load(flags, a.Getenv); err != nil {
		return err
	}
	r.o.Argv, r.o.Getenv, r.o.Environ, r.o.Look = args, a.Getenv, a.Environ, a.look
	var stop func()
	r.o.Signals, stop = forwarded()
	defer stop()
	res, err := local.Run(context.WithoutCancel(c.Context()), r.o) // Ctrl-C ends the command, not the run of it
	if err != nil {
		return err
	}
	if err := r.tell(a, res); err != nil {
		return err
	}
	if res.Signal == int(syscall.SIGINT) {
		endBySignal()
	}
	if res.Exit != 0 {
		return outcome(res.Exit)
	}
	return nil
}

// endBySignal ends this process by the signal that ended its command, if it can
// be: a script goes on after Ctrl-C if what it waits for only exits.
func endBySignal() {
	signal.Reset(syscall.SIGINT)
	if self, err := os.FindProcess(os.Getpid()); err == nil && self.Signal(syscall.SIGINT) == nil {
		time.Sleep(interruptTime)
	}
}

// interruptTime is how long a signal to oneself may take.
const interruptTime = time.Second

// checkTier refuses what is no tier, and those whose boxes a keeper owns.
func (r *runFlags) checkTier(c *cobra.Command) error {
	var names []string
	for _, t := range sandbox.Tiers() {
		if names = append(names, string(t)); string(t) != r.tier {
			continue
		}
		if t == sandbox.Process {
			return nil
		}
		return &cofferdam.Error{
			Op: "cli.Run", Kind: cofferdam.Unavailable, Subject: "tier " + r.tier, Reason: "its boxes need the server, and run uses none",
			Hint: "start one with cofferdam serve and give it the work with cofferdam task run; or leave --tier away for a box of tier process",
		}
	}
	return usage(c, "there is no tier "+quoted(r.tier)+"; there are "+strings.Join(names, ", "))
}

// variables reads --env.
func (r *runFlags) variables(a *app, c *cobra.Command) ([]string, error) {
	var env []string
	for _, e := range r.env {
		name, _, has := strings.Cut(e, "=")
		if name == "" || strings.ContainsFunc(name, func(c rune) bool { return c <= ' ' || c > '~' }) {
			return nil, usage(c, "--env: "+quoted(e)+" is neither NAME=VALUE nor NAME")
		}
		if !has {
			if a.Getenv(name) == "" && !slices.Contains(a.Environ(), name+"=") {
				continue // not set here, so not there either
			}
			e = name + "=" + a.Getenv(name)
		}
		if strings.Contains(e, "\x00") {
			return nil, usage(c, "--env: "+quoted(name)+" has a zero byte in it")
		}
		env = append(env, e)
	}
	return env, nil
}

// tell says on standard error what the caller has to know of a run; of one that
// met no refusal and left no copy there is nothing.
func (r *runFlags) tell(a *app, res local.Result) error {
	if a.json {
		line, err := runJSON(res)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintln(a.Err, string(safeJSON(line)))
		return err
	}
	if res.Reason != "" {
		fmt.Fprintln(a.Err, "cofferdam: "+clean(res.Reason))
		if hint := notStarted(res.Exit, r.o.Argv[0]); hint != "" {
			fmt.Fprintln(a.Err, "hint: "+hint)
		}
	}
	if l := res.Lost; l != nil {
		fmt.Fprintf(a.Err, "cofferdam: the network of this run was lost %s after its start: %s; the command went on without it\nhint: %s\n", l.After.Round(time.Millisecond), clean(l.Reason), clean(l.Hint))
	}
	if a.quiet {
		return nil
	}
	if len(res.Refused) > 0 {
		hosts := res.Refused[:min(len(res.Refused), shownHosts)]
		more := ""
		if len(res.Refused) > len(hosts) {
			more = " and others"
		}
		hint := "if it is meant to reach one: --allow HOST"
		if slices.ContainsFunc(hosts, isAddress) {
			hint += "; an address is never reached, only a name"
		}
		fmt.Fprintf(a.Err, "cofferdam: refused: %s%s; why is in the trace %s\nhint: %s\n", clean(strings.Join(hosts, ", ")), more, clean(res.Trace), hint)
	}
	if res.Copy != "" {
		fmt.Fprintf(a.Err, "cofferdam: the original is untouched; the copy is %s\nhint: see the difference with: git diff --no-index %s %s\n", clean(res.Copy), shellWord(res.Original), shellWord(res.Copy))
	}
	if r.o.Trace != "" && res.Trace != "" { // one that never began has none
		fmt.Fprintf(a.Err, "cofferdam: wrote %s; check it with: cofferdam proof verify %s --key %s\n", clean(res.Trace), shellWord(res.Trace), shellWord(res.Key))
	}
	return nil
}

// notStarted is what to do about a command that could not be started.
func notStarted(exit int, name string) string {
	switch {
	case exit != 126 && exit != 127:
		return ""
	case strings.ContainsAny(name, " \t\n"):
		return "give each word of the command by itself, or a line for a shell: cofferdam run -- sh -c 'LINE'"
	case exit == 126:
		return "a program is a file that may be executed (chmod +x), for this kind of machine"
	}
	return "a name is looked for in the folders of PATH; what a box does not show of this machine is in docs/run.md"
}

// shownHosts is how many refused hosts are named at the end of a run.
const shownHosts = 3

// shellWord quotes a path for a shell, and shows what is hidden in it.
func shellWord(s string) string {
	plain := func(c rune) bool {
		return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.ContainsRune("/._-+:@%", c)
	}
	if s != "" && !strings.ContainsFunc(s, func(c rune) bool { return !plain(c) }) {
		return s
	}
	return "'" + strings.ReplaceAll(clean(s), "'", `'\''`) + "'"
}

// runJSON is how a run ended, for programs.
func runJSON(res local.Result) ([]byte, error) {
	lost := ""
	if res.Lost != nil {
		lost = res.Lost.Reason
	}
	line, err := json.Marshal(struct {
		Schema  string              `json:"schema"`
		Exit    int                 `json:"exit"`
		Signal  int                 `json:"signal,omitempty"`
		Reason  string              `json:"reason,omitempty"`
		Session cofferdam.SessionID `json:"session"`
		Refused []string            `json:"refused,omitempty"`
		Lost    string              `json:"network_lost,omitempty"`
		Trace   string              `json:"trace"`
		Key     string              `json:"key"`
		Copy    string              `json:"copy,omitempty"`
	}{"cofferdam/run/v1", res.Exit, res.Signal, res.Reason, res.Session, res.Refused, lost, res.Trace, res.Key, res.Copy})
	if err != nil {
		return nil, fmt.Errorf("encoding how the run ended: %w", err)
	}
	return line, nil
}

// forwarded are the signals that are meant for the command.
func forwarded() (signals <-chan os.Signal, stop func()) {
	sent := make(chan os.Signal, 16)
	signal.Notify(sent, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGUSR1, syscall.SIGUSR2,
		syscall.SIGWINCH, syscall.SIGTSTP, syscall.SIGCONT)
	return sent, func() { signal.Stop(sent) }
}

func isAddress(host string) bool {
	_, err := netip.ParseAddr(host)
	return err == nil
}
