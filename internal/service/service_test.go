package service

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"cofferdam"
	"cofferdam/identity"
	"cofferdam/task"
)

var (
	scope = cofferdam.Scope{Organization: "o-1", Project: "p-1"}
	alice = cofferdam.Principal{Kind: cofferdam.Person, Name: "alice"}
)

// as acts for p, an owner if p is a person, and one who may look if not.
func as(p cofferdam.Principal) context.Context {
	c := identity.Caller{Principal: p, Member: "m", Organization: scope.Organization, Memberships: []identity.Membership{{Member: "m", Role: identity.Viewer}}}
	if p.IsPerson() {
		c.Memberships[0].Role = identity.Owner
	}
	return WithActing(context.Background(), Acting{Caller: c, Scope: scope})
}

func world(t *testing.T) (*Service, *Memory) {
	t.Helper()
	m := NewMemory()
	s := New(m.Options(scope))
	if _, err := s.AddRepo(as(alice), cofferdam.RepoRequest{Name: "shop", Upstream: "/srv/shop.git"}); err != nil {
		t.Fatal(err)
	}
	return s, m
}

// word is one for a commit, with a proof that holds.
func word(c cofferdam.Commit) cofferdam.ApproveRequest {
	return cofferdam.ApproveRequest{Commit: c, Proof: cofferdam.Proof{Kind: identity.Password, Password: MemoryPassword}}
}

// unwanted is one against a commit, with a proof that holds.
func unwanted(c cofferdam.Commit) cofferdam.RejectRequest {
	return cofferdam.RejectRequest{Commit: c, Proof: word(c).Proof}
}

func request() cofferdam.TaskRequest {
	return cofferdam.TaskRequest{Text: "fix it", Command: "true", Checks: []cofferdam.Check{{Command: "true"}}}
}

// Every verb that changes something, called by nobody, an agent and the platform.
func TestOnlyPersons(t *testing.T) {
	s, _ := world(t)
	verbs := map[string]func(context.Context) error{
		"create":  func(ctx context.Context) error { _, err := s.CreateTask(ctx, request()); return err },
		"cancel":  func(ctx context.Context) error { _, err := s.CancelTask(ctx, "t-1"); return err },
		"retry":   func(ctx context.Context) error { _, err := s.RetryTask(ctx, "t-1", false, nil); return err },
		"send":    func(ctx context.Context) error { _, err := s.SendTask(ctx, "t-1", "x"); return err },
		"approve": func(ctx context.Context) error { _, err := s.ApproveMerge(ctx, "t-1", word(commit('a'))); return err },
		"reject": func(ctx context.Context) error {
			_, err := s.RejectMerge(ctx, "t-1", unwanted(commit('a')))
			return err
		},
		"land":         func(ctx context.Context) error { _, err := s.LandMerge(ctx, "t-1", ""); return err },
		"add repo":     func(ctx context.Context) error { _, err := s.AddRepo(ctx, cofferdam.RepoRequest{}); return err },
		"remove repo":  func(ctx context.Context) error { return s.RemoveRepo(ctx, "shop") },
		"add model":    func(ctx context.Context) error { _, err := s.AddModel(ctx, cofferdam.ModelRequest{}); return err },
		"remove model": func(ctx context.Context) error { return s.RemoveModel(ctx, "x") },
	}
	for name, verb := range verbs {
		if err := verb(context.Background()); cofferdam.KindOf(err) != cofferdam.Unauthenticated {
			t.Errorf("%s by nobody: %v", name, err)
		}
		for _, kind := range []cofferdam.PrincipalKind{cofferdam.Agent, cofferdam.Platform, ""} {
			if err := verb(as(cofferdam.Principal{Kind: kind, Name: "x"})); cofferdam.KindOf(err) != cofferdam.Forbidden {
				t.Errorf("%s by %q: %v", name, kind, err)
			}
		}
		if err := verb(as(cofferdam.Principal{Kind: cofferdam.Person})); cofferdam.KindOf(err) != cofferdam.Unauthenticated {
			t.Errorf("%s by a person without a name: %v", name, err)
		}
	}
	reads := map[string]func(context.Context) error{
		"task": func(ctx context.Context) error { _, err := s.Task(ctx, "t-1"); return err },
		"list": func(ctx context.Context) error { _, err := s.ListTasks(ctx, task.Filter{}); return err },
		"wait": func(ctx context.Context) error { _, err := s.WaitTask(ctx, "t-1", "", 0); return err },
		"follow": func(ctx context.Context) error {
			return s.FollowTask(ctx, "t-1", func(cofferdam.Progress) error { return nil })
		},
		"repo": func(ctx context.Context) error { _, err := s.Repo(ctx, "shop"); return err }, "repos": func(ctx context.Context) error { _, err := s.ListRepos(ctx); return err },
		"agent": func(ctx context.Context) error { _, err := s.Agent(ctx, "loop"); return err }, "agents": func(ctx context.Context) error { _, err := s.ListAgents(ctx); return err },
		"model": func(ctx context.Context) error { _, err := s.Model(ctx, "x"); return err }, "models": func(ctx context.Context) error { _, err := s.ListModels(ctx); return err },
		"merge": func(ctx context.Context) error { _, err := s.ViewMerge(ctx, "t-1"); return err }, "merges": func(ctx context.Context) error { _, err := s.ListMerges(ctx); return err },
		"session": func(ctx context.Context) error { _, err := s.Session(ctx, "s-1"); return err }, "sessions": func(ctx context.Context) error { _, err := s.ListSessions(ctx, "", 0); return err },
		"events": func(ctx context.Context) error { _, err := s.Events(ctx, "s-1", 0, 0); return err }, "export": func(ctx context.Context) error { _, err := s.Export(ctx, "t-1"); return err },
		"proof": func(ctx context.Context) error { _, err := s.Proof(ctx, "t-1"); return err }, "key": func(ctx context.Context) error { _, err := s.VerifierKey(ctx); return err },
		"status": func(ctx context.Context) error { _, err := s.Status(ctx); return err }, "doctor": func(ctx context.Context) error { _, err := s.Examine(ctx); return err },
	}
	for name, read := range reads {
		if err := read(context.Background()); cofferdam.KindOf(err) != cofferdam.Unauthenticated {
			t.Errorf("%s by nobody: %v", name, err)
		}
	}
}

