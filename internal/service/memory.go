package service

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"cofferdam"
	"cofferdam/proof"
	"cofferdam/secret"
	"cofferdam/task"
)

// Memory is a world without boxes, engine and disk: all that a Service needs,
// kept in maps. Tests of faces use it; it proves nothing and lands nothing by
// itself, a test moves its tasks with Set.
type Memory struct {
	mu        sync.Mutex // guards what follows
	changed   chan struct{}
	tasks     []cofferdam.Task
	repos     []cofferdam.Repo
	models    []cofferdam.Model
	secrets   map[string]string
	sessions  []cofferdam.Session
	events    map[cofferdam.SessionID][]cofferdam.Event
	sealed    map[cofferdam.SessionID]bool
	approved  map[cofferdam.TaskID]cofferdam.Approval
	messages  int64
	policies  memoryPolicies
	questions []cofferdam.Question
	signer    proof.Signer
	shelf     []cofferdam.Checkpoint // newest first
	// Fail is returned by every call, if it is set.
	Fail error
	// Landing makes a wish to land come true at once.
	Landing bool
	// Change is what Merges shows; its Task is filled in.
	Change cofferdam.Change
}

// NewMemory returns an empty world.
func NewMemory() *Memory {
	private, _ := proof.NewKey("test")
	signer, err := proof.NewSigner(private)
	if err != nil {
		panic("memory: a fresh key always signs")
	}
	return &Memory{
		signer: signer, changed: make(chan struct{}), secrets: map[string]string{}, events: map[cofferdam.SessionID][]cofferdam.Event{},
		sealed: map[cofferdam.SessionID]bool{}, approved: map[cofferdam.TaskID]cofferdam.Approval{}, Landing: true,
	}
}

// Options returns the options of a Service over this world.
func (m *Memory) Options(scope cofferdam.Scope) Options {
	if scope.Organization == "" {
		scope = cofferdam.Scope{Organization: "o-test", Project: "p-test"}
	}
	people, kept := memoryAccounts(scope)
	return Options{
		Scope: scope, People: people, Projects: kept, Accounts: people, Version: "test", Tasks: m, Flow: m, Merges: m, Repos: m, Models: m, Secrets: m, Sessions: m, Receipts: m, Trace: m, Environments: m, Workspaces: memoryWorkspaces{m}, Sandboxes: memorySandboxes{m},
		Policies: &m.policies, Questions: memoryQuestions{m}, Prover: memoryProver{}, Record: memoryRecord{}, SignPolicy: m.signer.SignPolicy, Grant: m.grant, Judge: func(context.Context, cofferdam.Scope) error { return m.fault() },
		CheckUpstream: func(_ context.Context, r cofferdam.Repo, _ secret.Value) (cofferdam.Ref, error) {
			if r.Base != "" {
				return r.Base, m.fault()
			}
			return "refs/heads/main", m.fault()
		},
		Agents: []cofferdam.Adapter{
			{Schema: "cofferdam/agent/v1", Name: "claude", Title: "Claude Code", Version: "1", Providers: []string{"anthropic"}, Place: "box", Resumes: true},
			{Schema: "cofferdam/agent/v1", Name: "command", Title: "a command of your own", Place: "box"},
			{Schema: "cofferdam/agent/v1", Name: "loop", Title: "Cofferdam's own agent", Version: "1", Providers: []string{"anthropic", "openai"}, Place: "server", Resumes: true, Tools: []string{"own:shell", "own:read"}},
		},
		NeedsModel: func(agent string) (bool, error) {
			if agent != "claude" && agent != "command" && agent != "loop" {
				return false, invalid("memory.NeedsModel", "agent "+agent, "there is none of this name", "use claude, command or loop")
			}
			return agent != "command", nil
		},
		Hears: func(agent string) (bool, error) { return agent != "command", nil },
		Keepers: func(context.Context) []cofferdam.Keeper {
			return []cofferdam.Keeper{{Process: 7, Build: "0a", Boxes: 2, Draining: true}, {Process: 8, Build: "0b"}}
		},
		Presets: map[string][]string{"npm": {"packages.example.com"}}, PublicKey: m.signer.Public(),
	}
}

