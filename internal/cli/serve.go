package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"cofferdam"
	"cofferdam/internal/config"
	"cofferdam/internal/doctor"
)

// serverFlags are the server's settings as flags; serve hands them on, doctor
// looks at them.
type serverFlags struct{ values map[string]*string }

func (s *serverFlags) add(c *cobra.Command) {
	s.values = map[string]*string{}
	for _, setting := range config.Settings() {
		if c.Root().PersistentFlags().Lookup(setting.Name) != nil || setting.Name == "debug" || setting.Name == "token-file" {
			continue // flags that every command has
		}
		v := new(string)
		s.values[setting.Name] = v
		c.Flags().StringVar(v, setting.Name, "", setting.Usage)
		if setting.Hidden {
			_ = c.Flags().MarkHidden(setting.Name) // it was just defined
		}
	}
}

// given returns what was set, by setting name.
func (s *serverFlags) given(a *app, c *cobra.Command) map[string]string {
	given := map[string]string{}
	for name, v := range s.values {
		if c.Flags().Changed(name) {
			given[name] = *v
		}
	}
	if c.Flags().Changed("config") {
		given["config"] = a.file
	}
	if c.Flags().Changed("token-file") {
		given["token-file"] = a.tokenFile
	}
	if a.debug {
		given["debug"] = "true"
	}
	return given
}

func (s *serverFlags) load(a *app, c *cobra.Command) (config.Config, error) {
	return config.Load(s.given(a, c), a.Getenv)
}

func newServe(a *app) *cobra.Command {
	s := &serverFlags{}
	c := &cobra.Command{
		Use: "serve", Short: "Start the server, and the keeper unless one answers", Args: none,
		Long: "Start the server in this process. It keeps everything in one folder. The keeper, which owns the boxes and outlives the server, is started " +
			"beside it unless one answers. Both need root in this version." + exits(0, 1, 2, 4, 130),
		Example: "  sudo cofferdam serve\n  sudo cofferdam serve --state /srv/cofferdam --listen off",
		RunE: func(c *cobra.Command, _ []string) error {
			conf, err := s.load(a, c)
			if err != nil {
				return err
			}
			server := filepath.Join(conf.Programs, "cofferdam-server")
			if err := ready(c.Context(), conf); err != nil {
				return err
			}
			given := s.given(a, c)
			args := []string{server}
			for name, value := range given {
				args = append(args, "--"+name+"="+value)
			}
			slices.Sort(args[1:])
			err = a.Exec(server, args, a.Environ())
			return &cofferdam.Error{Op: "cli.Serve", Kind: cofferdam.Unavailable, Subject: "starting " + server, Reason: plain(err), Hint: "make build puts all programs into bin/", Err: err}
		},
	}
	s.add(c)
	return c
}

// ready sees to it that a keeper answers. Before one is started the host is
// examined, so that what is missing is named once and nothing is left behind.
func ready(ctx context.Context, conf config.Config) error {
	if uid := os.Geteuid(); uid != 0 {
		return &cofferdam.Error{Op: "cli.Serve", Kind: cofferdam.Forbidden, Subject: "starting the server", Reason: fmt.Sprintf("it needs root in this version, and this is uid %d", uid), Hint: "sudo cofferdam serve"}
	}
	if answers(ctx, conf.Keeper) {
		return nil
	}
	if err := doctor.Run(ctx, doctor.Options{Config: conf}).Err(); err != nil {
		return err
	}
	return startKeeper(ctx, conf)
}

// keeperWait is how long a keeper may take to answer: it first ends what a dead
// one left behind.
const keeperWait = 30 * time.Second

func startKeeper(ctx context.Context, conf config.Config) error {
	ctx, cancel := context.WithTimeout(ctx, keeperWait)
	defer cancel()
	if err := os.MkdirAll(filepath.Dir(conf.Keeper), 0o700); err != nil {
		return &cofferdam.Error{Op: "cli.Serve", Kind: cofferdam.Unavailable, Subject: "folder of the keeper's socket", Reason: plain(err), Hint: "choose another with --keeper", Err: err}
	}
	program := filepath.Join(conf.Programs, "cofferdam-keeper")
	cmd := exec.CommandContext(ctx, program, "--socket", conf.Keeper, "--state", conf.KeeperState, "--detach")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // Ctrl-C at the server's terminal is not for it
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	failed := func(reason, hint string) error {
		return &cofferdam.Error{Op: "cli.Serve", Kind: cofferdam.Unavailable, Subject: "starting cofferdam-keeper", Reason: reason, Hint: hint}
	}
	if err != nil {
		return failed(said(string(out), plain(err)))
	}
	for !answers(ctx, conf.Keeper) {
		select {
		case <-ctx.Done():
			return failed(fmt.Sprintf("it does not answer at unix:%s within %s", conf.Keeper, keeperWait), doctorHint)
		case <-time.After(20 * time.Millisecond):
		}
	}
	return nil
}

const doctorHint = "cofferdam doctor checks this host"

// said takes reason and hint out of what a sister printed before it ended.
func said(out, otherwise string) (reason, hint string) {
	for line := range strings.Lines(out) {
		line = strings.TrimSpace(line)
		if h, ok := strings.CutPrefix(line, "hint: "); ok {
			hint = h
		} else if line != "" {
			reason = strings.TrimPrefix(line, "cofferdam-keeper: ")
		}
	}
	if reason == "" {
		reason = otherwise
	}
	if hint == "" {
		hint = doctorHint
	}
	return cut(reason, 500), cut(hint, 500)
}

func answers(ctx context.Context, socket string) bool {
	var d net.Dialer
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	c, err := d.DialContext(ctx, "unix", socket)
	if err != nil {
		return false
	}
	c.Close()
	return true
}

// execProgram replaces this process.
func execProgram(path string, args, env []string) error { return syscall.Exec(path, args, env) }

// plain returns the reason of an error of the file system without its path.
func plain(err error) string {
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Err.Error()
	}
	return err.Error()
}
