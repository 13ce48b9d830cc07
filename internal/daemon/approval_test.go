package daemon

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"cofferdam"
	"cofferdam/approval"
	"cofferdam/gateway"
	"cofferdam/gateway/gatewaytest"
	"cofferdam/internal/store"
	"cofferdam/policy"
)

// counter is a desk over a store in a file, and a clock that a test moves.
type counter struct {
	t     *testing.T
	path  string
	store *store.Store
	desk  *approval.Desk
	task  cofferdam.Task
	told  chan cofferdam.Question
	clock atomic.Int64 // nanoseconds since 1970
}

func newCounter(t *testing.T) *counter {
	t.Helper()
	c := &counter{t: t, path: filepath.Join(t.TempDir(), "cofferdam.db"), told: make(chan cofferdam.Question, 1000)}
	c.clock.Store(time.Now().UnixNano())
	c.start()
	t.Cleanup(func() {
		if err := c.store.Close(); err != nil {
			t.Error(err)
		}
	})
	scope, err := c.store.DefaultScope(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	r := cofferdam.Repo{Schema: "cofferdam/repo/v1", ID: cofferdam.RepoID(cofferdam.NewID("r")), Scope: scope, Name: "first", Upstream: "/srv/first.git", Base: "refs/heads/main", Created: c.now()}
	if err := c.store.AddRepo(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	c.task, _, err = c.store.CreateTask(t.Context(), cofferdam.Task{
		Schema: "cofferdam/task/v1", ID: cofferdam.TaskID(cofferdam.NewID("t")), Scope: scope, Repo: r.ID, State: cofferdam.Queued, Attempt: 1, Base: "refs/heads/main",
		Request: cofferdam.TaskRequest{Text: "x", Checks: []cofferdam.Check{{Command: "true"}}, Agent: "command"}, By: cofferdam.Principal{Kind: cofferdam.Person, Name: "ada"}, Created: c.now(), Updated: c.now(),
	}, func(cofferdam.Task) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func (c *counter) now() time.Time { return time.Unix(0, c.clock.Load()) }

func (c *counter) pass(d time.Duration) { c.clock.Add(int64(d)) }

// start opens the store and a desk over it, as a server that begins does.
func (c *counter) start() {
	c.t.Helper()
	var err error
	if c.store, err = store.Open(c.t.Context(), c.path); err != nil {
		c.t.Fatal(err)
	}
	c.desk, err = approval.New(approval.Options{Store: c.store, Record: new(gatewaytest.Recorder), Told: func(q cofferdam.Question) { c.told <- q }, Now: c.now})
	if err != nil {
		c.t.Fatal(err)
	}
	if err := c.desk.Sweep(c.t.Context()); err != nil {
		c.t.Fatal(err)
	}
}

func (c *counter) question(hash string) cofferdam.Question {
	return cofferdam.Question{
		Scope: c.task.Scope, Task: c.task.ID, Session: "s-1", Actor: cofferdam.Principal{Kind: cofferdam.Agent, Name: "x"}, Source: "egress", Action: policy.HTTP,
		Resource: "a.test", Hash: cofferdam.Digest(hash), Policy: "p-1", Rule: "ask-1", Needs: 1,
	}
}

type asked struct {
	q   cofferdam.Question
	err error
}

// ask asks in the background; the question is before people when it returns, unless
// it was refused.
func (c *counter) ask(ctx context.Context, q cofferdam.Question) (cofferdam.Question, chan asked) {
	done, out := make(chan asked, 1), make(chan asked, 1)
	go func() {
		q, err := c.desk.Ask(ctx, q)
		done <- asked{q, err}
	}()
	select {
	case q := <-c.told:
		go func() { out <- <-done }()
		return q, out
	case a := <-done:
		out <- a
		return a.q, out
	}
}

func (c *counter) say(q cofferdam.Question, name string, allow bool) error {
	_, err := c.desk.Answer(c.t.Context(), q.Scope, string(q.ID), q.Hash, cofferdam.Answer{By: cofferdam.Principal{Kind: cofferdam.Person, Name: name}, Allow: allow, Proof: "password"})
	if err == nil {
		<-c.told
	}
	return err
}

// TestQuestionsOverTheStore: the numbers of questions hold through the desk and the
// database that the server has.
func TestQuestionsOverTheStore(t *testing.T) {
	c := newCounter(t)
	q, done := c.ask(t.Context(), c.question("h-no"))
	if err := c.say(q, "ann", false); err != nil {
		t.Fatal(err)
	}
	if a := <-done; cofferdam.KindOf(a.err) != cofferdam.Denied {
		t.Errorf("a no: %v", a.err)
	}
	c.pass(approval.Quiet - time.Second)
	if _, done := c.ask(t.Context(), c.question("h-no")); cofferdam.KindOf((<-done).err) != cofferdam.Denied {
		t.Error("the same was asked again within a minute of a no")
	}
	c.pass(2 * time.Second)
	q, done = c.ask(t.Context(), c.question("h-no"))
	c.pass(approval.DefaultWait)
	if err := c.say(q, "ann", true); cofferdam.KindOf(err) != cofferdam.Conflict {
		t.Errorf("after its time: %v", err)
	}
	if err := c.desk.Void(t.Context(), "s-1", "p-2"); err != nil { // as when a policy is taken
		t.Fatal(err)
	}
	<-c.told
	if a := <-done; a.q.State != cofferdam.QuestionVoid {
		t.Errorf("under another policy: %+v", a.q)
	}
	two := c.question("h-two")
	two.Needs = 2
	q, done = c.ask(t.Context(), two)
	if err := errors.Join(c.say(q, "ann", true)); err != nil {
		t.Fatal(err)
	}
	if err := c.say(q, "ann", true); cofferdam.KindOf(err) != cofferdam.Conflict {
		t.Errorf("one person twice: %v", err)
	}
	if err := c.desk.Use(t.Context(), q.ID, q.Hash); cofferdam.KindOf(err) != cofferdam.Conflict {
		t.Errorf("used after one of two: %v", err)
	}
	if err := c.say(q, "bob", true); err != nil {
		t.Fatal(err)
	}
	if a := <-done; a.err != nil {
		t.Error(a.err)
	}
	if err := c.desk.Use(t.Context(), q.ID, "h-other"); cofferdam.KindOf(err) != cofferdam.Conflict {
		t.Errorf("used for something else: %v", err)
	}
	var used atomic.Int64
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if c.desk.Use(t.Context(), q.ID, q.Hash) == nil {
				used.Add(1)
			}
		})
	}
	all.Wait()
	if used.Load() != 1 {
		t.Errorf("used %d times", used.Load())
	}
	count := 3 // asked until now
	for round := range 4 {
		c.pass(time.Minute + time.Second)
		minute := 0
		for n := range approval.MaxMinute + 3 {
			ctx, leave := context.WithCancel(t.Context())
			q, done := c.ask(ctx, c.question(fmt.Sprint("h-", round, "-", n)))
			leave()
			if a := <-done; a.q.State == cofferdam.QuestionVoid {
				<-c.told
				minute++
			} else if cofferdam.KindOf(a.err) != cofferdam.Denied {
				t.Fatalf("%+v, %v", q, a.err)
			}
		}
		count += minute
		if minute > approval.MaxMinute || round < 2 && minute != approval.MaxMinute {
			t.Errorf("%d within a minute", minute)
		}
	}
	if count != approval.MaxTask {
		t.Errorf("%d were asked of one task", count)
	}
}

// TestAnswersPastTheEndOfAServer: what waited is void for the next server, whoever
// answers; an answer that had come and was not used lets nothing pass by itself; what
// it opened is open again, by the policy of then.
func TestAnswersPastTheEndOfAServer(t *testing.T) {
	c := newCounter(t)
	ctx, end := context.WithCancel(t.Context())
	q, waits := c.ask(ctx, c.question("h-1"))
	opens, done := c.ask(t.Context(), c.question("h-2"))
	if _, err := c.desk.Answer(t.Context(), opens.Scope, string(opens.ID), opens.Hash, cofferdam.Answer{
		By: cofferdam.Principal{Kind: cofferdam.Person, Name: "ann"}, Allow: true, Proof: "password", Bounds: &cofferdam.Bounds{Entry: "a.test", Seconds: 3600, Uses: 2, Bytes: 1000},
	}); err != nil {
		t.Fatal(err)
	}
	if a := <-done; a.err != nil {
		t.Fatal(a.err)
	}
	<-c.told
	if err := errors.Join(c.desk.UseOpening(t.Context(), opens.ID, 2), c.desk.TakeBytes(t.Context(), opens.ID, 400, 1000)); err != nil {
		t.Fatal(err)
	}
	if err := c.store.Close(); err != nil { // killed: nothing more of the first desk arrives
		t.Fatal(err)
	}
	end()
	<-waits
	c.start()
	if got := <-c.told; got.ID != q.ID || got.State != cofferdam.QuestionVoid {
		t.Errorf("what waited: %+v", got)
	}
	if err := c.say(q, "ann", true); cofferdam.KindOf(err) != cofferdam.Conflict {
		t.Errorf("answered for a server that is gone: %v", err)
	}
	list, err := c.store.Openings(t.Context(), c.task.ID)
	if err != nil || len(list) != 1 {
		t.Fatalf("%+v, %v", list, err)
	}
	g, ok, err := gateway.OpeningOf(list[0])
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	no, err := policy.ParseDocument(policy.ProjectName, []byte("[egress]\ndeny = [\"a.test\"]\n"), nil)
	if err != nil {
		t.Fatal(err)
	}
	pass := func(p policy.Grant) error {
		p.Openings, p.At = []policy.Opening{g}, c.now()
		caller, _, _ := gatewaytest.NewCaller(t, p)
		caller.Scope, caller.Task, caller.Ask = c.task.Scope, c.task.ID, c.desk
		carries := &gateway.Allowance{Ahead: 100}
		return gateway.Handle(t.Context(), caller, gateway.Request{
			Source: "egress", Kind: cofferdam.EventRequest, Resource: "GET a.test", Carries: carries,
			Query: policy.Query{Action: policy.HTTP, Host: "a.test", Port: 443, Method: "GET", Path: "/"},
		}, func(context.Context) (gateway.Outcome, error) {
			carries.Settle(100)
			return gateway.Outcome{}, nil
		})
	}
	if err := pass(policy.Grant{Project: &no}); cofferdam.KindOf(err) != cofferdam.Denied {
		t.Errorf("against a deny that came meanwhile: %v", err)
	}
	for i, want := range []bool{true, false} { // one of two acts is left, and 600 of 1000 bytes
		if err := pass(policy.Grant{}); (err == nil) != want {
			t.Errorf("act %d: %v", i+1, err)
		}
	}
	if list, err := c.store.Openings(t.Context(), c.task.ID); err != nil || len(list) != 0 {
		t.Errorf("what is used up is open for the next server: %+v, %v", list, err)
	}
}
