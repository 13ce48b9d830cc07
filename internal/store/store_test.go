package store

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"cofferdam"
	"cofferdam/gateway"
	"cofferdam/secret"
	"cofferdam/session"
	"cofferdam/task"
)

// place is an open store with one project and one repository.
type place struct {
	*Store
	scope cofferdam.Scope
	repo  cofferdam.Repo
}

func open(t *testing.T) place {
	t.Helper()
	s, err := Open(t.Context(), filepath.Join(t.TempDir(), "cofferdam.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return fill(t, s)
}

func fill(t *testing.T, s *Store) place {
	t.Helper()
	scope, err := s.DefaultScope(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	r := cofferdam.Repo{Schema: "cofferdam/repo/v1", ID: cofferdam.RepoID(cofferdam.NewID("r")), Scope: scope, Name: "first", Upstream: "/srv/first.git", Base: "refs/heads/main", Created: at(0)}
	if err := s.AddRepo(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	return place{s, scope, r}
}

// unrecorded stands in for the record.
func unrecorded(cofferdam.Task) error { return nil }

func at(second int) time.Time { return time.Date(2026, 11, 29, 12, 0, second, 0, time.UTC) }

func (p place) task(key string) cofferdam.Task {
	return cofferdam.Task{
		Schema: "cofferdam/task/v1", ID: cofferdam.TaskID(cofferdam.NewID("t")), Scope: p.scope, Repo: p.repo.ID,
		Request: cofferdam.TaskRequest{Text: "fix it", Checks: []cofferdam.Check{{Command: "make test", MustFailFirst: true}}, Agent: "command", Key: key},
		State:   cofferdam.Queued, Attempt: 1, Base: "refs/heads/main",
		By: cofferdam.Principal{Kind: cofferdam.Person, Name: "ada"}, Created: at(1), Updated: at(1),
	}
}

func (p place) create(t *testing.T, key string) cofferdam.Task {
	t.Helper()
	v, made, err := p.CreateTask(t.Context(), p.task(key), unrecorded)
	if err != nil || !made {
		t.Fatalf("CreateTask: made %v, %v", made, err)
	}
	return v
}

// to walks a task through the states given.
func (p place) to(t *testing.T, id cofferdam.TaskID, states ...cofferdam.TaskState) cofferdam.Task {
	t.Helper()
	var v cofferdam.Task
	for _, s := range states {
		var err error
		v, err = p.ChangeTask(t.Context(), id, func(v *cofferdam.Task) error { v.State = s; return nil })
		if err != nil {
			t.Fatalf("to %s: %v", s, err)
		}
	}
	return v
}

const (
	head  cofferdam.Commit = "1111111111111111111111111111111111111111"
	other cofferdam.Commit = "2222222222222222222222222222222222222222"
)

// verifying brings a fresh task to the point where the checks run on head.
func (p place) verifying(t *testing.T) cofferdam.Task {
	t.Helper()
	v := p.create(t, "")
	p.to(t, v.ID, cofferdam.Preparing, cofferdam.Running)
	v, err := p.ChangeTask(t.Context(), v.ID, func(v *cofferdam.Task) error { v.State, v.Head = cofferdam.Verifying, head; return nil })
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func (p place) receipt(t *testing.T, v cofferdam.Task) task.Receipt {
	t.Helper()
	r, err := p.AddReceipt(t.Context(), task.Receipt{
		ID: cofferdam.ReceiptID(cofferdam.NewID("c")), Scope: v.Scope, Task: v.ID, Attempt: v.Attempt, Commit: v.Head,
		Report: cofferdam.CheckReport{Commit: v.Head, Held: true}, Note: []byte("signed"), Created: at(2),
	})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// inReview brings a fresh task into review.
func (p place) inReview(t *testing.T) cofferdam.Task {
	t.Helper()
	v := p.verifying(t)
	r := p.receipt(t, v)
	v, err := p.ChangeTask(t.Context(), v.ID, func(v *cofferdam.Task) error { v.State, v.Receipt = cofferdam.InReview, r.ID; return nil })
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func (p place) approve(t *testing.T, v cofferdam.Task) cofferdam.Approval {
	t.Helper()
	a, err := p.AddApproval(t.Context(), v, cofferdam.Approval{Commit: v.Head, By: v.By, Time: at(3)})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func (p place) ask(t *testing.T, v cofferdam.Task) task.Landing {
	t.Helper()
	l := task.Landing{Scope: v.Scope, Task: v.ID, Attempt: v.Attempt, Commit: v.Head, Base: v.Base, By: v.By, Asked: at(4)}
	if err := p.AskLanding(t.Context(), l); err != nil {
		t.Fatal(err)
	}
	return l
}

func wantKind(t *testing.T, err error, want cofferdam.Kind) {
	t.Helper()
	if err == nil || cofferdam.KindOf(err) != want {
		t.Fatalf("error is %v (%s), want kind %s", err, cofferdam.KindOf(err), want)
	}
}

func TestTask(t *testing.T) {
	p := open(t)
	ctx := t.Context()
	v := p.create(t, "")
	if v.Number != 1 || v.Branch != "refs/heads/cofferdam/t-1-1" {
		t.Fatalf("first task is number %d on %s", v.Number, v.Branch)
	}
	for _, name := range []string{"t-1", string(v.ID), string(v.ID[:20])} { // a shorter one may be digits alone, which name a number
		got, err := p.FindTask(ctx, p.scope, name)
		if err != nil {
			t.Fatalf("FindTask(%s): %v", name, err)
		}
		v.Sessions = []cofferdam.SessionID{}
		if d := cmp.Diff(v, got); d != "" {
			t.Fatalf("FindTask(%s) (-kept +found):\n%s", name, d)
		}
	}
	for _, name := range []string{"t-2", "", "t-", "t", string(v.ID[:7]), "x-" + string(v.ID[2:]), "t-%", "t-1' OR 1=1 --", strings.Repeat("t-1", 10000), "t-99999999999999999999"} {
		if got, err := p.FindTask(ctx, p.scope, name); cofferdam.KindOf(err) != cofferdam.NotFound {
			t.Errorf("FindTask(%.20q) = %s, %v; want not found", name, got.ID, err)
		}
	}
	stranger := cofferdam.Scope{Organization: p.scope.Organization, Project: "p-other"}
	if _, err := p.FindTask(ctx, stranger, string(v.ID)); cofferdam.KindOf(err) != cofferdam.NotFound {
		t.Fatalf("another project finds the task: %v", err)
	}
	if l, err := p.Tasks(ctx, stranger, task.Filter{}); err != nil || len(l) != 0 {
		t.Fatalf("another project lists %d tasks, %v", len(l), err)
	}
}

// TestTaskOfDigits: the first digits of an id may all be decimal.
func TestTaskOfDigits(t *testing.T) {
	p := open(t)
	ctx := t.Context()
	made := func(id string) cofferdam.Task {
		v := p.task("")
		v.ID = cofferdam.TaskID(id)
		v, _, err := p.CreateTask(ctx, v, unrecorded)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	finds := func(name string, want cofferdam.Task) {
		t.Helper()
		if got, err := p.FindTask(ctx, p.scope, name); err != nil || got.ID != want.ID {
			t.Errorf("FindTask(%s) = %s, %v; want %s", name, got.ID, err, want.ID)
		}
	}
	one := made("t-696888" + strings.Repeat("1", 26))
	long := made("t-1234567890" + strings.Repeat("a", 22))
	for i := 8; i <= len(one.ID); i++ {
		finds(string(one.ID[:i]), one)
		finds(string(long.ID[:i]), long)
	}
	for _, name := range []string{"t-69688", "t-696887", "t-0696888", "t-123456780"} {
		_, err := p.FindTask(ctx, p.scope, name)
		wantKind(t, err, cofferdam.NotFound)
	}
	two := made("t-696888" + strings.Repeat("2", 26))
	_, err := p.FindTask(ctx, p.scope, "t-696888")
	wantKind(t, err, cofferdam.Invalid) // which of both?
	finds("t-6968881", one)
	finds("t-6968882", two)
	numbered := p.task("")
	if _, err := p.exec(ctx, "test", `INSERT INTO task SELECT ?, organization, project, 696888, request, repo, state, reason, comment, attempt, branch, base,
		base_commit, head, receipt, regression_only, landed, usage, by_kind, by_name, created, updated, raised FROM task WHERE id = ?`, numbered.ID, one.ID); err != nil {
		t.Fatal(err)
	}
	finds("t-696888", numbered)
	finds("t-6968881", one)
}

func TestTaskKey(t *testing.T) {
	p := open(t)
	first := p.create(t, "once")
	again, made, err := p.CreateTask(t.Context(), p.task("once"), unrecorded)
	if err != nil || made || again.ID != first.ID {
		t.Fatalf("the same request with the same key made %v %s, %v; want %s again", made, again.ID, err, first.ID)
	}
	changed := p.task("once")
	changed.Request.Text = "something else"
	if _, _, err := p.CreateTask(t.Context(), changed, unrecorded); cofferdam.KindOf(err) != cofferdam.Conflict {
		t.Fatalf("another request with the same key: %v, want a conflict", err)
	}
	if l, _ := p.Tasks(t.Context(), p.scope, task.Filter{}); len(l) != 1 {
		t.Fatalf("%d tasks, want 1", len(l))
	}
}

func TestTaskNumbersTogether(t *testing.T) {
	p := open(t)
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			if _, _, err := p.CreateTask(context.Background(), p.task(""), unrecorded); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	l, err := p.Tasks(t.Context(), p.scope, task.Filter{})
	if err != nil || len(l) != 20 {
		t.Fatalf("%d tasks, %v", len(l), err)
	}
	for i, v := range l {
		if v.Number != int64(20-i) {
			t.Fatalf("place %d holds t-%d, want t-%d", i, v.Number, 20-i)
		}
	}
	page, err := p.Tasks(t.Context(), p.scope, task.Filter{Before: 11, Limit: 3, States: []cofferdam.TaskState{cofferdam.Queued, cofferdam.Done}, Repo: p.repo.ID})
	if err != nil || len(page) != 3 || page[0].Number != 10 {
		t.Fatalf("page before 11: %v, %v", page, err)
	}
}

func TestNoTaskWithoutRecord(t *testing.T) {
	p := open(t)
	boom := errors.New("boom")
	if _, made, err := p.CreateTask(t.Context(), p.task("once"), func(cofferdam.Task) error { return boom }); made || !errors.Is(err, boom) {
		t.Fatalf("made %v, %v", made, err)
	}
	if v := p.create(t, "once"); v.Number != 1 {
		t.Fatalf("the task that was not kept left something: the next is %d", v.Number)
	}
}

func TestChangeTaskKeepsOnError(t *testing.T) {
	p := open(t)
	v := p.create(t, "")
	boom := errors.New("boom")
	if _, err := p.ChangeTask(t.Context(), v.ID, func(v *cofferdam.Task) error { v.State = cofferdam.Preparing; return boom }); !errors.Is(err, boom) {
		t.Fatalf("ChangeTask returns %v, want the error of change", err)
	}
	if got, _ := p.TaskByID(t.Context(), v.ID); got.State != cofferdam.Queued {
		t.Fatalf("task is %s after an error, want queued", got.State)
	}
}

func TestSessions(t *testing.T) {
	p := open(t)
	ctx := t.Context()
	v := p.create(t, "")
	plan := func() session.Plan {
		return session.Plan{Scope: p.scope, ID: cofferdam.SessionID(cofferdam.NewID("s")), Task: v.ID, Number: 1, Attempt: 1, Phase: gateway.Work, Repo: p.repo, Commit: head}
	}
	one, two := plan(), plan()
	if _, _, _, err := p.LatestSession(ctx, v.ID, 1, "work"); cofferdam.KindOf(err) != cofferdam.NotFound {
		t.Fatalf("latest of none: %v", err)
	}
	if err := p.BeginSession(ctx, "work", 1, one); err != nil {
		t.Fatal(err)
	}
	wantKind(t, p.BeginSession(ctx, "work", 1, two), cofferdam.Conflict)
	if err := p.BeginSession(ctx, "work", 2, two); err != nil {
		t.Fatal(err)
	}
	got, res, try, err := p.LatestSession(ctx, v.ID, 1, "work")
	if err != nil || try != 2 || res != nil {
		t.Fatalf("latest: try %d, %v, %v", try, res, err)
	}
	if d := cmp.Diff(two, got); d != "" {
		t.Fatalf("plan (-kept +found):\n%s", d)
	}
	r := session.Result{Session: two.ID, Said: cofferdam.SaidDone, Head: head, Usage: cofferdam.Usage{InputTokens: 7, Refused: 2}}
	if err := p.SaveResult(ctx, r); err != nil {
		t.Fatal(err)
	}
	late := r
	late.Said = cofferdam.SaidBlocked
	if err := p.SaveResult(ctx, late); err != nil {
		t.Fatal(err)
	}
	if back, ok, err := p.LoadResult(ctx, two.ID); err != nil || !ok || cmp.Diff(r, back) != "" {
		t.Fatalf("LoadResult: %v %v %v; the first word must stay", back, ok, err)
	}
	if _, ok, err := p.LoadResult(ctx, one.ID); ok || err != nil {
		t.Fatalf("a session without a result has one: %v %v", ok, err)
	}
	wantKind(t, p.SaveResult(ctx, session.Result{Session: "s-nobody"}), cofferdam.NotFound)
	if u, err := p.TaskUsage(ctx, v.ID); err != nil || u.InputTokens != 7 || u.Refused != 2 {
		t.Fatalf("usage %+v, %v", u, err)
	}
	if open, err := p.OpenSessions(ctx); err != nil || len(open) != 1 || open[0].ID != one.ID {
		t.Fatalf("open sessions: %v, %v", open, err)
	}
	if l, err := p.Sessions(ctx, p.scope, v.ID, 0); err != nil || len(l) != 2 {
		t.Fatalf("sessions: %v, %v", l, err)
	}
	seen, err := p.Session(ctx, p.scope, string(two.ID[:12]))
	if err != nil || seen.State != "stopped" || seen.Head != head {
		t.Fatalf("session: %+v, %v", seen, err)
	}
	if now, _ := p.TaskByID(ctx, v.ID); len(now.Sessions) != 2 {
		t.Fatalf("the task names sessions %v, want both", now.Sessions)
	}
}

func TestConfiguration(t *testing.T) {
	p := open(t)
	ctx := t.Context()
	twin := p.repo
	twin.ID = cofferdam.RepoID(cofferdam.NewID("r"))
	wantKind(t, p.AddRepo(ctx, twin), cofferdam.Conflict)
	for _, name := range []string{"first", string(p.repo.ID), string(p.repo.ID[:10])} {
		if r, err := p.FindRepo(ctx, p.scope, name); err != nil || cmp.Diff(p.repo, r) != "" {
			t.Fatalf("FindRepo(%s): %v, %v", name, r, err)
		}
	}
	if err := p.RemoveRepo(ctx, p.scope, p.repo.ID); err != nil {
		t.Fatal(err)
	}
	wantKind(t, p.RemoveRepo(ctx, p.scope, p.repo.ID), cofferdam.NotFound)
	if _, err := p.FindRepo(ctx, p.scope, "first"); cofferdam.KindOf(err) != cofferdam.NotFound {
		t.Fatalf("a removed repository is found: %v", err)
	}
	if err := p.AddRepo(ctx, twin); err != nil {
		t.Fatalf("a removed repository's name is not free: %v", err)
	}
	m := cofferdam.Model{
		Schema: "cofferdam/model/v1", ID: cofferdam.ModelID(cofferdam.NewID("m")), Scope: p.scope, Name: "anthropic", Provider: "anthropic", URL: "http://127.0.0.1:1", Rehearsal: true, Created: at(5),
		Default: "d", Allow: []string{"a-*", "d"}, Alias: map[string]string{"x": "d"}, Fallback: []string{"other"}, KeepText: true, NoKey: true,
	}
	if err := p.AddModel(ctx, m); err != nil {
		t.Fatal(err)
	}
	wantKind(t, p.AddModel(ctx, m), cofferdam.Conflict)
	if got, err := p.FindModel(ctx, p.scope, "anthropic"); err != nil || cmp.Diff(m, got) != "" {
		t.Fatalf("FindModel: %v, %v", got, err)
	}
	if l, err := p.Models(ctx, p.scope); err != nil || len(l) != 1 {
		t.Fatalf("Models: %v, %v", l, err)
	}
	if err := p.RemoveModel(ctx, p.scope, m.ID); err != nil {
		t.Fatal(err)
	}
	wantKind(t, p.RemoveModel(ctx, p.scope, m.ID), cofferdam.NotFound)
}

func TestSecrets(t *testing.T) {
	p := open(t)
	ctx := t.Context()
	v := secret.Sealed{Scope: p.scope, Name: "repo/x", Data: []byte{0, 1, 255}, Created: at(6)}
	if err := p.PutSecret(ctx, v); err != nil {
		t.Fatal(err)
	}
	v.Data = []byte("newer")
	if err := p.PutSecret(ctx, v); err != nil {
		t.Fatal(err)
	}
	if got, err := p.GetSecret(ctx, p.scope, v.Name); err != nil || cmp.Diff(v, got) != "" {
		t.Fatalf("GetSecret: %v, %v", got, err)
	}
	if l, err := p.ListSecrets(ctx); err != nil || len(l) != 1 {
		t.Fatalf("ListSecrets: %v, %v", l, err)
	}
	if err := p.RemoveSecret(ctx, p.scope, v.Name); err != nil {
		t.Fatal(err)
	}
	wantKind(t, p.RemoveSecret(ctx, p.scope, v.Name), cofferdam.NotFound)
	_, err := p.GetSecret(ctx, p.scope, v.Name)
	wantKind(t, err, cofferdam.NotFound)
}

func TestScopeStays(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cofferdam.db")
	var scopes []cofferdam.Scope
	for range 2 {
		s, err := Open(t.Context(), path)
		if err != nil {
			t.Fatal(err)
		}
		scope, err := s.DefaultScope(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		scopes = append(scopes, scope)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if scopes[0] != scopes[1] || scopes[0].Project == "" {
		t.Fatalf("scopes %v", scopes)
	}
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o600 {
		t.Fatalf("the file's mode is %v, %v; want 0600", st.Mode(), err)
	}
}
