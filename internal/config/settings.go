package config

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"cofferdam"
	"cofferdam/sandbox"
)

// Setting is one thing that the command line, the environment or the operator
// file can set.
type Setting struct {
	Name   string // flag without hyphens in front, and key of the file
	Env    string // variable; "" for none
	Usage  string
	Bool   bool
	Number bool // the file may give it without quotes
	Hidden bool // a debug knob
	apply  func(*Config, string) error
	show   func(Config) string
}

// Value is what c has for this setting.
func (s Setting) Value(c Config) string { return s.show(c) }

// Settings lists them all, for flags, help and documents.
func Settings() []Setting {
	return []Setting{
		text("state", "COFFERDAM_STATE", "folder with everything that lasts (default "+DefaultState+")", func(c *Config) *string { return &c.State }),
		text("socket", "COFFERDAM_SOCKET", "unix socket of the API (default "+DefaultSocket+", or run/cofferdam.sock in a state folder of your own)", func(c *Config) *string { return &c.Socket }),
		text("listen", "COFFERDAM_LISTEN", "loopback address where the API answers callers with a token; off for none (default "+DefaultListen+")", func(c *Config) *string { return &c.Listen }),
		text("token-file", "", "file that gets the token of --listen (default token in the state folder)", func(c *Config) *string { return &c.TokenFile }),
		text("keeper", "COFFERDAM_KEEPER", "unix socket of cofferdam-keeper (default "+DefaultKeeper+", or run/keeper.sock in a state folder of your own)", func(c *Config) *string { return &c.Keeper }),
		text("keeper-state", "", "folder of cofferdam-keeper (default keeper in the state folder)", func(c *Config) *string { return &c.KeeperState }),
		text("programs", "", "folder with cofferdam-keeper and its sisters (default: where this program is)", func(c *Config) *string { return &c.Programs }),
		{
			Name: "tier", Env: "COFFERDAM_TIER", Usage: "tier of boxes: " + tierNames() + "; tasks may ask for a stronger one (default gvisor)",
			apply: func(c *Config, v string) error {
				if c.Tier = sandbox.Tier(v); !slices.Contains(sandbox.Tiers(), c.Tier) {
					return fmt.Errorf("%.80q is no tier; there are %s", v, tierNames())
				}
				return nil
			},
			show: func(c Config) string { return string(c.Tier) },
		},
		duration("agent-timeout", "longest run of an agent whose task names no limit (default 1h)", func(c *Config) *time.Duration { return &c.AgentTimeout }),
		duration("check-timeout", "longest run of one check (default 15m)", func(c *Config) *time.Duration { return &c.CheckTimeout }),
		duration("idle-timeout", "how long a session may have nothing to do before its box is suspended, 60s to 8h (default 15m)", func(c *Config) *time.Duration { return &c.IdleTimeout }),
		durationTo(cofferdam.MaxLifetime*time.Second, "max-lifetime", "longest life of a session, 60s to 336h; up to 15m it is the idle timeout as well (default 8h)", func(c *Config) *time.Duration { return &c.MaxLifetime }),
		count("parallel", fmt.Sprintf("how many sessions have a box that runs at a time, 1 to %d; more wait for their turn, and projects take turns (default 8)", maxParallel), maxParallel, func(c *Config) *int { return &c.Parallel }),
		count("project-parallel", fmt.Sprintf("how many of those one project has, 1 to %d (default all)", maxParallel), maxParallel, func(c *Config) *int { return &c.ProjectParallel }),
		count("tasks-per-hour", fmt.Sprintf("how many tasks a project may make within an hour, 1 to %d (default any number)", maxTasksPerHour), maxTasksPerHour, func(c *Config) *int { return &c.TasksPerHour }),
		{
			Name: "debug", Usage: "verbose log", Bool: true,
			apply: func(c *Config, v string) (err error) {
				if c.Debug, err = strconv.ParseBool(v); err != nil {
					return fmt.Errorf("%q is neither true nor false", v)
				}
				return nil
			},
			show: func(c Config) string { return strconv.FormatBool(c.Debug) },
		},
		hidden(text("debug-person", "", "name of a test person, for demos and tests", func(c *Config) *string { return &c.TestPerson })),
		hidden(text("debug-person-token", "", "file with the test person's token", func(c *Config) *string { return &c.TestPersonToken })),
		hidden(Setting{
			Name: "debug-clock", Usage: "how far ahead the clock is by which workspaces grow old",
			apply: func(c *Config, v string) (err error) {
				if c.ClockAhead, err = time.ParseDuration(v); err != nil {
					return fmt.Errorf("%q is no duration such as 312h", v)
				}
				return nil
			},
			show: func(c Config) string { return c.ClockAhead.String() },
		}),
		hidden(duration("debug-idle", "idle timeout, however short", func(c *Config) *time.Duration { return &c.DebugIdle })),
		hidden(text("debug-crash", "COFFERDAM_DEBUG_CRASH", "point at which the server ends itself", func(c *Config) *string { return &c.CrashPoint })),
	}
}

func tierNames() string {
	var names []string
	for _, t := range sandbox.Tiers() {
		names = append(names, string(t))
	}
	return strings.Join(names, ", ")
}

func count(name, usage string, most int, field func(*Config) *int) Setting {
	return Setting{
		Name: name, Number: true, Usage: usage,
		apply: func(c *Config, v string) error {
			n, err := strconv.Atoi(v)
			if err != nil || n < 1 || n > most {
				return fmt.Errorf("%.80q is no number from 1 to %d", v, most)
			}
			*field(c) = n
			return nil
		},
		show: func(c Config) string { return strconv.Itoa(*field(&c)) },
	}
}

func text(name, env, usage string, field func(*Config) *string) Setting {
	return Setting{
		Name: name, Env: env, Usage: usage,
		apply: func(c *Config, v string) error { *field(c) = v; return checkText(v) },
		show:  func(c Config) string { return *field(&c) },
	}
}

func duration(name, usage string, field func(*Config) *time.Duration) Setting {
	return durationTo(maxTimeout, name, usage, field)
}

func durationTo(most time.Duration, name, usage string, field func(*Config) *time.Duration) Setting {
	return Setting{
		Name: name, Usage: usage,
		apply: func(c *Config, v string) error {
			d, err := time.ParseDuration(v)
			if err != nil {
				return fmt.Errorf("%q is no duration such as 90s or 1h30m", v)
			}
			if d <= 0 || d > most {
				return fmt.Errorf("%s is not between 0 and %s", d, most)
			}
			*field(c) = d
			return nil
		},
		show: func(c Config) string { return field(&c).String() },
	}
}

func hidden(s Setting) Setting { s.Hidden = true; return s }

// checkText refuses what no path, address or name can hold.
func checkText(v string) error {
	if len(v) > 4096 { // PATH_MAX of Linux
		return fmt.Errorf("is %d bytes long; 4096 are the most", len(v))
	}
	for _, r := range v {
		if r < ' ' || r == 0x7f || r == '�' {
			return fmt.Errorf("%q holds a control character or is not UTF-8", v)
		}
	}
	return nil
}

// programsDir is the folder of the running program, where its sisters are.
func programsDir() (string, error) {
	exe, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("finding this program's folder: %w", err)
	}
	return dirOf(exe), nil
}
