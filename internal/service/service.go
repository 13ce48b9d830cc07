// Package service is every verb that a face can ask for, one file per noun,
// each with its permission check. Faces (api, later console) turn bytes into
// these calls and answers into bytes, and decide nothing.
//
// It never opens a store, a repository or a box itself: what it needs it
// declares as small interfaces that internal/daemon fills. The invariant: no
// verb runs without a principal in its context, and what only people may do is
// refused here as well as in the rooms below.
package service

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"cofferdam"
	"cofferdam/internal/doctor"
	"cofferdam/policy"
	"cofferdam/proof"
	"cofferdam/secret"
	"cofferdam/task"
)

// Tasks is what package task offers.
type Tasks interface {
	Create(ctx context.Context, o task.Order) (cofferdam.Task, error)
	Get(ctx context.Context, scope cofferdam.Scope, name string) (cofferdam.Task, error)
	List(ctx context.Context, scope cofferdam.Scope, f task.Filter) ([]cofferdam.Task, error)
	Cancel(ctx context.Context, scope cofferdam.Scope, by cofferdam.Principal, name string) (cofferdam.Task, error)
	Retry(ctx context.Context, scope cofferdam.Scope, by cofferdam.Principal, name string, limits *cofferdam.Budget) (cofferdam.Task, error)
	Reject(ctx context.Context, scope cofferdam.Scope, by cofferdam.Principal, name string, r cofferdam.RejectRequest, how string) (cofferdam.Task, error)
	RequestLand(ctx context.Context, scope cofferdam.Scope, by cofferdam.Principal, name string, commit cofferdam.Commit) (cofferdam.Task, error)
	Watch(ctx context.Context, id cofferdam.TaskID, see func(cofferdam.Task) error) error
	Send(ctx context.Context, scope cofferdam.Scope, by cofferdam.Principal, name, text string) (cofferdam.TaskMessage, error)
}

// Flow sets tasks in motion; package task/flow offers it.
type Flow interface {
	Ensure(ctx context.Context, t cofferdam.Task) error
	Wake(ctx context.Context, t cofferdam.Task) error
}

// Merges shows a change and takes a person's word for it; package merge offers it.
type Merges interface {
	View(ctx context.Context, t cofferdam.Task) (cofferdam.Change, error)
	Approve(ctx context.Context, t cofferdam.Task, r cofferdam.ApproveRequest, by cofferdam.Principal, how string) (cofferdam.Approval, error)
}

// Repos keeps the repositories of a project. Errors are *cofferdam.Error.
type Repos interface {
	AddRepo(ctx context.Context, r cofferdam.Repo) error
	FindRepo(ctx context.Context, scope cofferdam.Scope, name string) (cofferdam.Repo, error) // name, id or unique prefix of an id
	Repos(ctx context.Context, scope cofferdam.Scope) ([]cofferdam.Repo, error)
	RemoveRepo(ctx context.Context, scope cofferdam.Scope, id cofferdam.RepoID) error
}

// Models keeps the model providers of a project. Errors are *cofferdam.Error.
type Models interface {
	AddModel(ctx context.Context, m cofferdam.Model) error
	FindModel(ctx context.Context, scope cofferdam.Scope, name string) (cofferdam.Model, error)
	Models(ctx context.Context, scope cofferdam.Scope) ([]cofferdam.Model, error)
	RemoveModel(ctx context.Context, scope cofferdam.Scope, id cofferdam.ModelID) error
}

// Secrets seals values; package secret offers it. RepoSecret and ModelSecret
// name them.
type Secrets interface {
	Put(ctx context.Context, scope cofferdam.Scope, name string, value secret.Value) error
	Remove(ctx context.Context, scope cofferdam.Scope, name string) error
}

// Sessions finds attempts. Task narrows to one task unless it is "".
type Sessions interface {
	Session(ctx context.Context, scope cofferdam.Scope, name string) (cofferdam.Session, error) // id or unique prefix
	Sessions(ctx context.Context, scope cofferdam.Scope, t cofferdam.TaskID, limit int) ([]cofferdam.Session, error)
}

// Receipts finds signed proofs: of exactly one commit, and all of a task.
type Receipts interface {
	ReceiptFor(ctx context.Context, t cofferdam.TaskID, commit cofferdam.Commit) (task.Receipt, error)
	ReceiptsOf(ctx context.Context, t cofferdam.TaskID) ([]task.Receipt, error)
}

// Texts finds the documents of policy of some digests, signed.
type Texts = func(ctx context.Context, of []cofferdam.Digest) ([]proof.SignedPolicy, error)

