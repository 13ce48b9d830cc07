package task_test

import (
	"context"
	"errors"
	"math"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"cofferdam"
	"cofferdam/internal/store"
	"cofferdam/session"
	"cofferdam/task"
)

// record keeps events in memory; with fail set it refuses them.
type record struct {
	mu     sync.Mutex
	events []cofferdam.Event
	fail   error
}

func (r *record) Record(_ context.Context, e cofferdam.Event) (cofferdam.Event, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.fail != nil {
		return e, r.fail
	}
	e.Seq = uint64(len(r.events))
	r.events = append(r.events, e)
	return e, nil
}

func (r *record) moves() (m []string) {
	for _, e := range r.events {
		m = append(m, e.Fields["from"]+">"+e.Fields["to"])
	}
	return m
}

type desk struct {
	*task.Service
	store *store.Store
	rec   *record
	repo  cofferdam.Repo
	scope cofferdam.Scope
}

var (
	ada    = cofferdam.Principal{Kind: cofferdam.Person, Name: "ada"}
	claude = cofferdam.Principal{Kind: cofferdam.Agent, Name: "claude"}
)

func open(t *testing.T) desk {
	t.Helper()
	s, err := store.Open(t.Context(), filepath.Join(t.TempDir(), "cofferdam.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	scope, err := s.DefaultScope(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	repo := cofferdam.Repo{ID: cofferdam.RepoID(cofferdam.NewID("r")), Scope: scope, Name: "first", Upstream: "/srv/first.git", Base: "refs/heads/main", Created: time.Now()}
	if err := s.AddRepo(t.Context(), repo); err != nil {
		t.Fatal(err)
	}
	rec := &record{}
	return desk{task.New(task.Options{Store: s, Record: rec}), s, rec, repo, scope}
}

func request() cofferdam.TaskRequest {
	return cofferdam.TaskRequest{Text: "fix it", Agent: "command", Command: "true", Checks: []cofferdam.Check{{Command: "make test", MustFailFirst: true}}}
}

func (d desk) create(t *testing.T) cofferdam.Task {
	t.Helper()
	v, err := d.Create(t.Context(), task.Order{Scope: d.scope, By: ada, Request: request(), Repo: d.repo})
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func (d desk) advance(t *testing.T, v cofferdam.Task, to cofferdam.TaskState, set func(*cofferdam.Task)) cofferdam.Task {
	t.Helper()
	v, err := d.Advance(t.Context(), task.Move{Task: v.ID, Attempt: v.Attempt, From: v.State, To: to, Set: set})
	if err != nil {
		t.Fatalf("to %s: %v", to, err)
	}
	return v
}

const head cofferdam.Commit = "1111111111111111111111111111111111111111"

func (d desk) inReview(t *testing.T) cofferdam.Task {
	t.Helper()
	v := d.advance(t, d.create(t), cofferdam.Preparing, nil)
	v = d.advance(t, v, cofferdam.Running, nil)
	v = d.advance(t, v, cofferdam.Verifying, func(v *cofferdam.Task) { v.Head = head })
	r, err := d.store.AddReceipt(t.Context(), task.Receipt{ID: cofferdam.ReceiptID(cofferdam.NewID("c")), Scope: v.Scope, Task: v.ID, Attempt: v.Attempt, Commit: head, Note: []byte("note"), Created: time.Now()})
	if err != nil {
		t.Fatal(err)
	}
	return d.advance(t, v, cofferdam.InReview, func(v *cofferdam.Task) { v.Receipt = r.ID })
}

func wantKind(t *testing.T, err error, want cofferdam.Kind) {
	t.Helper()
	if err == nil || cofferdam.KindOf(err) != want {
		t.Fatalf("error is %v (%s), want kind %s", err, cofferdam.KindOf(err), want)
	}
}

func TestCheckRequest(t *testing.T) {
	if err := task.Check(request()); err != nil {
		t.Fatalf("a plain request: %v", err)
	}
	many := func(n int, s string) []string {
		l := make([]string, n)
		for i := range l {
			l[i] = s
		}
		return l
	}
	for name, change := range map[string]func(*cofferdam.TaskRequest){
		"no text":             func(r *cofferdam.TaskRequest) { r.Text = " \n" },
		"huge text":           func(r *cofferdam.TaskRequest) { r.Text = strings.Repeat("x", task.MaxText+1) },
		"huge command":        func(r *cofferdam.TaskRequest) { r.Command = strings.Repeat("x", task.MaxCommand+1) },
		"binary text":         func(r *cofferdam.TaskRequest) { r.Text = "\xff\xfe" },
		"zero byte":           func(r *cofferdam.TaskRequest) { r.Text = "a\x00b" },
		"no check":            func(r *cofferdam.TaskRequest) { r.Checks = nil },
		"empty check":         func(r *cofferdam.TaskRequest) { r.Checks = []cofferdam.Check{{}} },
		"check twice":         func(r *cofferdam.TaskRequest) { r.Checks = append(r.Checks, cofferdam.Check{Command: "make test"}) },
		"many checks":         func(r *cofferdam.TaskRequest) { r.Checks = make([]cofferdam.Check, task.MaxChecks+1) },
		"many lines":          func(r *cofferdam.TaskRequest) { r.Done = many(task.MaxDone+1, "x") },
		"long line":           func(r *cofferdam.TaskRequest) { r.Done = many(1, strings.Repeat("x", task.MaxLine+1)) },
		"no agent":            func(r *cofferdam.TaskRequest) { r.Agent = "" },
		"agent is a path":     func(r *cofferdam.TaskRequest) { r.Agent = "../claude" },
		"no command":          func(r *cofferdam.TaskRequest) { r.Command = "" },
		"command to claude":   func(r *cofferdam.TaskRequest) { r.Agent = "claude" },
		"empty allow":         func(r *cofferdam.TaskRequest) { r.Allow = []string{""} },
		"many allows":         func(r *cofferdam.TaskRequest) { r.Allow = many(task.MaxAllow+1, "a.example") },
		"relative image":      func(r *cofferdam.TaskRequest) { r.Image = "./img" },
		"no environment":      func(r *cofferdam.TaskRequest) { r.Environment = "../x" },
		"image with dots":     func(r *cofferdam.TaskRequest) { r.Image = "/srv/../etc" },
		"negative timeout":    func(r *cofferdam.TaskRequest) { r.Timeout = -1 },
		"no number":           func(r *cofferdam.TaskRequest) { r.Timeout = math.NaN() },
		"endless":             func(r *cofferdam.TaskRequest) { r.Timeout = math.Inf(1) },
		"negative memory":     func(r *cofferdam.TaskRequest) { r.Limits = &cofferdam.Limits{Memory: -1} },
		"disk of 4 bytes":     func(r *cofferdam.TaskRequest) { r.Limits = &cofferdam.Limits{Disk: 4} },
		"disk below 16 MiB":   func(r *cofferdam.TaskRequest) { r.Limits = &cofferdam.Limits{Disk: 16<<20 - 1} },
		"disk above 4 TiB":    func(r *cofferdam.TaskRequest) { r.Limits = &cofferdam.Limits{Disk: 4<<40 + 1} },
		"negative disk":       func(r *cofferdam.TaskRequest) { r.Limits = &cofferdam.Limits{Disk: -1} },
		"endless cpu":         func(r *cofferdam.TaskRequest) { r.Limits = &cofferdam.Limits{CPU: math.Inf(1)} },
		"key with a space":    func(r *cofferdam.TaskRequest) { r.Key = "a b" },
		"huge key":            func(r *cofferdam.TaskRequest) { r.Key = strings.Repeat("k", task.MaxKey+1) },
		"attempt's branch":    func(r *cofferdam.TaskRequest) { r.Base = "cofferdam/t-1-1" },
		"branch is an option": func(r *cofferdam.TaskRequest) { r.Base = "--upload-pack=x" },
	} {
		r := request()
		change(&r)
		err := task.Check(r)
		if cofferdam.KindOf(err) != cofferdam.Invalid || err == nil || cofferdam.HintOf(err) == "" {
			t.Errorf("%s: %v, want invalid with a hint", name, err)
		}
	}
}

func TestSmallestDisk(t *testing.T) {
	for _, disk := range []int64{0, 16 << 20, 4 << 40} {
		r := request()
		r.Limits = &cofferdam.Limits{Disk: disk}
		if err := task.Check(r); err != nil {
			t.Errorf("a disk of %d bytes: %v", disk, err)
		}
	}
	r := request()
	r.Limits = &cofferdam.Limits{Disk: 4}
	if err := task.Check(r); err == nil || !strings.Contains(err.Error(), "16 MiB and 4 TiB") {
		t.Errorf("a disk of 4 bytes: %v; want the bounds in units", err)
	}
}

func TestBranchRef(t *testing.T) {
	for name, want := range map[string]cofferdam.Ref{
		"main": "refs/heads/main", "refs/heads/a/b": "refs/heads/a/b", "größe": "refs/heads/größe",
		"": "", "refs/tags/v1": "", "a..b": "", "a b": "", "a~1": "", "-x": "", "a//b": "", "a/.b": "", "a.lock": "", "a@{1}": "", "@": "", "HEAD": "", "a\nb": "", "cofferdam/x": "", "refs/heads/cofferdam/t-1-1": "", "a/": "", "\xff": "",
	} {
		got, err := task.BranchRef(name)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("BranchRef(%q) = %q, %v; want %q", name, got, err, want)
		}
	}
}

// TestBranchRefAgreesWithGit asks git about every odd name: what is taken here is
// taken there.
func TestBranchRefAgreesWithGit(t *testing.T) {
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("needs git: " + err.Error())
	}
	var taken int
	for c := rune(1); c < 0x180; c++ {
		for _, name := range []string{string(c), "a" + string(c), string(c) + "a", "a" + string(c) + "b", "a/" + string(c)} {
			if c > 0x80 && c < 0x17e { // one beyond ASCII stands for all
				continue
			}
			ref, err := task.BranchRef(name)
			if err != nil {
				continue
			}
			taken++
			if taken%7 == 0 || c < '0' || c > 0x7a || c > '9' && c < 'A' { // a process each: letters are sampled
				if out, err := exec.Command("git", "check-ref-format", string(ref)).CombinedOutput(); err != nil {
					t.Errorf("%q is taken, and git refuses it: %v %s", name, err, out)
				}
			}
		}
	}
	if taken < 200 {
		t.Fatalf("only %d names were taken: the test does not test", taken)
	}
}

// FuzzBranchRef looks for a name that is taken and that is no plain branch.
func FuzzBranchRef(f *testing.F) {
	for _, s := range []string{"main", "a/b", "refs/heads/x", "-x", "a..b", "cofferdam/t-1-1", "\xff", "a\x00b"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, name string) {
		ref, err := task.BranchRef(name)
		if err != nil {
			return
		}
		short, ok := strings.CutPrefix(string(ref), "refs/heads/")
		if !ok || short == "" || strings.HasPrefix(short, "cofferdam/") || strings.HasPrefix(short, "-") || strings.ContainsAny(short, " \x00\n\x7f:") {
			t.Fatalf("%q becomes %q", name, ref)
		}
		if again, err := task.BranchRef(string(ref)); err != nil || again != ref {
			t.Fatalf("%q becomes %q, and that becomes %q, %v", name, ref, again, err)
		}
	})
}