func (m *Memory) fault() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.Fail
}

// tell wakes those who watch. The caller holds mu.
func (m *Memory) tell() {
	close(m.changed)
	m.changed = make(chan struct{})
}

// Set changes a task, as the platform would.
func (m *Memory) Set(id cofferdam.TaskID, change func(*cofferdam.Task)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range m.tasks {
		if m.tasks[i].ID == id {
			change(&m.tasks[i])
			m.tasks[i].Updated = m.tasks[i].Updated.Add(time.Millisecond)
		}
	}
	m.tell()
}

// AddSession makes a session; Emit and Seal fill and close its trace.
func (m *Memory) AddSession(s cofferdam.Session) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sessions = append(m.sessions, s)
	m.tell()
}

// Emit appends an event to a session's trace.
func (m *Memory) Emit(id cofferdam.SessionID, e cofferdam.Event) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e.Session, e.Seq = id, uint64(len(m.events[id]))
	m.events[id] = append(m.events[id], e)
	m.tell()
}

// Seal ends a session's trace.
func (m *Memory) Seal(id cofferdam.SessionID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sealed[id] = true
	for i := range m.sessions {
		if m.sessions[i].ID == id {
			m.sessions[i].Sealed = time.Now()
		}
	}
	m.tell()
}

// Secret returns what was sealed under a name.
func (m *Memory) Secret(name string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.secrets[name]
}

func notFound(noun, name string) error {
	return &cofferdam.Error{Op: "memory.Find", Kind: cofferdam.NotFound, Subject: noun + " " + name, Reason: "there is none", Hint: "cofferdam " + noun + " list"}
}

// Create implements Tasks.
func (m *Memory) Create(_ context.Context, o task.Order) (cofferdam.Task, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.Fail != nil {
		return cofferdam.Task{}, m.Fail
	}
	for _, t := range m.tasks {
		if o.Request.Key != "" && t.Request.Key == o.Request.Key {
			return t, nil
		}
	}
	n := int64(len(m.tasks) + 1)
	now := time.Now().UTC()
	t := cofferdam.Task{
		Schema: "cofferdam/task/v1", ID: cofferdam.TaskID(cofferdam.NewID("t")), Number: n, Scope: o.Scope, Request: o.Request, Repo: o.Repo.ID,
		State: cofferdam.Queued, Attempt: 1, Branch: task.Branch(n, 1), Base: o.Repo.Base, By: o.By, Created: now, Updated: now,
	}
	m.tasks = append(m.tasks, t)
	m.tell()
	return t, nil
}

// Get implements Tasks.
func (m *Memory) Get(_ context.Context, _ cofferdam.Scope, name string) (cofferdam.Task, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.Fail != nil {
		return cofferdam.Task{}, m.Fail
	}
	i := slices.IndexFunc(m.tasks, func(t cofferdam.Task) bool { return t.Short() == name })
	if i < 0 && len(name) >= 8 {
		i = slices.IndexFunc(m.tasks, func(t cofferdam.Task) bool { return strings.HasPrefix(string(t.ID), name) })
	}
	if i >= 0 {
		return m.tasks[i], nil
	}
	return cofferdam.Task{}, notFound("task", name)
}

// List implements Tasks.
func (m *Memory) List(_ context.Context, _ cofferdam.Scope, f task.Filter) ([]cofferdam.Task, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []cofferdam.Task
	for _, t := range slices.Backward(m.tasks) {
		if (len(f.States) == 0 || slices.Contains(f.States, t.State)) && (f.Repo == "" || f.Repo == t.Repo) && (f.Before == 0 || t.Number < f.Before) && (f.Limit == 0 || len(out) < f.Limit) {
			out = append(out, t)
		}
	}
	return out, m.Fail
}

