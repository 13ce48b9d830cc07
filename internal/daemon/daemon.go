// Package daemon builds the whole server and runs it: it knows every room and
// supplies the small interfaces they declare, so that they need not know each
// other. Only cmd/cofferdam-server imports it.
//
// It never decides anything itself. The invariant: nothing answers before
// everything behind it is ready, and what was built is taken down in reverse;
// sessions that run are left with the keeper, for the next server.
package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/gofrs/flock"
	"golang.org/x/term"

	"cofferdam"
	"cofferdam/agent"
	"cofferdam/internal/api"
	"cofferdam/internal/config"
	"cofferdam/internal/doctor"
	"cofferdam/internal/service"
)

// Main runs the server until it is asked to end and returns the exit code. A
// second signal ends it at once.
func Main(args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop)
	if os.Geteuid() != 0 {
		exit, err := asUser(ctx, args)
		if err != nil {
			return tell(ctx, os.Stderr, err)
		}
		return exit
	}
	ctx, owner := withStarter(ctx)
	c, err := config.FromArgs(args, os.Getenv)
	if err == nil {
		err = Run(ctx, c, owner)
	}
	return tell(ctx, os.Stderr, err)
}

// tell says why the server ended and returns the exit code. A server that was
// asked to end while it started has done so: what was cut short is no fault.
func tell(ctx context.Context, w io.Writer, err error) int {
	switch {
	case err == nil:
		return 0
	case ctx.Err() != nil:
		fmt.Fprintln(w, "cofferdam: asked to end before it served")
		return 0
	}
	fmt.Fprintf(w, "cofferdam: cannot serve: %v\nhint: %s\n", err, cofferdam.HintOf(err))
	return cofferdam.Kinds()[cofferdam.KindOf(err)].Exit
}

// server is what is being built; stops runs in reverse.
type server struct {
	config.Config
	log     *slog.Logger
	owner   string // user who started it in a user namespace; "" for none
	started time.Time
	presets map[string][]string
	agents  agent.Set
	known   []cofferdam.Adapter // the same, as faces tell them
	parts
	stops []func()
}

// Run serves until ctx ends. owner is the user whose namespace this is, "" if it
// is the host's.
func Run(ctx context.Context, c config.Config, owner string) error {
	s := &server{Config: c, owner: owner, log: logger(c), started: time.Now()}
	defer s.down()
	s.log.InfoContext(ctx, "starting: this host is examined first", slog.Any("state", s.State))
	if err := inTurn(ctx, s.readAgents, s.examine, s.claim); err != nil {
		return err
	}
	// The engine takes longest to start, and nothing before move needs it.
	ready := s.wake(ctx)
	err := inTurn(ctx, s.keep, s.dial, s.connect, s.attach)
	if err := errors.Join(err, ready(err == nil)); err != nil {
		return err
	}
	if err := s.move(ctx); err != nil {
		return err
	}
	return s.serve(ctx)
}

// inTurn does one step after the other until one fails.
func inTurn(ctx context.Context, steps ...func(context.Context) error) error {
	for _, step := range steps {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (s *server) onStop(f func()) { s.stops = append(s.stops, f) }

func (s *server) down() {
	for i := len(s.stops) - 1; i >= 0; i-- {
		s.stops[i]()
	}
}

// closing logs what could not be closed: by then nobody waits for an answer.
func (s *server) closing(what string, close func() error) {
	s.onStop(func() {
		if err := close(); err != nil {
			s.log.WarnContext(context.Background(), "closing", slog.Any("what", what), slog.Any("error", err))
		}
	})
}

func logger(c config.Config) *slog.Logger {
	o := &slog.HandlerOptions{Level: slog.LevelInfo}
	if c.Debug {
		o.Level = slog.LevelDebug
	}
	if term.IsTerminal(int(os.Stderr.Fd())) {
		return slog.New(slog.NewTextHandler(os.Stderr, o))
	}
	return slog.New(slog.NewJSONHandler(os.Stderr, o))
}

// examine refuses a host on which a promise could not be kept.
func (s *server) examine(ctx context.Context) error {
	s.presets = config.Presets(ctx, s.Config, config.ThisMachine())
	if err := checkAllow(s.Config, s.presets); err != nil {
		return err
	}
	return doctor.Run(ctx, doctor.Options{Config: s.Config, Presets: s.presets, Own: true}).Err()
}

// claim takes the state folder for this process alone.
func (s *server) claim(context.Context) error {
	for _, dir := range []string{s.State, filepath.Dir(s.Socket)} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return &cofferdam.Error{Op: "daemon.claim", Kind: cofferdam.Unavailable, Subject: "folder " + dir, Hint: "make it writable, or name another with --state", Err: err}
		}
	}
	lock := flock.New(filepath.Join(s.State, "lock"))
	ok, err := lock.TryLock()
	if err != nil {
		return &cofferdam.Error{Op: "daemon.claim", Kind: cofferdam.Unavailable, Subject: "folder " + s.State, Hint: "make it writable, or name another with --state", Err: err}
	}
	if !ok {
		return &cofferdam.Error{
			Op: "daemon.claim", Kind: cofferdam.Conflict, Subject: "folder " + s.State, Reason: "another server uses it",
			Hint: "stop that one, or name another folder with --state",
		}
	}
	s.closing("lock", lock.Close)
	return nil
}

