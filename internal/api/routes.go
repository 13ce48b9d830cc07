package api

import (
	"fmt"
	"io"
	"net/url"
	"reflect"
	"slices"
	"time"

	"cofferdam"
	"cofferdam/internal/doctor"
	"cofferdam/task"
)

// Bodies of requests that are not words of their own.
type (
	landBody struct {
		Commit cofferdam.Commit `json:"commit,omitempty"` // empty: the approved one
	}
	retryBody struct {
		Budget *cofferdam.Budget `json:"budget,omitempty"` // in the place of the limits it has; zero fields leave them
	}
	messageBody struct {
		Text string `json:"text"`
	}
)

// Key is the public key that checks receipts and exports.
type Key struct {
	Schema string `json:"schema"` // cofferdam/key/v1
	Key    string `json:"key"`
}

var (
	limitParam = Param{"limit", "integer", "at most so many items"}
	fromParam  = Param{"from", "integer", "first sequence number"}
	taskParam  = Param{"task", "string", "only those of this task"}
)

func fresh(zero any) any { return reflect.New(reflect.TypeOf(zero)).Interface() }

// Routes lists everything the API serves.
func Routes() []Route {
	return slices.Concat(serverRoutes(), taskRoutes(), thingRoutes(), environmentRoutes(), sandboxRoutes(), workspaceRoutes(), mergeRoutes(), evidenceRoutes(), approvalRoutes(), policyRoutes(), identityRoutes(), passkeyRoutes())
}

func serverRoutes() []Route {
	return []Route{
		{Method: "GET", Path: "/v1/openapi.json", ID: "openapi", Doc: "this description", Raw: "application/json", call: func(c *call) (any, error) {
			c.begin("application/json")
			_, err := c.w.Write(c.s.openapi)
			return nil, err
		}},
		{Method: "GET", Path: "/v1/status", ID: "status", Doc: "what runs and what waits for a person", Reply: cofferdam.Status{}, call: func(c *call) (any, error) { return c.svc.Status(c.ctx) }},
		{Method: "GET", Path: "/v1/doctor", ID: "doctor", Doc: "the host checks, as the server sees them", Reply: doctor.Report{}, call: func(c *call) (any, error) { return c.svc.Examine(c.ctx) }},
	}
}

func taskRoutes() []Route {
	return []Route{
		{Method: "POST", Path: "/v1/tasks", ID: "createTask", Doc: "give a task; the Idempotency-Key header makes repeating it safe", Body: cofferdam.TaskRequest{}, Reply: cofferdam.Task{}, Created: true, call: createTask},
		{Method: "GET", Path: "/v1/tasks", ID: "listTasks", Doc: "tasks, newest first", Reply: cofferdam.Task{}, List: "cofferdam/task-list/v1", Query: []Param{
			limitParam, {"state", "string", "only those in this state"}, {"before", "integer", "only numbers below this one"}, {"repo", "string", "only those of this repository"},
		}, call: listTasks},
		{Method: "GET", Path: "/v1/tasks/{name}", ID: "viewTask", Doc: "one task, by id, unique prefix or t-N", Reply: cofferdam.Task{}, call: func(c *call) (any, error) { return c.svc.Task(c.ctx, c.name) }},
		{Method: "GET", Path: "/v1/tasks/{name}/wait", ID: "waitTask", Doc: "the task once it is at rest, or in the state, or as it is after timeout seconds", Reply: cofferdam.Task{}, Query: []Param{
			{"timeout", "integer", "seconds, at most 600"}, {"state", "string", "wait for this state, or the task's end"},
		}, call: waitTask},
		{Method: "GET", Path: "/v1/tasks/{name}/follow", ID: "followTask", Doc: "the task at every change and the events of its sessions, until it is at rest", Reply: cofferdam.Progress{}, Stream: true, call: func(c *call) (any, error) {
			return nil, c.stream(func(send func(any) error) error {
				return c.svc.FollowTask(c.ctx, c.name, func(p cofferdam.Progress) error { return send(p) })
			})
		}},
		{Method: "POST", Path: "/v1/tasks/{name}/cancel", ID: "cancelTask", Doc: "end a task now", Reply: cofferdam.Task{}, call: func(c *call) (any, error) { return c.svc.CancelTask(c.ctx, c.name) }},
		{Method: "POST", Path: "/v1/tasks/{name}/messages", ID: "sendTask", Doc: "tell a task something while it runs; its agent hears it after the tool call it is in", Body: messageBody{}, Reply: cofferdam.TaskMessage{}, Created: true, call: func(c *call) (any, error) {
			return c.svc.SendTask(c.ctx, c.name, c.body.(*messageBody).Text)
		}},
		{Method: "POST", Path: "/v1/tasks/{name}/retry", ID: "retryTask", Doc: "a new attempt", Body: retryBody{}, Reply: cofferdam.Task{}, Query: []Param{{"resume", "string", "true: it goes on in the workspace of the one before"}}, call: func(c *call) (any, error) {
			resume, err := flag(c.query, "resume")
			if err != nil {
				return nil, err
			}
			return c.svc.RetryTask(c.ctx, c.name, resume, c.body.(*retryBody).Budget)
		}},
	}
}

