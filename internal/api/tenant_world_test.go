package api_test

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"cofferdam"
	"cofferdam/approval"
	"cofferdam/identity"
	"cofferdam/internal/api"
	"cofferdam/internal/doctor"
	"cofferdam/internal/service"
	"cofferdam/internal/store"
	"cofferdam/task"
)

// both is two organisations on one server.
type both struct {
	h          *api.Server
	m          *service.Memory
	st         *store.Store
	seen       *watched
	people     *identity.Directory
	a, b       cofferdam.Scope
	theirs     names // of the first
	tokA, tokB string
}

// watched notes which look-ups were made.
type watched struct {
	*store.Store
	mu   sync.Mutex
	made []string
}

func (w *watched) note(what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.made = append(w.made, what)
}

func (w *watched) taken() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	made := w.made
	w.made = nil
	return made
}

func (w *watched) FindTask(ctx context.Context, s cofferdam.Scope, n string) (cofferdam.Task, error) {
	w.note("task")
	return w.Store.FindTask(ctx, s, n)
}

func (w *watched) TaskByID(ctx context.Context, id cofferdam.TaskID) (cofferdam.Task, error) {
	w.note("task by id")
	return w.Store.TaskByID(ctx, id)
}

func (w *watched) FindRepo(ctx context.Context, s cofferdam.Scope, n string) (cofferdam.Repo, error) {
	w.note("repo")
	return w.Store.FindRepo(ctx, s, n)
}

func (w *watched) FindModel(ctx context.Context, s cofferdam.Scope, n string) (cofferdam.Model, error) {
	w.note("model")
	return w.Store.FindModel(ctx, s, n)
}

func (w *watched) Session(ctx context.Context, s cofferdam.Scope, n string) (cofferdam.Session, error) {
	w.note("session")
	return w.Store.Session(ctx, s, n)
}

func (w *watched) Sessions(ctx context.Context, s cofferdam.Scope, t cofferdam.TaskID, limit int) ([]cofferdam.Session, error) {
	w.note("sessions")
	return w.Store.Sessions(ctx, s, t, limit)
}

func (w *watched) Question(ctx context.Context, s cofferdam.Scope, n string) (cofferdam.Question, error) {
	w.note("question")
	return w.Store.Question(ctx, s, n)
}

func (w *watched) PolicyVersion(ctx context.Context, s cofferdam.Scope, n int64) (cofferdam.PolicyVersion, error) {
	w.note("policy")
	return w.Store.PolicyVersion(ctx, s, n)
}

func (w *watched) ReceiptsOf(ctx context.Context, t cofferdam.TaskID) ([]task.Receipt, error) {
	w.note("receipts")
	return w.Store.ReceiptsOf(ctx, t)
}

func (w *watched) Project(ctx context.Context, o cofferdam.OrganizationID, n string) (cofferdam.Scope, error) {
	w.note("project")
	return w.Store.Project(ctx, o, n)
}

func (w *watched) Factors(ctx context.Context, p cofferdam.PersonID) ([]identity.Factor, error) {
	w.note("factors")
	return w.Store.Factors(ctx, p)
}

func (w *watched) Token(ctx context.Context, o cofferdam.OrganizationID, id cofferdam.TokenID) (identity.Token, error) {
	w.note("token")
	return w.Store.Token(ctx, o, id)
}

func (w *watched) Tokens(ctx context.Context, o cofferdam.OrganizationID) ([]identity.Token, error) {
	w.note("tokens")
	return w.Store.Tokens(ctx, o)
}

// fenced are rooms that keep nothing in the database: what they have is the first
// organisation's, and whoever else's scope they are given sees none. Their own
// tests hold that they look at the scope; here is held which one they are given.
type fenced struct {
	service.Environments
	service.Workspaces
	service.Sandboxes
	a cofferdam.Scope
	w *watched
}

func none(noun, name string) error {
	return &cofferdam.Error{Op: "test.Find", Kind: cofferdam.NotFound, Subject: noun + " " + name, Reason: "there is none", Hint: "list them"}
}

type fencedEnvironments struct{ fenced }

func (f fencedEnvironments) Environments(s cofferdam.Scope) []cofferdam.Environment {
	f.w.note("environments")
	if s != f.a {
		return nil
	}
	return f.fenced.Environments.Environments(s)
}

func (f fencedEnvironments) PruneEnvironments(s cofferdam.Scope, age time.Duration, size int64) ([]cofferdam.Environment, error) {
	return f.Environments(s), nil
}

type fencedWorkspaces struct{ fenced }

func (f fencedWorkspaces) List(ctx context.Context, s cofferdam.Scope) ([]cofferdam.Workspace, error) {
	if s != f.a {
		return nil, nil
	}
	return f.fenced.Workspaces.List(ctx, s)
}