func (m *Memory) move(ctx context.Context, name string, change func(*cofferdam.Task) error) (cofferdam.Task, error) {
	t, err := m.Get(ctx, cofferdam.Scope{}, name)
	if err != nil {
		return t, err
	}
	if err := change(&t); err != nil {
		return t, err
	}
	m.Set(t.ID, func(now *cofferdam.Task) { *now = t })
	return t, nil
}

func conflict(t cofferdam.Task) error {
	return &cofferdam.Error{Op: "memory.Move", Kind: cofferdam.Conflict, Subject: t.Short(), Reason: fmt.Sprintf("is %s", t.State)}
}

// Cancel implements Tasks.
func (m *Memory) Cancel(ctx context.Context, _ cofferdam.Scope, by cofferdam.Principal, name string) (cofferdam.Task, error) {
	return m.move(ctx, name, func(t *cofferdam.Task) error {
		if t.State.Ended() {
			return conflict(*t)
		}
		t.State, t.Reason, t.Comment = cofferdam.Cancelled, "cancelled", "cancelled by "+by.Name
		return nil
	})
}

// Retry implements Tasks.
func (m *Memory) Retry(ctx context.Context, _ cofferdam.Scope, _ cofferdam.Principal, name string, limits *cofferdam.Budget) (cofferdam.Task, error) {
	return m.move(ctx, name, func(t *cofferdam.Task) error {
		if !t.State.Ended() || t.State == cofferdam.Done {
			return conflict(*t)
		}
		if limits != nil {
			t.Raised = limits
		}
		t.Attempt, t.State, t.Branch = t.Attempt+1, cofferdam.Queued, task.Branch(t.Number, t.Attempt+1)
		return nil
	})
}

// Reject implements Tasks.
func (m *Memory) Reject(ctx context.Context, _ cofferdam.Scope, by cofferdam.Principal, name string, r cofferdam.RejectRequest, _ string) (cofferdam.Task, error) {
	return m.move(ctx, name, func(t *cofferdam.Task) error {
		if t.State != cofferdam.InReview || t.Head != r.Commit {
			return conflict(*t)
		}
		t.State, t.Reason, t.Comment = cofferdam.Blocked, "rejected", "rejected by "+by.Name+": "+r.Reason
		return nil
	})
}