// stream begins with the first line, so that an error before it is an ordinary
// answer with its status.
func (c *call) stream(run func(send func(any) error) error) error {
	err := run(func(v any) error {
		if err := c.stands(); err != nil {
			return err
		}
		if !c.sent {
			c.begin(ndjson)
		}
		return c.line(v)
	})
	if err == nil && !c.sent {
		c.begin(ndjson)
	}
	return err
}

func createTask(c *call) (any, error) {
	r := *c.body.(*cofferdam.TaskRequest)
	if c.key != "" {
		if r.Key != "" && r.Key != c.key {
			return nil, invalid("Idempotency-Key", "header and body name different keys", "give it once")
		}
		r.Key = c.key
	}
	return c.svc.CreateTask(c.ctx, r)
}

func waitTask(c *call) (any, error) {
	state, err := stateIn(c.query)
	if err != nil {
		return nil, err
	}
	limit := time.Duration(min(number(c.query, "timeout"), uint64(maxWait/time.Second))) * time.Second
	return c.svc.WaitTask(c.ctx, c.name, state, limit)
}

// stateIn reads the parameter of that name; "" if it was not given.
func stateIn(q url.Values) (cofferdam.TaskState, error) {
	state := cofferdam.TaskState(q.Get("state"))
	if state != "" && !slices.Contains(stateNames(), state) {
		return "", invalid("state", fmt.Sprintf("%q is none", visible(string(state))), "one of queued, preparing, running, verifying, waiting, in review, done, nothing to do, blocked, failed, timed out, cancelled")
	}
	return state, nil
}

func listTasks(c *call) (any, error) {
	f := task.Filter{Limit: int(min(number(c.query, "limit"), task.MaxList)), Before: int64(number(c.query, "before"))} // 63 bits by query
	switch state, err := stateIn(c.query); {
	case err != nil:
		return nil, err
	case state != "":
		f.States = []cofferdam.TaskState{state}
	}
	if name := c.query.Get("repo"); name != "" {
		repo, err := c.svc.Repo(c.ctx, name)
		if err != nil {
			return nil, err
		}
		f.Repo = repo.ID
	}
	tasks, err := c.svc.ListTasks(c.ctx, f)
	return listOf("cofferdam/task-list/v1", tasks, err)
}

