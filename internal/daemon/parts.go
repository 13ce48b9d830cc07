package daemon

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"log/slog"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"cofferdam"
	"cofferdam/approval"
	"cofferdam/environment"
	"cofferdam/environment/image"
	"cofferdam/gateway"
	"cofferdam/gateway/egress"
	"cofferdam/gateway/git"
	"cofferdam/gateway/model"
	"cofferdam/gateway/proposal"
	"cofferdam/gateway/wire"
	"cofferdam/gateway/workload"
	"cofferdam/identity"
	"cofferdam/internal/config"
	"cofferdam/internal/engine"
	"cofferdam/internal/redact"
	"cofferdam/internal/repo"
	"cofferdam/internal/service"
	"cofferdam/internal/store"
	"cofferdam/merge"
	"cofferdam/proof"
	"cofferdam/sandbox/keeper"
	"cofferdam/secret"
	"cofferdam/session"
	"cofferdam/task"
	"cofferdam/task/flow"
	"cofferdam/trace"
	"cofferdam/workspace"
)

// parts are the rooms as this server uses them, in the order they are built.
type parts struct {
	store  *store.Store
	scope  cofferdam.Scope
	signer proof.Signer
	vault  *secret.Vault
	trace  *trace.Store

	redactor *redact.Redactor

	boxes *keeper.Set
	build string // of this server's program

	dialer *gateway.Dialer
	mirror *repo.Repos
	git    *git.Gateway
	ca     *egress.CA
	routes wire.Routes

	environments *environment.Cache
	images       *image.Store

	workspaces *workspace.Keeper

	desk     *approval.Desk
	hook     *hook // signs notices of questions; nil: nobody is told
	people   *identity.Directory
	issuer   *identity.Issuer
	signIn   service.SignInProvider // nil: there is none
	passkeys service.Passkeys       // nil: there are none
	sessions *session.Runner
	merges   *merge.Service
	tasks    *task.Service
	engine   *engine.Engine
	flow     *flow.Flow
	working  atomic.Pointer[flow.Flow] // the same, once it works
}

// keep opens what lasts: store, keys, vault and trace.
func (s *server) keep(ctx context.Context) error {
	var err error
	if s.store, err = store.Open(ctx, filepath.Join(s.State, "cofferdam.db")); err != nil {
		return err
	}
	s.closing("store", s.store.Close)
	if s.scope, err = s.store.DefaultScope(ctx); err != nil {
		return err
	}
	if s.signer, err = trace.OpenKey(filepath.Join(s.State, "keys", "trace"), "cofferdam"); err != nil {
		return err
	}
	if s.vault, err = secret.Open(ctx, filepath.Join(s.State, "vault"), s.store); err != nil {
		return err
	}
	s.redactor = redact.New(nil)
	if err := s.vault.Feed(s.redactor); err != nil {
		return err
	}
	if s.trace, err = trace.Open(filepath.Join(s.State, "trace"), s.signer, s.redactor); err != nil {
		return err
	}
	s.closing("trace", s.trace.Close)
	if s.issuer, err = newIssuer(); err != nil {
		return err
	}
	s.people = identity.New(identity.Options{Store: s.store, Record: s.trace.Host(), Sealer: s.vault})
	if err := identity.SealCodes(ctx, s.store, s.vault); err != nil {
		return err
	}
	if s.SignIn.Issuer != "" {
		if s.signIn, err = identity.NewOIDC(identity.Provider{Issuer: s.SignIn.Issuer, Client: s.SignIn.Client}, s.people); err != nil {
			return err
		}
	}
	if origin := s.SignIn.PasskeyOrigin; origin != "" {
		u, err := url.Parse(origin)
		if err != nil {
			return err
		}
		if s.passkeys, err = s.people.UsePasskeys(u.Hostname(), origin); err != nil {
			return err
		}
	}
	if s.desk, err = approval.New(approval.Options{Store: s.store, Record: s.trace.Host(), Told: s.notices(ctx), Wait: s.ApprovalWait}); err != nil {
		return err
	}
	return s.desk.Sweep(ctx)
}

// newIssuer signs the tokens of sessions with a key of this process alone: they are
// worth nothing after it in any case, for every wire is another one then.
func newIssuer() (*identity.Issuer, error) {
	public, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(public)
	return identity.NewIssuer("urn:cofferdam:server:"+hex.EncodeToString(sum[:8]), key, nil)
}

// connect builds the gateways: all that a box can reach.
func (s *server) connect(context.Context) error {
	s.dialer = &gateway.Dialer{Resolver: gateway.NewResolver(s.Hosts, s.Resolver)}
	for _, a := range s.AllowAddresses {
		if a.Port == 0 {
			s.dialer.Allow = append(s.dialer.Allow, netip.PrefixFrom(a.Addr, a.Addr.BitLen()))
		} else {
			s.dialer.AllowPorts = append(s.dialer.AllowPorts, netip.AddrPortFrom(a.Addr, a.Port))
		}
	}
	var err error
	if s.ca, err = egress.OpenCA(filepath.Join(s.State, "keys")); err != nil {
		return err
	}
	if s.mirror, err = repo.Open(filepath.Join(s.State, "repos")); err != nil {
		return err
	}
	s.git = git.New(git.Options{Repos: s.mirror, Dialer: s.dialer, Credential: s.credential})
	out := egress.New(egress.Options{Dialer: s.dialer, CA: s.ca}) // its roots are this machine's, or those of SSL_CERT_FILE
	models := model.New(model.Options{Dialer: s.dialer, Prices: s.Prices, Attach: s.attachKey, Find: s.store.FindModel, Clean: s.redactor.String})
	s.routes = wire.Routes{
		Own:    map[cofferdam.Host]gateway.Handler{gateway.GitHost: s.git, gateway.ModelHost: models, gateway.IdentityHost: workload.New(s.issuer), gateway.PolicyHost: proposal.New()},
		Others: out, Refused: out.Refusal(), Provider: out.Provider(models),
	}
	return nil
}

