package config

import (
	"net/netip"
	"time"

	"cofferdam"
	"cofferdam/sandbox"
)

// Config is all a server can be told. To add a setting: add a field here with
// a usable zero value or a default in defaults, a row in settings, and a line
// in docs/SPECIFICATION.md; then a case in TestPrecedence. A retired setting
// keeps its row with Retired set, so that its name is refused with the reason.
type Config struct {
	File        string // operator file that was read; "" if there was none
	State       string // folder with everything that lasts
	Socket      string // unix socket of the API
	Listen      string // loopback address of the API with a token; "" for none
	TokenFile   string // bearer token of Listen, mode 0600, made at start
	Keeper      string // unix socket of cofferdam-keeper
	KeeperState string // folder of cofferdam-keeper
	Programs    string // folder with cofferdam-keeper, -runsc, -init, -engine
	Debug       bool   // verbose log, causes in answers

	Tier sandbox.Tier // of boxes; a task may ask for a stronger one

	Allow          []string      // hosts every task may reach, policy.ParseAllow's grammar
	AllowAddresses []AddrAndPort // reserved addresses that may be dialled all the same
	// Hosts are names that the gateways look up here before they ask a resolver,
	// as /etc/hosts does for the machine. Where a name leads is judged all the same.
	Hosts    map[cofferdam.Host]netip.Addr
	Resolver netip.AddrPort      // DNS server of the gateways; zero: the machine's own
	Policy   string              // Cedar text of the operator
	Presets  map[string][]string // of the operator file; they replace those of the machine

	Budget    cofferdam.Budget // of a task whose request names none; zero fields: no limit
	MaxBudget cofferdam.Budget // what a task may ask for; zero fields: whatever task.Check takes
	// ProjectBudgets are the same of single projects, by name.
	ProjectBudgets map[string]cofferdam.Budget
	Prices         []cofferdam.Price // of models; they stand before the listed ones

	Environments Environments // what boxes may be made from
	Workspaces   Workspaces   // how long they are kept
	SignIn       SignIn       // at an identity provider
	Webhook      string       // URL that is told of questions to people; "" for none
	// ApprovalWait is how long a question to people waits; 0: the default.
	ApprovalWait time.Duration
	// Systems are programs outside that bring people's answers, by name.
	Systems map[string]ApprovalSystem

	Agents string // folder with more agents, one file each; "" for none

	AgentTimeout time.Duration // of a run whose request names none
	CheckTimeout time.Duration // of each check

	IdleTimeout time.Duration // of a session, before its box is suspended
	MaxLifetime time.Duration // of a session
	Parallel    int           // sessions with a box that runs at a time
	// Of each project: of those so many, and new tasks within an hour; 0: no limit of its own.
	ProjectParallel, TasksPerHour int

	// Debug knobs: no promise, not documented.
	TestPerson      string // name of a test person; "" for none
	TestPersonToken string // file with the token that authenticates it
	CrashPoint      string // COFFERDAM_DEBUG_CRASH, see task/flow
	// ClockAhead moves the clock by which workspaces grow old.
	ClockAhead time.Duration
	DebugIdle  time.Duration // IdleTimeout, also below its range

	Sources map[string]string // setting name to where its value came from: flag, environment, file, default
}

// AddrAndPort is an address an operator listed. Port 0 means every port.
type AddrAndPort struct {
	Addr netip.Addr
	Port uint16
}

// String returns the form the operator file uses.
func (a AddrAndPort) String() string {
	if a.Port == 0 {
		return a.Addr.String()
	}
	return netip.AddrPortFrom(a.Addr, a.Port).String()
}

// Where things are when nobody says otherwise.
const (
	DefaultFile   = "/etc/cofferdam/cofferdam.toml"
	DefaultState  = "/var/lib/cofferdam"
	DefaultRun    = "/run/cofferdam"
	DefaultSocket = DefaultRun + "/cofferdam.sock"
	DefaultKeeper = DefaultRun + "/keeper.sock"
	DefaultListen = "127.0.0.1:7420"
)

// Bounds of what is read. Source: docs/SPECIFICATION.md, "Configuration".
const (
	maxFile       = 1 << 20 // bytes of the operator file and of policy text
	maxAllow      = 1000    // entries of a list
	maxSocketPath = 107     // sun_path of Linux without its final NUL
	// DefaultAgentTimeout is an hour: what hosted agents are given (R63).
	DefaultAgentTimeout = time.Hour
	// DefaultCheckTimeout is what a slow test suite needs.
	DefaultCheckTimeout = 15 * time.Minute
	maxTimeout          = 24 * time.Hour
	maxTasksPerHour     = 10_000
	maxParallel         = 128 // sessions at a time; half of the steps that a server works on at a time
)

// Rest is how long sessions may idle and live.
func (c Config) Rest() cofferdam.Rest {
	idle := c.IdleTimeout
	if c.DebugIdle > 0 {
		idle = c.DebugIdle
	}
	return cofferdam.Rest{Idle: idle.Seconds(), Lifetime: c.MaxLifetime.Seconds()}
}

// Version is what this tree calls itself. It changes with a release.
const Version = "0.1.0-dev"