// thingRoutes are the nouns that tasks name: repo, model and agent.
func thingRoutes() []Route {
	return []Route{
		{Method: "POST", Path: "/v1/repos", ID: "addRepo", Doc: "register a repository", Body: cofferdam.RepoRequest{}, Reply: cofferdam.Repo{}, Created: true, call: func(c *call) (any, error) {
			return c.svc.AddRepo(c.ctx, *c.body.(*cofferdam.RepoRequest))
		}},
		{Method: "GET", Path: "/v1/repos", ID: "listRepos", Doc: "repositories", Reply: cofferdam.Repo{}, List: "cofferdam/repo-list/v1", call: func(c *call) (any, error) {
			all, err := c.svc.ListRepos(c.ctx)
			return listOf("cofferdam/repo-list/v1", all, err)
		}},
		{Method: "GET", Path: "/v1/repos/{name}", ID: "viewRepo", Doc: "one repository", Reply: cofferdam.Repo{}, call: func(c *call) (any, error) { return c.svc.Repo(c.ctx, c.name) }},
		{Method: "DELETE", Path: "/v1/repos/{name}", ID: "removeRepo", Doc: "forget a repository; its upstream is not touched", call: func(c *call) (any, error) { return nil, c.svc.RemoveRepo(c.ctx, c.name) }},
		{Method: "POST", Path: "/v1/models", ID: "addModel", Doc: "register a model provider with its key", Body: cofferdam.ModelRequest{}, Reply: cofferdam.Model{}, Created: true, call: func(c *call) (any, error) {
			return c.svc.AddModel(c.ctx, *c.body.(*cofferdam.ModelRequest))
		}},
		{Method: "GET", Path: "/v1/models", ID: "listModels", Doc: "model providers", Reply: cofferdam.Model{}, List: "cofferdam/model-list/v1", call: func(c *call) (any, error) {
			all, err := c.svc.ListModels(c.ctx)
			return listOf("cofferdam/model-list/v1", all, err)
		}},
		{Method: "GET", Path: "/v1/models/{name}", ID: "viewModel", Doc: "one model provider", Reply: cofferdam.Model{}, call: func(c *call) (any, error) { return c.svc.Model(c.ctx, c.name) }},
		{Method: "GET", Path: "/v1/agents", ID: "listAgents", Doc: "agents that tasks may name", Reply: cofferdam.Adapter{}, List: "cofferdam/agent-list/v1", call: func(c *call) (any, error) {
			all, err := c.svc.ListAgents(c.ctx)
			return listOf("cofferdam/agent-list/v1", all, err)
		}},
		{Method: "GET", Path: "/v1/agents/{name}", ID: "viewAgent", Doc: "one agent, how it is installed and what it would contact", Reply: cofferdam.Adapter{}, call: func(c *call) (any, error) { return c.svc.Agent(c.ctx, c.name) }},
		{Method: "DELETE", Path: "/v1/models/{name}", ID: "removeModel", Doc: "forget a model provider and its key", call: func(c *call) (any, error) { return nil, c.svc.RemoveModel(c.ctx, c.name) }},
	}
}

func mergeRoutes() []Route {
	return []Route{
		{Method: "GET", Path: "/v1/merges", ID: "listMerges", Doc: "tasks in review or merged", Reply: cofferdam.Task{}, List: "cofferdam/task-list/v1", call: func(c *call) (any, error) {
			tasks, err := c.svc.ListMerges(c.ctx)
			return listOf("cofferdam/task-list/v1", tasks, err)
		}},
		{Method: "GET", Path: "/v1/merges/{name}", ID: "viewMerge", Doc: "what a task wants merged", Reply: cofferdam.Change{}, call: func(c *call) (any, error) { return c.svc.ViewMerge(c.ctx, c.name) }},
		{Method: "POST", Path: "/v1/merges/{name}/approve", ID: "approveMerge", Doc: "a person's word for exactly this commit, with a fresh proof that it is theirs", Body: cofferdam.ApproveRequest{}, Reply: cofferdam.Approval{}, call: func(c *call) (any, error) {
			return c.svc.ApproveMerge(c.ctx, c.name, *c.body.(*cofferdam.ApproveRequest))
		}},
		{Method: "POST", Path: "/v1/merges/{name}/reject", ID: "rejectMerge", Doc: "a person does not want exactly this commit, with a fresh proof that it is theirs", Body: cofferdam.RejectRequest{}, Reply: cofferdam.Task{}, call: func(c *call) (any, error) {
			return c.svc.RejectMerge(c.ctx, c.name, *c.body.(*cofferdam.RejectRequest))
		}},
		{Method: "POST", Path: "/v1/merges/{name}/land", ID: "landMerge", Doc: "land the approved commit and wait for it", Body: landBody{}, Reply: cofferdam.Task{}, call: func(c *call) (any, error) {
			return c.svc.LandMerge(c.ctx, c.name, c.body.(*landBody).Commit)
		}},
	}
}