// Send implements Tasks.
func (m *Memory) Send(ctx context.Context, _ cofferdam.Scope, by cofferdam.Principal, name, text string) (cofferdam.TaskMessage, error) {
	t, err := m.Get(ctx, cofferdam.Scope{}, name)
	if err != nil {
		return cofferdam.TaskMessage{}, err
	}
	if AtRest(t.State) && t.State != cofferdam.Waiting {
		return cofferdam.TaskMessage{}, conflict(t)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.messages++
	return cofferdam.TaskMessage{Schema: "cofferdam/task-message/v1", Task: t.ID, Number: m.messages, Text: text, By: by, Time: time.Now().UTC(), While: t.State}, m.Fail
}

// RequestLand implements Tasks.
func (m *Memory) RequestLand(ctx context.Context, _ cofferdam.Scope, _ cofferdam.Principal, name string, commit cofferdam.Commit) (cofferdam.Task, error) {
	return m.move(ctx, name, func(t *cofferdam.Task) error {
		if t.State != cofferdam.InReview || commit != "" && commit != t.Head {
			return conflict(*t)
		}
		m.mu.Lock()
		_, ok := m.approved[t.ID]
		m.mu.Unlock()
		if !ok {
			return &cofferdam.Error{Op: "memory.Land", Kind: cofferdam.AwaitsPerson, Subject: t.Short(), Reason: "no person has approved its commit", Hint: "cofferdam merge approve " + t.Short()}
		}
		if m.Landing {
			t.State, t.Landed = cofferdam.Done, t.Head
		}
		return nil
	})
}

// Watch implements Tasks.
func (m *Memory) Watch(ctx context.Context, id cofferdam.TaskID, see func(cofferdam.Task) error) error {
	var last cofferdam.Task
	for {
		m.mu.Lock()
		changed := m.changed
		i := slices.IndexFunc(m.tasks, func(t cofferdam.Task) bool { return t.ID == id })
		if i < 0 {
			m.mu.Unlock()
			return notFound("task", string(id))
		}
		t := m.tasks[i]
		m.mu.Unlock()
		if !t.Updated.Equal(last.Updated) || last.ID == "" {
			last = t
			if err := see(t); err != nil {
				return err
			}
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Ensure and Wake implement Flow: nothing runs here.
func (m *Memory) Ensure(context.Context, cofferdam.Task) error { return nil }

// Wake implements Flow.
func (m *Memory) Wake(context.Context, cofferdam.Task) error { return nil }

// View implements Merges.
func (m *Memory) View(_ context.Context, t cofferdam.Task) (cofferdam.Change, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := m.Change
	c.Schema, c.Task = "cofferdam/merge/v1", t
	if a, ok := m.approved[t.ID]; ok && a.Commit == t.Head {
		c.Approval, c.Approvals = &a, []cofferdam.Approval{a}
	}
	return c, m.Fail
}

// Approve implements Merges.
func (m *Memory) Approve(_ context.Context, t cofferdam.Task, r cofferdam.ApproveRequest, by cofferdam.Principal, _ string) (cofferdam.Approval, error) {
	commit := r.Commit
	m.mu.Lock()
	defer m.mu.Unlock()
	if t.State != cofferdam.InReview || commit != t.Head {
		return cofferdam.Approval{}, conflict(t)
	}
	a := cofferdam.Approval{Commit: commit, By: by, Time: time.Now().UTC()}
	m.approved[t.ID] = a
	return a, m.Fail
}

// ReceiptFor implements Receipts.
func (m *Memory) ReceiptFor(_ context.Context, t cofferdam.TaskID, commit cofferdam.Commit) (task.Receipt, error) {
	return task.Receipt{ID: "c-test", Task: t, Commit: commit, Attempt: 1, Note: []byte("cofferdam receipt v1\n{}\n")}, m.fault()
}

// ReceiptsOf implements Receipts.
func (m *Memory) ReceiptsOf(context.Context, cofferdam.TaskID) ([]task.Receipt, error) {
	return nil, m.fault()
}

// Events implements Trace.
func (m *Memory) Events(_ context.Context, id cofferdam.SessionID, from uint64, limit int) ([]cofferdam.Event, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := m.events[id]
	if from > uint64(len(all)) {
		return nil, m.Fail
	}
	all = all[from:]
	return slices.Clone(all[:min(limit, len(all))]), m.Fail
}

// Follow implements Trace.
func (m *Memory) Follow(ctx context.Context, id cofferdam.SessionID, from uint64, see func(cofferdam.Event) error) error {
	for {
		m.mu.Lock()
		changed, sealed := m.changed, m.sealed[id]
		var fresh []cofferdam.Event
		if from < uint64(len(m.events[id])) {
			fresh = slices.Clone(m.events[id][from:])
		}
		m.mu.Unlock()
		for _, e := range fresh {
			if err := see(e); err != nil {
				return err
			}
			from = e.Seq + 1
		}
		if sealed {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Export implements Trace; what it writes is no evidence.
func (m *Memory) Export(_ context.Context, w io.Writer, ids []cofferdam.SessionID, t cofferdam.TaskID, _ Texts, _ ...[]byte) error {
	if err := m.fault(); err != nil {
		return err
	}
	return json.NewEncoder(w).Encode(map[string]any{"schema": "memory", "task": t, "sessions": ids})
}
