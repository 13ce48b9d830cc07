package client

import (
	"context"
	"io"
	"net/url"
	"strconv"
	"time"

	"cofferdam"
)

type list[T any] struct {
	Items []T `json:"items"`
}

// Receipt is the signed proof of one commit. Note is its signed text.
type Receipt struct {
	ID      cofferdam.ReceiptID   `json:"id"`
	Task    cofferdam.TaskID      `json:"task"`
	Attempt int                   `json:"attempt"`
	Commit  cofferdam.Commit      `json:"commit"`
	Report  cofferdam.CheckReport `json:"report"`
	Note    []byte                `json:"note"`
	Created time.Time             `json:"created"`
}

func get[T any](ctx context.Context, c *Client, path string) (v T, err error) {
	err = c.call(ctx, request{method: "GET", path: path}, &v)
	return v, err
}

func items[T any](ctx context.Context, c *Client, path string) ([]T, error) {
	l, err := get[list[T]](ctx, c, path)
	return l.Items, err
}

func post[T any](ctx context.Context, c *Client, path string, body any, key string) (v T, err error) {
	err = c.call(ctx, request{method: "POST", path: path, body: body, key: key}, &v)
	return v, err
}

func at(noun, name string) string { return "/v1/" + noun + "/" + url.PathEscape(name) }

// Status returns what runs and what waits for a person.
func (c *Client) Status(ctx context.Context) (cofferdam.Status, error) {
	return get[cofferdam.Status](ctx, c, "/v1/status")
}

// CreateTask gives a task. Without a Key of its own the request gets a random
// one, so that a broken connection does not make two.
func (c *Client) CreateTask(ctx context.Context, r cofferdam.TaskRequest) (cofferdam.Task, error) {
	if r.Key == "" {
		r.Key = cofferdam.NewID("k")
	}
	if r.Checks == nil {
		r.Checks = []cofferdam.Check{}
	}
	return post[cofferdam.Task](ctx, c, "/v1/tasks", r, r.Key)
}

// TaskFilter narrows a list of tasks; zero fields do not.
type TaskFilter struct {
	State  cofferdam.TaskState
	Repo   string
	Before int64 // only numbers below this one
	Limit  int
}

// Tasks lists tasks, newest first.
func (c *Client) Tasks(ctx context.Context, f TaskFilter) ([]cofferdam.Task, error) {
	q := url.Values{}
	if f.State != "" {
		q.Set("state", string(f.State))
	}
	if f.Repo != "" {
		q.Set("repo", f.Repo)
	}
	if f.Before > 0 {
		q.Set("before", strconv.FormatInt(f.Before, 10))
	}
	if f.Limit > 0 {
		q.Set("limit", strconv.Itoa(f.Limit))
	}
	return items[cofferdam.Task](ctx, c, "/v1/tasks?"+q.Encode())
}

// Task finds a task by id, unique prefix or t-N.
func (c *Client) Task(ctx context.Context, name string) (cofferdam.Task, error) {
	return get[cofferdam.Task](ctx, c, at("tasks", name))
}

// WaitTask returns the task once it is in the state or has ended, for state ""
// once it is at rest, or as it is after limit.
func (c *Client) WaitTask(ctx context.Context, name string, state cofferdam.TaskState, limit time.Duration) (cofferdam.Task, error) {
	q := url.Values{"timeout": {strconv.Itoa(int(limit / time.Second))}}
	if state != "" {
		q.Set("state", string(state))
	}
	return get[cofferdam.Task](ctx, c, at("tasks", name)+"/wait?"+q.Encode())
}

// FollowTask calls see at every change and event until the task is at rest.
func (c *Client) FollowTask(ctx context.Context, name string, see func(cofferdam.Progress) error) error {
	return lines(ctx, c, at("tasks", name)+"/follow", see)
}

// CancelTask ends a task now.
func (c *Client) CancelTask(ctx context.Context, name string) (cofferdam.Task, error) {
	return post[cofferdam.Task](ctx, c, at("tasks", name)+"/cancel", nil, "")
}

// SendTask tells a task something while it runs. It is sent once: whether a
// broken connection had it arrive is seen in the trace.
func (c *Client) SendTask(ctx context.Context, name, text string) (cofferdam.TaskMessage, error) {
	return post[cofferdam.TaskMessage](ctx, c, at("tasks", name)+"/messages", map[string]any{"text": text}, "")
}

// RetryTask starts a new attempt. limits take the place of those that the task has;
// nil leaves them.
func (c *Client) RetryTask(ctx context.Context, name string, limits *cofferdam.Budget) (cofferdam.Task, error) {
	return post[cofferdam.Task](ctx, c, at("tasks", name)+"/retry", retry{limits}, "")
}

type retry struct {
	Budget *cofferdam.Budget `json:"budget,omitempty"`
}

// AddRepo registers a repository.
func (c *Client) AddRepo(ctx context.Context, r cofferdam.RepoRequest) (cofferdam.Repo, error) {
	return post[cofferdam.Repo](ctx, c, "/v1/repos", r, "")
}

// Repos lists repositories.
func (c *Client) Repos(ctx context.Context) ([]cofferdam.Repo, error) {
	return items[cofferdam.Repo](ctx, c, "/v1/repos")
}