func evidenceRoutes() []Route {
	return []Route{
		{Method: "GET", Path: "/v1/sessions", ID: "listSessions", Doc: "sessions, newest first", Reply: cofferdam.Session{}, List: "cofferdam/session-list/v1", Query: []Param{taskParam, limitParam}, call: func(c *call) (any, error) {
			all, err := c.svc.ListSessions(c.ctx, c.query.Get("task"), int(min(number(c.query, "limit"), 1<<20)))
			return listOf("cofferdam/session-list/v1", all, err)
		}},
		{Method: "GET", Path: "/v1/sessions/{name}", ID: "viewSession", Doc: "one session", Reply: cofferdam.Session{}, call: func(c *call) (any, error) { return c.svc.Session(c.ctx, c.name) }},
		{Method: "GET", Path: "/v1/traces/{name}", ID: "viewTrace", Doc: "events of a session", Reply: cofferdam.Event{}, List: "cofferdam/event-list/v1", Query: []Param{fromParam, limitParam}, call: func(c *call) (any, error) {
			all, err := c.svc.Events(c.ctx, c.name, number(c.query, "from"), int(min(number(c.query, "limit"), 1<<20)))
			return listOf("cofferdam/event-list/v1", all, err)
		}},
		{Method: "GET", Path: "/v1/traces/{name}/follow", ID: "followTrace", Doc: "events of a session until it is sealed", Reply: cofferdam.Event{}, Stream: true, Query: []Param{fromParam}, call: func(c *call) (any, error) {
			return nil, c.stream(func(send func(any) error) error {
				return c.svc.FollowEvents(c.ctx, c.name, number(c.query, "from"), func(e cofferdam.Event) error { return send(e) })
			})
		}},
		{Method: "GET", Path: "/v1/traces/{name}/export", ID: "exportTrace", Doc: "evidence of a task or session, for cofferdam proof verify", Raw: "application/jsonl", call: func(c *call) (any, error) {
			write, err := c.svc.Export(c.ctx, c.name)
			if err != nil {
				return nil, err
			}
			return nil, write(lazyWriter{c, "application/jsonl"})
		}},
		{Method: "GET", Path: "/v1/proofs/{name}", ID: "viewProof", Doc: "signed receipt for a task's commit", Reply: task.Receipt{}, call: func(c *call) (any, error) { return c.svc.Proof(c.ctx, c.name) }},
		{Method: "GET", Path: "/v1/proofs/{name}/export", ID: "exportProof", Doc: "the signed text of the receipt", Raw: "text/plain; charset=utf-8", call: func(c *call) (any, error) {
			receipt, err := c.svc.Proof(c.ctx, c.name)
			if err != nil {
				return nil, err
			}
			_, err = lazyWriter{c, "text/plain; charset=utf-8"}.Write(receipt.Note)
			return nil, err
		}},
		{Method: "GET", Path: "/v1/key", ID: "viewKey", Doc: "public key that checks receipts and exports", Reply: Key{}, call: func(c *call) (any, error) {
			key, err := c.svc.VerifierKey(c.ctx)
			return Key{Schema: "cofferdam/key/v1", Key: key}, err
		}},
	}
}

// lazyWriter begins the answer with its first byte, so that an error before it
// is an ordinary answer.
type lazyWriter struct {
	c    *call
	kind string
}

func (l lazyWriter) Write(p []byte) (int, error) {
	if err := l.c.stands(); err != nil {
		return 0, err
	}
	if !l.c.sent {
		l.c.begin(l.kind)
	}
	limitWrite(l.c.w)
	return l.c.w.Write(p)
}

var _ io.Writer = lazyWriter{}
