package config

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"cofferdam"
	"cofferdam/sandbox"
)

// FromArgs reads the command line of cofferdam-server, then what Load reads.
func FromArgs(args []string, getenv func(string) string) (Config, error) {
	set := flag.NewFlagSet("cofferdam-server", flag.ContinueOnError)
	set.SetOutput(io.Discard)
	flags := map[string]string{}
	take := func(name string) func(string) error {
		return func(v string) error {
			if _, twice := flags[name]; twice {
				return errors.New("is given twice")
			}
			flags[name] = v
			return nil
		}
	}
	set.Func("config", "operator file", take("config"))
	for _, s := range Settings() {
		if s.Bool {
			set.BoolFunc(s.Name, s.Usage, take(s.Name))
		} else {
			set.Func(s.Name, s.Usage, take(s.Name))
		}
	}
	if err := set.Parse(args); err != nil {
		return Config{}, invalid("command line", err.Error(), "cofferdam serve --help lists the flags")
	}
	if set.NArg() > 0 {
		return Config{}, invalid("command line", fmt.Sprintf("unexpected argument %q", set.Arg(0)), "cofferdam serve --help lists the flags")
	}
	return Load(flags, getenv)
}

// Load builds a Config from flags (by setting name, and "config" for the
// operator file), the environment, the operator file and the defaults, in this
// order of precedence.
func Load(flags map[string]string, getenv func(string) string) (Config, error) {
	c := Config{Sources: map[string]string{}, AgentTimeout: DefaultAgentTimeout, CheckTimeout: DefaultCheckTimeout}
	file, err := readFile(flags["config"], getenv)
	if err != nil {
		return Config{}, err
	}
	c.File = file.path
	var faults []*cofferdam.Error
	for _, s := range Settings() {
		value, source, given := file.text[s.Name], "file", file.has[s.Name]
		if v := env(s, getenv); v != "" {
			value, source, given = v, "environment", true
		}
		if v, ok := flags[s.Name]; ok {
			value, source, given = v, "flag", true
		}
		if !given {
			c.Sources[s.Name] = "default"
			continue
		}
		c.Sources[s.Name] = source
		if err := s.apply(&c, value); err != nil {
			faults = append(faults, invalid("setting "+s.Name, err.Error(), "correct it in the "+where(source, s, c.File)))
		}
	}
	if err := atOnce(append(faults, file.fill(&c)...)); err != nil {
		return Config{}, err
	}
	if err := c.defaults(getenv); err != nil {
		return Config{}, err
	}
	return c, c.check()
}

func env(s Setting, getenv func(string) string) string {
	if s.Env == "" {
		return ""
	}
	return getenv(s.Env)
}

func where(source string, s Setting, file string) string {
	switch source {
	case "flag":
		return "flag --" + s.Name
	case "environment":
		return "variable " + s.Env
	}
	return "file " + file
}

// UserState is the state folder of an ordinary user who names none.
func UserState(getenv func(string) string) string {
	if dir := getenv("XDG_STATE_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "cofferdam")
	}
	home := getenv("HOME")
	if !filepath.IsAbs(home) {
		return DefaultState // which the first check of it will refuse
	}
	return filepath.Join(home, ".local", "state", "cofferdam")
}

// defaults fills what nobody set. A state folder of one's own gets its sockets
// inside, so that two servers on one machine need one flag each.
func (c *Config) defaults(getenv func(string) string) error {
	usual, run := DefaultState, DefaultRun
	if os.Geteuid() != 0 {
		usual = UserState(getenv)
		run = filepath.Join(usual, "run")
	}
	if c.State == "" {
		c.State = usual
	} else if c.State != usual {
		run = filepath.Join(c.State, "run")
	}
	fill := func(field *string, value string) {
		if *field == "" {
			*field = value
		}
	}
	fill(&c.Socket, filepath.Join(run, "cofferdam.sock"))
	fill(&c.Keeper, filepath.Join(run, "keeper.sock"))
	fill(&c.TokenFile, filepath.Join(c.State, "token"))
	fill(&c.KeeperState, filepath.Join(c.State, "keeper"))
	fill(&c.Listen, DefaultListen)
	if c.Tier == "" {
		c.Tier = sandbox.GVisor
	}
	if c.Listen == "off" {
		c.Listen = ""
	}
	if c.MaxLifetime > 0 && c.MaxLifetime <= cofferdam.DefaultIdle*time.Second && c.IdleTimeout == 0 {
		c.IdleTimeout = c.MaxLifetime
	}
	c.Parallel = cmp.Or(c.Parallel, cofferdam.DefaultParallel)
	c.IdleTimeout, c.MaxLifetime = cmp.Or(c.IdleTimeout, cofferdam.DefaultIdle*time.Second), cmp.Or(c.MaxLifetime, cofferdam.DefaultLifetime*time.Second)
	if c.Programs == "" {
		dir, err := programsDir()
		if err != nil {
			return err
		}
		c.Programs = dir
	}
	return nil
}

