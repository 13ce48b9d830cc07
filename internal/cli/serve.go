package cli

import (
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/spf13/cobra"

	"cofferdam"
	"cofferdam/internal/config"
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
			"beside it unless one answers; one of another build is replaced, at once or when its last box has ended. Root runs both as they are; an ordinary user runs them in a user namespace, " +
			"which takes a range of ids (docs/tiers.md)." + exits(0, 1, 2, 4, 130),
		Example: "  sudo cofferdam serve\n  cofferdam serve    # as an ordinary user\n  sudo cofferdam serve --state /srv/cofferdam --listen off",
		RunE: func(c *cobra.Command, _ []string) error {
			conf, err := s.load(a, c)
			if err != nil {
				return err
			}
			server := filepath.Join(conf.Programs, "cofferdam-server")
			given := s.given(a, c)
			args := []string{server}
			for name, value := range given {
				args = append(args, "--"+name+"="+value)
			}
			slices.Sort(args[1:])
			return noServer(server, a.Exec(server, args, a.Environ()))
		},
	}
	s.add(c)
	return c
}

// noServer is why the server does not run.
func noServer(server string, err error) error {
	e := &cofferdam.Error{
		Op: "cli.Serve", Kind: cofferdam.Unavailable, Subject: "start server", Reason: server + ": " + plain(err), Err: err,
		Hint: "install all programs of one release together, in one folder, or name their folder with --programs; make build makes them in bin/",
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		e.Reason = "the program cofferdam-server is not in " + filepath.Dir(server)
	case errors.Is(err, fs.ErrPermission):
		e.Reason = "this user may not start " + server
	}
	return e
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