func TestLife(t *testing.T) {
	d := open(t)
	ctx := t.Context()
	v := d.inReview(t)
	if step, err := d.Next(ctx, v.ID, 1); err != nil || step.Do != task.DoWait {
		t.Fatalf("in review: next is %v, %v", step, err)
	}
	_, err := d.RequestLand(ctx, d.scope, ada, "t-1", "")
	wantKind(t, err, cofferdam.AwaitsPerson)
	if _, err := d.store.AddApproval(ctx, v, cofferdam.Approval{Commit: head, By: ada, Time: time.Now()}); err != nil {
		t.Fatal(err)
	}
	_, err = d.RequestLand(ctx, d.scope, claude, "t-1", "")
	wantKind(t, err, cofferdam.Forbidden)
	_, err = d.RequestLand(ctx, d.scope, ada, "t-1", "2222222222222222222222222222222222222222")
	wantKind(t, err, cofferdam.Conflict)
	if _, err := d.RequestLand(ctx, d.scope, ada, "t-1", head); err != nil {
		t.Fatal(err)
	}
	if step, err := d.Next(ctx, v.ID, 1); err != nil || step.Do != task.DoLand {
		t.Fatalf("asked to land: next is %v, %v", step, err)
	}
	_, err = d.Advance(ctx, task.Move{Task: v.ID, Attempt: 1, From: cofferdam.InReview, To: cofferdam.Done})
	wantKind(t, err, cofferdam.Conflict) // it has not landed
	if err := d.store.FinishLanding(ctx, v.ID, head, time.Now()); err != nil {
		t.Fatal(err)
	}
	v = d.advance(t, v, cofferdam.Done, func(v *cofferdam.Task) { v.Landed = head })
	if step, _ := d.Next(ctx, v.ID, 1); step.Do != task.DoStop {
		t.Fatalf("done: next is %v", step)
	}
	_, err = d.Cancel(ctx, d.scope, ada, "t-1")
	wantKind(t, err, cofferdam.Conflict)
	_, err = d.Retry(ctx, d.scope, ada, "t-1", nil)
	wantKind(t, err, cofferdam.Conflict)
	want := ">queued queued>preparing preparing>running running>verifying verifying>in review in review>done"
	if got := strings.Join(d.rec.moves(), " "); got != want {
		t.Fatalf("on record:\n%s\nwant\n%s", got, want)
	}
	last := d.rec.events[len(d.rec.events)-1]
	if !last.Durable || last.Fields["landed"] != string(head) || last.Task != v.ID || last.Scope != d.scope {
		t.Fatalf("the record of done is %+v", last)
	}
}