func commit(c byte) cofferdam.Commit { return cofferdam.Commit(strings.Repeat(string(c), 40)) }

func TestCreateSettlesNames(t *testing.T) {
	s, m := world(t)
	made, err := s.CreateTask(as(alice), request())
	if err != nil || made.Request.Repo != "shop" || made.Request.Agent != "command" || made.By != alice {
		t.Fatalf("%+v %v", made.Request, err)
	}
	for name, c := range map[string]struct {
		change func(*cofferdam.TaskRequest)
		kind   cofferdam.Kind
	}{
		"no check":         {func(r *cofferdam.TaskRequest) { r.Checks = nil }, cofferdam.Invalid},
		"unknown repo":     {func(r *cofferdam.TaskRequest) { r.Repo = "nope" }, cofferdam.NotFound},
		"unknown model":    {func(r *cofferdam.TaskRequest) { r.Model = "nope" }, cofferdam.NotFound},
		"no model yet":     {func(r *cofferdam.TaskRequest) { r.Agent, r.Command = "claude", "" }, cofferdam.NotFound},
		"unknown agent":    {func(r *cofferdam.TaskRequest) { r.Agent, r.Command = "eve", "" }, cofferdam.Invalid},
		"unknown preset":   {func(r *cofferdam.TaskRequest) { r.Allow = []string{"preset:nope"} }, cofferdam.Invalid},
		"literal address":  {func(r *cofferdam.TaskRequest) { r.Allow = []string{"10.0.0.1"} }, cofferdam.Invalid},
		"a scheme":         {func(r *cofferdam.TaskRequest) { r.Allow = []string{"https://a.test"} }, cofferdam.Invalid},
		"image is missing": {func(r *cofferdam.TaskRequest) { r.Image = "/nonexistent/image" }, cofferdam.Invalid},
		"image is a file":  {func(r *cofferdam.TaskRequest) { r.Image = "/etc/hostname" }, cofferdam.Invalid},
	} {
		r := request()
		c.change(&r)
		if _, err := s.CreateTask(as(alice), r); cofferdam.KindOf(err) != c.kind || cofferdam.HintOf(err) == "" {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := s.AddRepo(as(alice), cofferdam.RepoRequest{Name: "two", Upstream: "/srv/two.git"}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.CreateTask(as(alice), request()); cofferdam.KindOf(err) != cofferdam.Invalid || !strings.Contains(cofferdam.HintOf(err), "--repo") {
		t.Errorf("two repositories and none named: %v", err)
	}
	m.mu.Lock()
	n := len(m.tasks)
	m.mu.Unlock()
	if n != 1 {
		t.Errorf("%d tasks were made, want the one good one", n)
	}
}

func TestModels(t *testing.T) {
	s, m := world(t)
	good := cofferdam.ModelRequest{Name: "anthropic", Provider: "anthropic", Key: "sk-test-12345678"}
	added, err := s.AddModel(as(alice), good)
	if err != nil || added.URL != "https://api.anthropic.com" {
		t.Fatalf("%+v %v", added, err)
	}
	if got := m.Secret(ModelSecret(added.ID)); got != string(good.Key) {
		t.Errorf("sealed %q", got)
	}
	if _, err := s.AddModel(as(alice), good); cofferdam.KindOf(err) != cofferdam.Conflict {
		t.Errorf("twice: %v", err)
	}
	for name, change := range map[string]func(*cofferdam.ModelRequest){
		"provider": func(r *cofferdam.ModelRequest) { r.Provider = "acme" }, "name": func(r *cofferdam.ModelRequest) { r.Name = "../x" },
		"plain http": func(r *cofferdam.ModelRequest) { r.URL = "http://api.example.com" }, "name on loopback": func(r *cofferdam.ModelRequest) { r.URL = "http://localhost:1" },
		"user in url": func(r *cofferdam.ModelRequest) { r.URL = "https://u:p@api.test" }, "scheme": func(r *cofferdam.ModelRequest) { r.URL = "file:///etc/passwd" },
		"query": func(r *cofferdam.ModelRequest) { r.URL = "https://api.test/?x=1" }, "huge url": func(r *cofferdam.ModelRequest) { r.URL = "https://a/" + strings.Repeat("a", 4000) },
		"no key": func(r *cofferdam.ModelRequest) { r.Key = "" }, "key with a line break": func(r *cofferdam.ModelRequest) { r.Key = "sk-test-1234\nX: y" },
		"binary key": func(r *cofferdam.ModelRequest) { r.Key = "sk-test-\xff\x00123" }, "huge key": func(r *cofferdam.ModelRequest) { r.Key = cofferdam.Sensitive(strings.Repeat("k", maxSecret+1)) },
	} {
		r := good
		r.Name = "other"
		change(&r)
		_, err := s.AddModel(as(alice), r)
		if cofferdam.KindOf(err) != cofferdam.Invalid {
			t.Errorf("%s: %v", name, err)
		}
		if err != nil && strings.Contains(err.Error(), "sk-test") {
			t.Errorf("%s: the error tells the key: %v", name, err)
		}
	}
	if _, err := s.AddModel(as(alice), cofferdam.ModelRequest{Name: "local", Provider: "anthropic", URL: "http://127.0.0.1:9", Key: "sk-test-12345678"}); err != nil {
		t.Errorf("loopback: %v", err)
	}
	if err := s.RemoveModel(as(alice), "anthropic"); err != nil || m.Secret(ModelSecret(added.ID)) != "" {
		t.Errorf("remove: %v, key left: %q", err, m.Secret(ModelSecret(added.ID)))
	}
}

func TestRepos(t *testing.T) {
	s, m := world(t)
	for name, r := range map[string]cofferdam.RepoRequest{
		"relative": {Name: "a", Upstream: "shop.git"}, "ssh": {Name: "a", Upstream: "ssh://git@a/x"}, "scp": {Name: "a", Upstream: "git@a:x"},
		"http": {Name: "a", Upstream: "http://a/x"}, "file": {Name: "a", Upstream: "file:///x"}, "user": {Name: "a", Upstream: "https://u@a/x"},
		"option": {Name: "a", Upstream: "--upload-pack=touch /tmp/pwn"}, "ext": {Name: "a", Upstream: "ext::sh -c touch% /tmp/pwn"},
		"break": {Name: "a", Upstream: "/srv/a\n.git"}, "empty": {Name: "a"}, "huge": {Name: "a", Upstream: "/" + strings.Repeat("a", 5000)},
		"name": {Name: "A b", Upstream: "/srv/a.git"}, "no name": {Upstream: "/srv/a.git"}, "dots": {Name: "..", Upstream: "/srv/a.git"},
		"base": {Name: "a", Upstream: "/srv/a.git", Base: "../x"}, "credential for a path": {Name: "a", Upstream: "/srv/a.git", Credential: "x"},
		"credential with break": {Name: "a", Upstream: "https://a/x", Credential: "a\r\nb"},
	} {
		if _, err := s.AddRepo(as(alice), r); cofferdam.KindOf(err) != cofferdam.Invalid || cofferdam.HintOf(err) == "" {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := s.AddRepo(as(alice), cofferdam.RepoRequest{Name: "shop", Upstream: "/srv/x.git"}); cofferdam.KindOf(err) != cofferdam.Conflict {
		t.Errorf("same name: %v", err)
	}
	far, err := s.AddRepo(as(alice), cofferdam.RepoRequest{Name: "far", Upstream: "https://git.example.com/far.git", User: "bot", Credential: "token-123456"})
	if err != nil || m.Secret(RepoSecret(far.ID)) != "token-123456" {
		t.Fatalf("%+v %v", far, err)
	}
	r := request()
	r.Repo = "far"
	made, err := s.CreateTask(as(alice), r)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.RemoveRepo(as(alice), "far"); cofferdam.KindOf(err) != cofferdam.Conflict {
		t.Errorf("a task works on it: %v", err)
	}
	m.Set(made.ID, func(t *cofferdam.Task) { t.State = cofferdam.Failed })
	if err := s.RemoveRepo(as(alice), "far"); err != nil || m.Secret(RepoSecret(far.ID)) != "" {
		t.Errorf("remove: %v", err)
	}
}

func TestFollowBringsEverythingInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, m := world(t)
		made, err := s.CreateTask(as(alice), request())
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		done := make(chan error, 1)
		go func() {
			done <- s.FollowTask(as(alice), "t-1", func(p cofferdam.Progress) error {
				if p.Task != nil {
					got = append(got, string(p.Task.State))
				} else {
					got = append(got, p.Event.Kind)
				}
				return nil
			})
		}()
		synctest.Wait()
		id := cofferdam.SessionID("s-00000001")
		m.AddSession(cofferdam.Session{ID: id, Task: made.ID})
		m.Set(made.ID, func(t *cofferdam.Task) { t.State, t.Sessions = cofferdam.Running, []cofferdam.SessionID{id} })
		synctest.Wait()
		m.Emit(id, cofferdam.Event{Kind: "exec.start"})
		synctest.Wait()
		m.Emit(id, cofferdam.Event{Kind: "exec.end"})
		m.Seal(id)
		m.Set(made.ID, func(t *cofferdam.Task) { t.State = cofferdam.InReview })
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if want := "queued running exec.start exec.end in review"; strings.Join(got, " ") != want {
			t.Errorf("got %q, want %q", strings.Join(got, " "), want)
		}
	})
}

// A session whose log is never sealed does not hold up the end of its task.
func TestFollowEndsWithoutSeal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, m := world(t)
		made, err := s.CreateTask(as(alice), request())
		if err != nil {
			t.Fatal(err)
		}
		m.Set(made.ID, func(t *cofferdam.Task) { t.State, t.Sessions = cofferdam.Failed, []cofferdam.SessionID{"s-open"} })
		start := time.Now()
		if err := s.FollowTask(as(alice), "t-1", func(cofferdam.Progress) error { return nil }); err != nil {
			t.Fatal(err)
		}
		if d := time.Since(start); d != followGrace {
			t.Errorf("ended after %s, want %s", d, followGrace)
		}
	})
}

func TestFollowEndsWithItsReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := world(t)
		if _, err := s.CreateTask(as(alice), request()); err != nil {
			t.Fatal(err)
		}
		gone := errors.New("reader gone")
		if err := s.FollowTask(as(alice), "t-1", func(cofferdam.Progress) error { return gone }); !errors.Is(err, gone) {
			t.Errorf("got %v", err)
		}
	})
}

func TestWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, m := world(t)
		made, err := s.CreateTask(as(alice), request())
		if err != nil {
			t.Fatal(err)
		}
		got, err := s.WaitTask(as(alice), "t-1", "", time.Minute)
		if err != nil || got.State != cofferdam.Queued {
			t.Errorf("after the limit: %s %v", got.State, err)
		}
		go func() {
			time.Sleep(time.Second)
			m.Set(made.ID, func(t *cofferdam.Task) { t.State = cofferdam.NothingToDo })
		}()
		got, err = s.WaitTask(as(alice), "t-1", "", time.Minute)
		if err != nil || got.State != cofferdam.NothingToDo {
			t.Errorf("at rest: %s %v", got.State, err)
		}
	})
}

// A state is waited for past every rest, and ends with the task's end at the latest.
func TestWaitForState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, m := world(t)
		made, err := s.CreateTask(as(alice), request())
		if err != nil {
			t.Fatal(err)
		}
		goes := func(states ...cofferdam.TaskState) {
			for _, state := range states {
				time.Sleep(time.Second)
				m.Set(made.ID, func(t *cofferdam.Task) { t.State = state })
			}
		}
		go goes(cofferdam.Running, cofferdam.Waiting, cofferdam.Verifying, cofferdam.InReview)
		for _, state := range []cofferdam.TaskState{cofferdam.Queued, cofferdam.Running, cofferdam.Verifying} {
			if got, err := s.WaitTask(as(alice), "t-1", state, time.Minute); err != nil || got.State != state {
				t.Errorf("waited for %s, got %s, %v", state, got.State, err)
			}
		}
		if got, err := s.WaitTask(as(alice), "t-1", cofferdam.Done, time.Minute); err != nil || got.State != cofferdam.InReview {
			t.Errorf("waited for done until the limit, got %s, %v", got.State, err)
		}
		go goes(cofferdam.Cancelled)
		if got, err := s.WaitTask(as(alice), "t-1", cofferdam.Done, time.Minute); err != nil || got.State != cofferdam.Cancelled {
			t.Errorf("waited for done until the end, got %s, %v", got.State, err)
		}
	})
}