func (f fencedWorkspaces) View(ctx context.Context, s cofferdam.Scope, name string) (cofferdam.Workspace, error) {
	f.w.note("workspace")
	if s != f.a {
		return cofferdam.Workspace{}, none("workspace", name)
	}
	return f.fenced.Workspaces.View(ctx, s, name)
}

func (f fencedWorkspaces) Export(ctx context.Context, s cofferdam.Scope, name string) (cofferdam.Workspace, error) {
	return f.View(ctx, s, name)
}

func (f fencedWorkspaces) Bundle(ctx context.Context, s cofferdam.Scope, name string) (*os.File, error) {
	if _, err := f.View(ctx, s, name); err != nil {
		return nil, err
	}
	return f.fenced.Workspaces.Bundle(ctx, s, name)
}

func (f fencedWorkspaces) Remove(ctx context.Context, s cofferdam.Scope, by cofferdam.Principal, name string, discard bool) error {
	if _, err := f.View(ctx, s, name); err != nil {
		return err
	}
	return f.fenced.Workspaces.Remove(ctx, s, by, name, discard)
}

type fencedSandboxes struct{ fenced }

func (f fencedSandboxes) Boxes(ctx context.Context, s cofferdam.Scope) ([]cofferdam.Sandbox, error) {
	if s != f.a {
		return nil, nil
	}
	return f.fenced.Sandboxes.Boxes(ctx, s)
}

func (f fencedSandboxes) Checkpoints(ctx context.Context, s cofferdam.Scope, w string) ([]cofferdam.Checkpoint, error) {
	if s != f.a {
		return nil, nil
	}
	return f.fenced.Sandboxes.Checkpoints(ctx, s, w)
}

// host is a record of nothing.
type host struct{}

func (host) Record(_ context.Context, e cofferdam.Event) (cofferdam.Event, error) { return e, nil }

func newBoth(t *testing.T) *both {
	t.Helper()
	ctx := t.Context()
	st, err := store.Open(ctx, filepath.Join(t.TempDir(), "db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { st.Close() })
	b := &both{st: st, seen: &watched{Store: st}, m: service.NewMemory()}
	if b.a, err = st.DefaultScope(ctx); err != nil {
		t.Fatal(err)
	}
	b.b = cofferdam.Scope{Organization: cofferdam.OrganizationID(cofferdam.NewID("o")), Project: cofferdam.ProjectID(cofferdam.NewID("p"))}
	owner := cofferdam.PersonID(cofferdam.NewID("u"))
	if err := st.AddOrganization(ctx, identity.Founding{
		Organization: cofferdam.Organization{ID: b.b.Organization, Name: "rival", Created: time.Now()}, Project: cofferdam.Project{Scope: b.b, Name: "default", Created: time.Now()},
		Owner:      identity.Person{ID: owner, Organization: b.b.Organization, Name: "bob", Created: time.Now()},
		Invitation: identity.Token{ID: cofferdam.TokenID(cofferdam.NewID("k")), Hash: strings.Repeat("0", 64), Organization: b.b.Organization, Member: string(owner), Expires: time.Now()},
	}); err != nil {
		t.Fatal(err)
	}
	b.people = identity.New(identity.Options{Store: b.seen, Record: host{}})
	o := b.m.Options(b.a)
	o.People, o.Accounts, o.Projects, o.Repos, o.Models, o.Sessions, o.Receipts, o.Questions, o.Policies = b.people, b.people, b.seen, b.seen, b.seen, b.seen, b.seen, b.seen, b.seen
	if o.Passkeys, err = b.people.UsePasskeys("localhost", "http://localhost:7420"); err != nil {
		t.Fatal(err)
	}
	o.Tasks = task.New(task.Options{Store: b.seen, Record: host{}})
	if o.Desk, err = approval.New(approval.Options{Store: b.seen, Record: host{}}); err != nil {
		t.Fatal(err)
	}
	o.Doctor = func(context.Context) doctor.Report { return doctor.Report{} }
	f := fenced{o.Environments, o.Workspaces, o.Sandboxes, b.a, b.seen}
	o.Environments, o.Workspaces, o.Sandboxes = fencedEnvironments{f}, fencedWorkspaces{f}, fencedSandboxes{f}
	b.h = api.New(service.New(o), api.Options{Version: "test", Log: slog.New(slog.DiscardHandler), PageOrigin: "http://localhost:7420", Auth: api.Auth{UID: os.Getuid()}})
	b.tokA, b.tokB = b.owner(t, b.a, "canary-ann"), b.owner(t, b.b, "bob")
	return b
}

// owner makes an owner of an organisation and returns a token of theirs.
func (b *both) owner(t *testing.T, s cofferdam.Scope, name string) string {
	t.Helper()
	c, err := b.people.Local(t.Context(), s.Organization, name)
	if err != nil {
		t.Fatal(err)
	}
	_, text, err := b.people.Issue(t.Context(), identity.Token{Organization: s.Organization, Holder: c.Principal, Member: c.Member, Most: identity.Owner, Login: true}, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	return text
}