// TestNoRecordNoMove takes the record away: nothing moves without it.
func TestNoRecordNoMove(t *testing.T) {
	d := open(t)
	v := d.create(t)
	d.rec.fail = errors.New("disk full")
	if _, err := d.Advance(t.Context(), task.Move{Task: v.ID, Attempt: 1, From: cofferdam.Queued, To: cofferdam.Preparing}); err == nil {
		t.Fatal("a task moved without a record")
	}
	if _, err := d.Cancel(t.Context(), d.scope, ada, "t-1"); err == nil {
		t.Fatal("a task was cancelled without a record")
	}
	if now, _ := d.Get(t.Context(), d.scope, "t-1"); now.State != cofferdam.Queued {
		t.Fatalf("the task is %s", now.State)
	}
	_, err := d.Create(t.Context(), task.Order{Scope: d.scope, By: ada, Request: request(), Repo: d.repo})
	wantKind(t, err, cofferdam.Unavailable)
	if now, err := d.Get(t.Context(), d.scope, "t-2"); cofferdam.KindOf(err) != cofferdam.NotFound {
		t.Fatalf("a task without a record of its start is there: %s, %v", now.State, err)
	}
}

func TestAdvanceIsStale(t *testing.T) {
	d := open(t)
	v := d.create(t)
	d.advance(t, v, cofferdam.Preparing, nil)
	for _, m := range []task.Move{
		{Task: v.ID, Attempt: 1, From: cofferdam.Queued, To: cofferdam.Preparing},
		{Task: v.ID, Attempt: 2, From: cofferdam.Preparing, To: cofferdam.Running},
	} {
		if _, err := d.Advance(t.Context(), m); !errors.Is(err, task.ErrStale) {
			t.Errorf("%+v: %v, want stale", m, err)
		}
	}
	_, err := d.Advance(t.Context(), task.Move{Task: v.ID, Attempt: 1, From: cofferdam.Preparing, To: cofferdam.InReview})
	wantKind(t, err, cofferdam.Conflict)
	if errors.Is(err, task.ErrStale) {
		t.Fatal("a move that is not allowed passes for a stale one")
	}
}