// credential finds what the git gateway attaches upstream.
func (s *server) credential(ctx context.Context, r cofferdam.Repo) (secret.Value, bool, error) {
	v, err := s.vault.Get(ctx, r.Scope, service.RepoSecret(r.ID))
	if cofferdam.KindOf(err) == cofferdam.NotFound && err != nil {
		return secret.Value{}, false, nil
	}
	return v, err == nil, err
}

// attach builds what runs sessions and what judges their results.
func (s *server) attach(ctx context.Context) error {
	if err := s.furnish(ctx); err != nil {
		return err
	}
	trust, err := s.trusted()
	if err != nil {
		return err
	}
	if err := s.keepWorkspaces(); err != nil {
		return err
	}
	s.sessions, err = session.New(session.Options{
		Dir: filepath.Join(s.State, "sessions"), Driver: s.boxes, Trace: s.trace, Environments: s.environments, Image: s.images.Find, Router: s.routes, RawSecret: s.rawSecret,
		CloneURL: git.CloneURL, Resolve: s.git.Resolve, ReadFile: s.mirror.ReadFile,
		Redact: func(w io.Writer) session.Clean { return s.redactor.Writer(w) }, Conversation: s.store.Conversation,
		Said: s.store.Messages, LastSaid: s.store.LastMessages, Workspaces: s.workspaces, Rest: s.Rest(),
		Sign: s.signer.SignSnapshot, Vouch: s.vouch, Host: s.trace.Host(),
		Asks: func(ctx context.Context, p session.Plan, question string) error { return s.flow.Asks(ctx, p, question) }, // who runs sessions is there
		Ask:  s.desk, Documents: s.documents, Openings: s.given, Allow: s.Allow, Presets: s.presets, Policy: s.Policy, Env: s.variables(ctx),
		Agents: s.agents, Trust: trust, Tier: s.Tier, AgentTimeout: s.AgentTimeout, CheckTimeout: s.CheckTimeout, Parallel: s.Parallel, ProjectParallel: s.ProjectParallel, Log: s.log,
	})
	if err != nil {
		return err
	}
	s.tasks = task.New(task.Options{Store: s.store, Record: s.trace.Host(), Hourly: s.TasksPerHour})
	s.merges = merge.New(merge.Options{
		Store: s.store, Repos: s.mirror, Trace: s.trace, Record: s.trace.Host(), PublicKey: s.signer.Public(), Rules: landing(s),
		Receipt: func(ctx context.Context, t cofferdam.TaskID, c cofferdam.Commit) ([]byte, error) {
			r, err := s.store.ReceiptFor(ctx, t, c)
			return r.Note, err
		},
	})
	return nil
}

// variables are those of every command in a box.
func (s *server) variables(ctx context.Context) []string {
	env := append(config.Variables(ctx, config.ThisMachine()), "PATH="+config.SearchPath(os.Getenv("PATH")))
	return append(env, egress.TrustEnv()...)
}

// wake begins to start the engine. What it returns must be called: it waits for
// the engine, or, when that is not wanted any more, sees to its end.
func (s *server) wake(ctx context.Context) (ready func(wanted bool) error) {
	ctx, cancel := context.WithCancel(ctx)
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.engine, err = engine.Start(ctx, engine.Options{
			Program: filepath.Join(s.Programs, "cofferdam-engine"), Dir: filepath.Join(s.State, "engine"), Log: s.log,
			// The engine is never the truth: workflows start again from the store.
			Restarted: func(ctx context.Context, _ bool) {
				if f := s.working.Load(); f != nil {
					if err := f.Resume(ctx); err != nil {
						s.log.WarnContext(ctx, "starting workflows again", slog.Any("error", err))
					}
				}
			},
		})
	}()
	return func(wanted bool) error {
		defer cancel()
		if !wanted {
			cancel()
		}
		<-done
		if err == nil {
			s.closing("engine", s.engine.Close) // after all that was built beside it, so it goes first
		}
		if !wanted {
			return nil // why is known already
		}
		return err
	}
}

// move starts the worker of the engine's workflows.
func (s *server) move(ctx context.Context) error {
	client, err := s.engine.Dial(ctx)
	if err != nil {
		return err
	}
	s.onStop(client.Close)
	s.flow = flow.New(ctx, flow.Options{
		Client: client, Tasks: s.tasks, Store: s.store, Sessions: s.sessions, Repos: s.git,
		Signer: s.signer, Record: s.trace.Host(), Landable: s.merges.Landable, Land: s.merges.Land, Log: s.log, Point: s.crash(),
	})
	s.working.Store(s.flow)
	s.onStop(s.flow.Close)
	return nil
}

// checkUpstream looks at a repository before it is registered.
func (s *server) checkUpstream(ctx context.Context, r cofferdam.Repo, credential secret.Value) (cofferdam.Ref, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	return s.git.Check(ctx, r, credential)
}