// TestWaitForTheSeal: a cancelled task has ended before its session's record is
// sealed, and who waits for it finds that sealed; but for ever nobody waits.
func TestWaitForTheSeal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, m := world(t)
		made, err := s.CreateTask(as(alice), request())
		if err != nil {
			t.Fatal(err)
		}
		m.AddSession(cofferdam.Session{ID: "s-1234", Task: made.ID})
		if _, err := s.CancelTask(as(alice), "t-1"); err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		got, err := s.WaitTask(as(alice), "t-1", "", time.Hour)
		if err != nil || got.State != cofferdam.Cancelled || time.Since(begun) != sealGrace {
			t.Errorf("never sealed: %s after %s, %v", got.State, time.Since(begun), err)
		}
		time.AfterFunc(3*time.Second, func() { m.Seal("s-1234") })
		begun = time.Now()
		got, err = s.WaitTask(as(alice), "t-1", "", time.Minute)
		if took := time.Since(begun); err != nil || got.State != cofferdam.Cancelled || took < 3*time.Second || took > 4*time.Second {
			t.Errorf("sealed: %s after %s, %v", got.State, took, err)
		}
	})
}

func TestLand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, m := world(t)
		made, err := s.CreateTask(as(alice), request())
		if err != nil {
			t.Fatal(err)
		}
		m.Set(made.ID, func(t *cofferdam.Task) { t.State, t.Head = cofferdam.InReview, commit('a') })
		if _, err := s.LandMerge(as(alice), "t-1", ""); cofferdam.KindOf(err) != cofferdam.AwaitsPerson {
			t.Errorf("without approval: %v", err)
		}
		for _, bad := range []cofferdam.Commit{"", "aaaaaaaa", commit('A'), commit('b'), commit('a') + "\n"} {
			if _, err := s.ApproveMerge(as(alice), "t-1", word(bad)); err == nil {
				t.Errorf("commit %q was approved", bad)
			}
		}
		if _, err := s.ApproveMerge(as(alice), "t-1", word(commit('a'))); err != nil {
			t.Fatal(err)
		}
		m.Landing = false
		if _, err := s.LandMerge(as(alice), "t-1", commit('a')); cofferdam.KindOf(err) != cofferdam.Conflict {
			t.Errorf("a landing that does not come: %v", err)
		}
		go func() {
			time.Sleep(time.Second)
			m.Set(made.ID, func(t *cofferdam.Task) { t.Reason, t.Comment = "base-moved", "not landed: the base has moved" })
		}()
		start := time.Now()
		if _, err := s.LandMerge(as(alice), "t-1", commit('a')); err == nil || err.Error() != "landing t-1: not landed: the base has moved" || time.Since(start) != time.Second {
			t.Errorf("a landing that is sent back: %v after %s", err, time.Since(start))
		}
		m.Landing = true
		got, err := s.LandMerge(as(alice), "t-1", commit('a'))
		if err != nil || got.State != cofferdam.Done || got.Landed != commit('a') {
			t.Errorf("%s %s %v", got.State, got.Landed, err)
		}
	})
}