func TestCancelRetryReject(t *testing.T) {
	d := open(t)
	ctx := t.Context()
	v := d.inReview(t)
	if _, err := d.store.AddApproval(ctx, v, cofferdam.Approval{Commit: head, By: ada, Time: time.Now()}); err != nil {
		t.Fatal(err)
	}
	_, err := d.Reject(ctx, d.scope, claude, "t-1", cofferdam.RejectRequest{Commit: head}, "password")
	wantKind(t, err, cofferdam.Forbidden)
	_, err = d.Reject(ctx, d.scope, ada, "t-1", cofferdam.RejectRequest{Commit: v.BaseAt, Reason: "another commit"}, "password")
	wantKind(t, err, cofferdam.Conflict)
	v, err = d.Reject(ctx, d.scope, ada, "t-1", cofferdam.RejectRequest{Commit: head, Reason: "not this way"}, "password")
	if err != nil || v.State != cofferdam.Blocked || v.Reason != cofferdam.ReasonRejected || !strings.Contains(v.Comment, "not this way") {
		t.Fatalf("rejected: %s %s %q, %v", v.State, v.Reason, v.Comment, err)
	}
	v, err = d.Retry(ctx, d.scope, ada, "t-1", nil)
	if err != nil || v.State != cofferdam.Queued || v.Attempt != 2 || v.Head != "" || v.Receipt != "" || v.Branch != "refs/heads/cofferdam/t-1-2" || v.Reason != "" {
		t.Fatalf("tried again: %+v, %v", v, err)
	}
	void := d.rec.events[len(d.rec.events)-2]
	if void.Kind != cofferdam.EventVoid || void.Fields["commit"] != string(head) || !void.Durable {
		t.Fatalf("the record does not say that the approval counts no longer: %+v", void)
	}
	if step, _ := d.Next(ctx, v.ID, 1); step.Do != task.DoStop {
		t.Fatalf("the old attempt goes on: %v", step)
	}
	if step, _ := d.Next(ctx, v.ID, 2); step.Do != task.DoPrepare {
		t.Fatalf("the new attempt does not begin: %v", step)
	}
	for range 2 { // twice is no error
		if v, err = d.Cancel(ctx, d.scope, ada, string(v.ID)); err != nil || v.State != cofferdam.Cancelled {
			t.Fatalf("cancelled: %s, %v", v.State, err)
		}
	}
	_, err = d.Cancel(ctx, d.scope, ada, "t-9")
	wantKind(t, err, cofferdam.NotFound)
	for range task.MaxAttempt - 2 {
		if _, err = d.Retry(ctx, d.scope, ada, "t-1", nil); err == nil {
			_, err = d.Cancel(ctx, d.scope, ada, "t-1")
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	_, err = d.Retry(ctx, d.scope, ada, "t-1", nil)
	wantKind(t, err, cofferdam.Exhausted)
}

func TestWatch(t *testing.T) {
	d := open(t)
	v := d.create(t)
	enough := errors.New("enough")
	seen, done := make(chan cofferdam.TaskState), make(chan error, 1)
	go func() {
		done <- d.Watch(t.Context(), v.ID, func(v cofferdam.Task) error {
			seen <- v.State
			if v.State.Ended() {
				return enough
			}
			return nil
		})
	}()
	if got := <-seen; got != cofferdam.Queued {
		t.Fatalf("first seen %s", got)
	}
	d.advance(t, v, cofferdam.Preparing, nil)
	if got := <-seen; got != cofferdam.Preparing {
		t.Fatalf("then seen %s", got)
	}
	if _, err := d.Cancel(t.Context(), d.scope, ada, "t-1"); err != nil {
		t.Fatal(err)
	}
	if got := <-seen; got != cofferdam.Cancelled {
		t.Fatalf("at last seen %s", got)
	}
	if err := <-done; !errors.Is(err, enough) {
		t.Fatalf("Watch ends with %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := d.Watch(ctx, v.ID, func(cofferdam.Task) error { return nil }); !errors.Is(err, context.Canceled) {
		t.Fatalf("Watch after the end of its context: %v", err)
	}
}

// TestWatchSeesASessionBegin: a session that begins changes nothing of its task, and who
// follows the task has to know it all the same.
func TestWatchSeesASessionBegin(t *testing.T) {
	d := open(t)
	v := d.create(t)
	enough := errors.New("enough")
	seen, done := make(chan int), make(chan error, 1)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	go func() {
		done <- d.Watch(ctx, v.ID, func(v cofferdam.Task) error {
			seen <- len(v.Sessions)
			if len(v.Sessions) > 0 {
				return enough
			}
			return nil
		})
	}()
	if n := <-seen; n != 0 {
		t.Fatalf("first seen with %d sessions", n)
	}
	plan := session.Plan{ID: cofferdam.SessionID(cofferdam.NewID("s")), Scope: d.scope, Task: v.ID, Number: v.Number, Attempt: 1, Request: v.Request}
	if err := d.store.BeginSession(ctx, "work", 1, plan); err != nil {
		t.Fatal(err)
	}
	d.SessionBegan()
	select {
	case n := <-seen:
		if n != 1 {
			t.Errorf("then seen with %d sessions", n)
		}
	case <-ctx.Done():
		t.Fatal("the session was not seen")
	}
	if err := <-done; !errors.Is(err, enough) {
		t.Fatalf("Watch ends with %v", err)
	}
}

func TestStrangersRepo(t *testing.T) {
	d := open(t)
	r := d.repo
	r.Project = "p-other"
	_, err := d.Create(t.Context(), task.Order{Scope: d.scope, By: ada, Request: request(), Repo: r})
	wantKind(t, err, cofferdam.Invalid)
}