// check refuses values that cannot work together, naming the setting.
func (c *Config) check() error {
	for _, p := range []struct{ name, path string }{
		{"state", c.State},
		{"socket", c.Socket},
		{"keeper", c.Keeper},
		{"token-file", c.TokenFile},
		{"keeper-state", c.KeeperState},
		{"programs", c.Programs},
	} {
		if !filepath.IsAbs(p.path) || filepath.Clean(p.path) != p.path {
			return invalid("setting "+p.name, fmt.Sprintf("%q is not a clean absolute path", p.path), "give the whole path, without . and ..")
		}
	}
	for _, p := range []struct{ name, path string }{{"socket", c.Socket}, {"keeper", c.Keeper}} {
		if len(p.path) > maxSocketPath {
			return invalid("setting "+p.name, fmt.Sprintf("path of %d bytes; a unix socket's has at most %d", len(p.path), maxSocketPath), "choose a shorter path with --"+p.name)
		}
	}
	if c.Socket == c.Keeper {
		return invalid("setting keeper", "is the same socket as that of the API", "give each its own path")
	}
	if (c.TestPerson == "") != (c.TestPersonToken == "") {
		return invalid("setting debug-person", "needs debug-person-token, and the other way round", "give both or none")
	}
	if why := (cofferdam.Rest{Idle: c.IdleTimeout.Seconds(), Lifetime: c.MaxLifetime.Seconds()}).Check(); why != "" {
		return invalid("settings idle-timeout and max-lifetime", why, "correct them, or leave them out for 15m and 8h")
	}
	return checkListen(c.Listen)
}

// checkListen allows loopback only: no port of ours is reachable from
// elsewhere, token or not.
func checkListen(addr string) error {
	if addr == "" {
		return nil
	}
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return invalid("setting listen", fmt.Sprintf("%q is no ADDRESS:PORT", addr), "use "+DefaultListen+", or off")
	}
	ip, err := netip.ParseAddrPort(addr)
	if err != nil || !ip.Addr().IsLoopback() {
		return invalid("setting listen", fmt.Sprintf("%q is not a loopback address", host), "use "+DefaultListen+"; reach it from elsewhere through ssh -L")
	}
	return nil
}

func invalid(subject, reason, hint string) *cofferdam.Error {
	return &cofferdam.Error{Op: "config.Load", Kind: cofferdam.Invalid, Subject: subject, Reason: reason, Hint: hint}
}

// atOnce makes one error of all that is wrong with values.
func atOnce(faults []*cofferdam.Error) error {
	switch len(faults) {
	case 0:
		return nil
	case 1:
		return faults[0]
	}
	var all []string
	said, hint := "", faults[0].Hint
	for i, f := range faults {
		if f.Hint != hint {
			hint = "correct each of them: docs/models.md, docs/environments.md and docs/workspaces.md have examples"
		}
		if i == maxFaults {
			all = append(all, fmt.Sprintf("and %d more", len(faults)-i))
			break
		}
		reason := f.Reason
		if f.Subject != said { // a file with several is named once
			reason, said = f.Error(), f.Subject
		}
		all = append(all, reason)
	}
	return invalid("", strings.Join(all, "; "), hint)
}

func dirOf(exe string) string {
	if real, err := filepath.EvalSymlinks(exe); err == nil {
		exe = real
	}
	return filepath.Dir(exe)
}

// readBounded reads a file that an operator wrote. missing is true if there is none.
func readBounded(path string) (data []byte, missing bool, err error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, true, nil
	}
	if err != nil {
		return nil, false, err
	}
	defer f.Close()
	data, err = io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, false, err
	}
	if len(data) > maxFile {
		return nil, false, fmt.Errorf("is larger than %d bytes", maxFile)
	}
	return data, false, nil
}

// plain returns the reason of a file error without repeating its path.
func plain(err error) string {
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Err.Error()
	}
	return strings.TrimSpace(err.Error())
}