// Repo finds a repository by name or id.
func (c *Client) Repo(ctx context.Context, name string) (cofferdam.Repo, error) {
	return get[cofferdam.Repo](ctx, c, at("repos", name))
}

// RemoveRepo forgets a repository.
func (c *Client) RemoveRepo(ctx context.Context, name string) error {
	return c.call(ctx, request{method: "DELETE", path: at("repos", name)}, nil)
}

// AddModel registers a model provider with its key.
func (c *Client) AddModel(ctx context.Context, r cofferdam.ModelRequest) (cofferdam.Model, error) {
	return post[cofferdam.Model](ctx, c, "/v1/models", r, "")
}

// Models lists model providers.
func (c *Client) Models(ctx context.Context) ([]cofferdam.Model, error) {
	return items[cofferdam.Model](ctx, c, "/v1/models")
}

// Model finds a model provider by name or id.
func (c *Client) Model(ctx context.Context, name string) (cofferdam.Model, error) {
	return get[cofferdam.Model](ctx, c, at("models", name))
}

// Agents lists the agents that tasks may name.
func (c *Client) Agents(ctx context.Context) ([]cofferdam.Adapter, error) {
	return items[cofferdam.Adapter](ctx, c, "/v1/agents")
}

// Agent finds an agent by name.
func (c *Client) Agent(ctx context.Context, name string) (cofferdam.Adapter, error) {
	return get[cofferdam.Adapter](ctx, c, at("agents", name))
}

// RemoveModel forgets a model provider and its key.
func (c *Client) RemoveModel(ctx context.Context, name string) error {
	return c.call(ctx, request{method: "DELETE", path: at("models", name)}, nil)
}

// Merges lists tasks in review or merged.
func (c *Client) Merges(ctx context.Context) ([]cofferdam.Task, error) {
	return items[cofferdam.Task](ctx, c, "/v1/merges")
}

// Merge returns what a task wants merged.
func (c *Client) Merge(ctx context.Context, name string) (cofferdam.Change, error) {
	return get[cofferdam.Change](ctx, c, at("merges", name))
}

// ApproveMerge gives a person's word for exactly this commit.
func (c *Client) ApproveMerge(ctx context.Context, name string, r cofferdam.ApproveRequest) (cofferdam.Approval, error) {
	return post[cofferdam.Approval](ctx, c, at("merges", name)+"/approve", r, "")
}

// RejectMerge says that exactly this commit is not wanted.
func (c *Client) RejectMerge(ctx context.Context, name string, r cofferdam.RejectRequest) (cofferdam.Task, error) {
	return post[cofferdam.Task](ctx, c, at("merges", name)+"/reject", r, "")
}

// LandMerge lands the approved commit and waits for it; "" takes the task's own.
func (c *Client) LandMerge(ctx context.Context, name string, commit cofferdam.Commit) (cofferdam.Task, error) {
	body := map[string]any{}
	if commit != "" {
		body["commit"] = commit
	}
	return post[cofferdam.Task](ctx, c, at("merges", name)+"/land", body, "")
}

// Sessions lists sessions, newest first; of one task if it is named.
func (c *Client) Sessions(ctx context.Context, task string, limit int) ([]cofferdam.Session, error) {
	q := url.Values{}
	if task != "" {
		q.Set("task", task)
	}
	if limit > 0 {
		q.Set("limit", strconv.Itoa(limit))
	}
	return items[cofferdam.Session](ctx, c, "/v1/sessions?"+q.Encode())
}

// Session finds a session by id or unique prefix.
func (c *Client) Session(ctx context.Context, name string) (cofferdam.Session, error) {
	return get[cofferdam.Session](ctx, c, at("sessions", name))
}

// Events returns events of a session from a sequence number on.
func (c *Client) Events(ctx context.Context, name string, from uint64, limit int) ([]cofferdam.Event, error) {
	q := url.Values{"from": {strconv.FormatUint(from, 10)}}
	if limit > 0 {
		q.Set("limit", strconv.Itoa(limit))
	}
	return items[cofferdam.Event](ctx, c, at("traces", name)+"?"+q.Encode())
}

// FollowTrace calls see with each event of a session until it is sealed.
func (c *Client) FollowTrace(ctx context.Context, name string, from uint64, see func(cofferdam.Event) error) error {
	return lines(ctx, c, at("traces", name)+"/follow?from="+strconv.FormatUint(from, 10), see)
}

// Export writes the evidence of a task or session.
func (c *Client) Export(ctx context.Context, name string, w io.Writer) error {
	return c.copyTo(ctx, at("traces", name)+"/export", w)
}

// Proof returns the signed receipt for a task's commit.
func (c *Client) Proof(ctx context.Context, name string) (Receipt, error) {
	return get[Receipt](ctx, c, at("proofs", name))
}

// ExportProof writes the signed text of the receipt.
func (c *Client) ExportProof(ctx context.Context, name string, w io.Writer) error {
	return c.copyTo(ctx, at("proofs", name)+"/export", w)
}

// Key returns the public key that checks receipts and exports.
func (c *Client) Key(ctx context.Context) (string, error) {
	k, err := get[struct{ Key string }](ctx, c, "/v1/key")
	return k.Key, err
}