// serve answers on the socket and, with a token, on loopback.
func (s *server) serve(ctx context.Context) error {
	auth := api.Auth{UID: os.Getuid(), Name: s.owner}
	var err error
	if s.TestPerson != "" {
		auth.TestPerson = s.TestPerson
		if auth.TestToken, err = config.ReadToken(s.TestPersonToken); err != nil {
			return err
		}
	}
	if auth.Token, err = api.NewToken(s.TokenFile); err != nil {
		return err
	}
	server := api.New(s.service(), api.Options{Version: config.Version, Auth: auth, Log: s.log, Debug: s.Debug, PageOrigin: s.SignIn.PasskeyOrigin})
	listeners, err := s.listen()
	if err != nil {
		return err
	}
	if err := s.work(ctx); err != nil {
		return err
	}
	s.sweepWorkspaces(ctx)
	serving, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, len(listeners))
	for _, l := range listeners {
		go func() { ended <- server.Serve(serving, l) }()
	}
	s.log.InfoContext(ctx, "serving", slog.Any("socket", s.Socket), slog.Any("listen", s.Listen), slog.Any("state", s.State))
	fmt.Fprintf(os.Stdout, "cofferdam: serving at unix:%s\n", s.Socket)
	var first error
	running := len(listeners)
	select {
	case first = <-ended:
		running--
	case <-s.engine.Done(): // nothing could be worked on any more
		first = s.engine.Err()
	}
	stop()
	for range running {
		first = errors.Join(first, <-ended)
	}
	if ctx.Err() != nil {
		return nil
	}
	return first
}

// work begins to work on tasks, for as long as somebody looks after the engine.
func (s *server) work(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-s.engine.Done():
			cancel()
		case <-ctx.Done():
		}
	}()
	err := s.flow.Run(ctx)
	if gone := s.engine.Err(); err != nil && gone != nil {
		return gone
	}
	return err
}

func (s *server) service() *service.Service {
	return service.New(service.Options{
		Scope: s.scope, People: s.people, Projects: s.store, Runners: api.Auth{UID: os.Getuid(), Name: s.owner}.Runners(), Questions: s.store, Desk: s.desk, Systems: outside(s), Bound: s.people, NewWebhookSecret: s.hook.maker(), Prover: s.people, Accounts: s.people, Keys: s.issuer.Keys, Provider: s.signIn, Passkeys: s.passkeys, Policies: s.store, Record: s.trace.Host(), SignPolicy: s.signer.SignPolicy, Grant: s.grant, Judge: s.judge, Version: config.Version, Started: s.started,
		Tasks: s.tasks, Flow: s.flow, Merges: s.merges, Repos: reposOf{s.store, s.mirror}, Models: s.store,
		Secrets: s.vault, Sessions: s.store, Receipts: s.store, Trace: s.trace, Environments: kept{s.environments, s.images}, Workspaces: s.workspaces, Sandboxes: s.sessions,
		CheckUpstream: s.checkUpstream, Agents: s.known, NeedsModel: s.needsModel, Hears: s.hears, Presets: s.presets, Budget: s.Budget, MaxBudget: s.MaxBudget, ProjectBudgets: s.ProjectBudgets,
		Rest: s.Rest(), Life: s.sessions.Life, Waits: s.sessions.Waits,
		Tier: s.tier,
		Doctor: func(ctx context.Context) doctor.Report {
			return doctor.Run(ctx, doctor.Options{Config: s.Config, Presets: s.presets, Serving: true})
		},
		PublicKey: s.signer.Public(),
		Build:     s.build, Keepers: s.keepers,
	})
}