// Trace reads the record; package trace offers it.
type Trace interface {
	Events(ctx context.Context, id cofferdam.SessionID, from uint64, limit int) ([]cofferdam.Event, error)
	Follow(ctx context.Context, id cofferdam.SessionID, from uint64, see func(cofferdam.Event) error) error
	Export(ctx context.Context, w io.Writer, ids []cofferdam.SessionID, t cofferdam.TaskID, texts Texts, receipts ...[]byte) error
}

// Options is what a Service is made from. All fields are needed unless a
// comment says otherwise.
type Options struct {
	Scope        cofferdam.Scope // the project that is meant where a caller names none
	People       People
	Projects     Projects
	Runners      []string // accounts of its organisation whom the kernel names: who runs the server, and root
	Version      string
	Build        string // of the program
	Started      time.Time
	Tasks        Tasks
	Flow         Flow
	Merges       Merges
	Repos        Repos
	Models       Models
	Secrets      Secrets
	Sessions     Sessions
	Receipts     Receipts
	Trace        Trace
	Environments Environments
	Workspaces   Workspaces
	Sandboxes    Sandboxes
	Questions    Questions
	Desk         Desk
	Prover       Prover
	Systems      Systems // that bring answers
	Bound        Bound
	// NewWebhookSecret makes another secret for notices; nil: there is no webhook.
	NewWebhookSecret func(ctx context.Context) (string, error)
	Accounts         Accounts
	Provider         SignInProvider
	Passkeys         Passkeys
	Keys             func() []byte // JWKS by which tokens of sessions are checked; nil: there are none
	Policies         Policies
	Record           cofferdam.Recorder // of the host log
	SignPolicy       func(c proof.PolicyChange) ([]byte, error)
	// Grant returns what a session may do by documents, as if it began now; with id
	// "" what every task of the project has.
	Grant func(ctx context.Context, scope cofferdam.Scope, id cofferdam.SessionID, d policy.Documents) (policy.Grant, error)
	// Judge has sessions that run judged by the documents as they are now, and
	// voids what waits for an answer under those before; with no project, all of
	// the organisation's.
	Judge func(ctx context.Context, scope cofferdam.Scope) error
	// CheckUpstream looks at a repository before it is added and returns its
	// base branch: the one asked for, or the one HEAD names.
	CheckUpstream func(ctx context.Context, r cofferdam.Repo, credential secret.Value) (cofferdam.Ref, error)
	Agents        []cofferdam.Adapter // by name
	// NeedsModel says whether an agent calls a model; an error if there is no such agent.
	NeedsModel func(agent string) (bool, error)
	// Hears says whether an agent can be told something while it runs.
	Hears     func(agent string) (bool, error)
	Presets   map[string][]string // see config.Presets
	Budget    cofferdam.Budget    // of a task that names none; zero fields: no limit
	MaxBudget cofferdam.Budget    // the most a task may ask for; zero fields: no bound
	// ProjectBudgets are those of single projects, by name.
	ProjectBudgets map[string]cofferdam.Budget
	Rest           cofferdam.Rest // of sessions; a task may ask for less
	// Life says where the box of a session stands that runs here, NotFound if it does not; nil: not said.
	Life func(ctx context.Context, id cofferdam.SessionID) (cofferdam.BoxLife, error)
	// Waits says why a session waits for its turn, and at which place of its
	// project's, "" if it does not; nil: not said.
	Waits func(id cofferdam.SessionID) string
	// Tier says which tier the boxes of a task that asks for one get, or why it
	// gets none; nil takes what is asked.
	Tier      func(ctx context.Context, asked string) (string, error)
	Doctor    func(ctx context.Context) doctor.Report
	Keepers   func(ctx context.Context) []cofferdam.Keeper // that run
	PublicKey string                                       // note verifier of receipts and traces
	Now       func() time.Time                             // nil: time.Now
}

// Service is every verb. Safe for concurrent use.
type Service struct {
	Options
	deciding sync.Mutex // one decision about a policy at a time
}

// New returns a Service.
func New(o Options) *Service {
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Service{Options: o}
}

func invalid(op, subject, reason, hint string) error {
	return &cofferdam.Error{Op: op, Kind: cofferdam.Invalid, Subject: subject, Reason: reason, Hint: hint}
}

// only picks the single thing there is when a request names none.
func only[T any](op, noun, flag string, all []T, err error) (T, error) {
	var zero T
	switch {
	case err != nil:
		return zero, err
	case len(all) == 0:
		return zero, &cofferdam.Error{Op: op, Kind: cofferdam.NotFound, Subject: noun, Reason: "there is none yet", Hint: "add one with cofferdam " + noun + " add"}
	case len(all) > 1:
		return zero, invalid(op, noun, fmt.Sprintf("there are %d and the task names none", len(all)), "name one with "+flag)
	}
	return all[0], nil
}
