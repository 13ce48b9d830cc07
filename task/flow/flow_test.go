package flow

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"cofferdam"
	"cofferdam/internal/store"
	"cofferdam/proof"
	"cofferdam/task"
)

const (
	roleVariable    = "COFFERDAM_FLOW_TEST_ROLE"
	dirVariable     = "COFFERDAM_FLOW_TEST_DIR"
	programVariable = "COFFERDAM_FLOW_TEST_PROGRAM"
)

func TestMain(m *testing.M) {
	if os.Getenv(roleVariable) == "server" {
		if err := serve(os.Getenv(dirVariable), os.Getenv(programVariable)); err != nil {
			fmt.Println("error", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func patience(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

func open(t *testing.T, ctx context.Context, point func(*stage, string)) *stage {
	t.Helper()
	p, err := program()
	if err != nil {
		t.Fatal(err)
	}
	s, err := enter(ctx, t.TempDir(), p, point)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.leave)
	return s
}

// TestOutcomes plays every way a task can go on one real engine.
func TestOutcomes(t *testing.T) {
	ctx := patience(t, 4*time.Minute)
	s := open(t, ctx, nil)
	mend := cofferdam.Check{Command: "make test", MustFailFirst: true}
	keep := cofferdam.Check{Command: "make lint"}
	for _, c := range []struct {
		name   string
		text   string
		checks []cofferdam.Check
		want   cofferdam.TaskState
		reason string
	}{
		{"good", "good", []cofferdam.Check{mend, keep}, cofferdam.InReview, ""},
		{"regression only", "good", []cofferdam.Check{keep}, cofferdam.InReview, ""},
		{"nothing to do", "idle", []cofferdam.Check{keep}, cofferdam.NothingToDo, ""},
		{"idle", "idle", []cofferdam.Check{mend}, cofferdam.Blocked, cofferdam.ReasonAgent},
		{"two boxes lost", "loses 2", nil, cofferdam.InReview, ""},
		{"all boxes lost", "loses 3", nil, cofferdam.Blocked, cofferdam.ReasonBox},
		{"foreign commit", "foreign", nil, cofferdam.Blocked, cofferdam.ReasonAgent},
		{"broken", "broken", nil, cofferdam.Failed, cofferdam.ReasonInternal},
		{"no box", "boxless", nil, cofferdam.Failed, cofferdam.ReasonEnvironment},
		{"away for a while", "away", nil, cofferdam.InReview, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			v, err := s.create(ctx, c.text, c.checks...)
			if err == nil {
				v, err = s.until(ctx, v, cofferdam.InReview)
			}
			if err != nil {
				t.Fatal(err)
			}
			if v.State != c.want || v.Reason != c.reason {
				t.Fatalf("%s %q (%s), want %s %q", v.State, v.Reason, v.Comment, c.want, c.reason)
			}
			if strings.Contains(v.Comment, "\n") {
				t.Errorf("a comment of several lines: %q", v.Comment)
			}
			if v.State == cofferdam.InReview {
				checkReceipt(t, ctx, s, v)
			} else if _, err := s.store.ReceiptFor(ctx, v.ID, v.Head); cofferdam.KindOf(err) != cofferdam.NotFound {
				t.Fatalf("a task that is %s has a receipt (%v)", v.State, err)
			}
		})
	}
	t.Run("unreachable upstream", func(t *testing.T) {
		s.actors.mu.Lock()
		s.actors.unsynced = true
		s.actors.mu.Unlock()
		v, err := s.create(ctx, "good")
		if err == nil {
			v, err = s.until(ctx, v, cofferdam.InReview)
		}
		s.actors.mu.Lock()
		s.actors.unsynced = false
		s.actors.mu.Unlock()
		if err != nil || v.State != cofferdam.Blocked || v.Reason != cofferdam.ReasonRepository || !strings.Contains(v.Comment, "there is none") {
			t.Fatalf("%s %q %q, %v", v.State, v.Reason, v.Comment, err)
		}
	})
	t.Run("branch taken", func(t *testing.T) { testTaken(t, ctx, s) })
	t.Run("cancelled", func(t *testing.T) { testCancel(t, ctx, s) })
	t.Run("landing", func(t *testing.T) { testLanding(t, ctx, s) })
	if s.actors.together {
		t.Error("a session ran twice at a time")
	}
}

// checkReceipt opens the signed note and holds it against the task.
func checkReceipt(t *testing.T, ctx context.Context, s *stage, v cofferdam.Task) {
	t.Helper()
	kept, err := s.store.ReceiptFor(ctx, v.ID, v.Head)
	if err != nil {
		t.Fatal(err)
	}
	r, err := proof.OpenReceipt(kept.Note, s.key)
	if err != nil {
		t.Fatal(err)
	}
	if r.ID != v.Receipt || r.Commit != v.Head || r.Base != v.BaseAt || r.Task != v.ID || len(r.Sessions) != 3 ||
		r.RegressionOnly != v.RegressionOnly || !r.Report().Held || len(r.Checks) != len(v.Request.Checks) {
		t.Fatalf("the receipt says %+v", r)
	}
	if v.RegressionOnly == v.Request.Checks[0].MustFailFirst {
		t.Fatalf("regression only is %v", v.RegressionOnly)
	}
	if r.Checks[0].MustFailFirst && r.Checks[0].BaseExit == 0 {
		t.Fatal("the receipt does not show that the check failed first")
	}
	if v.Usage.InputTokens != int64(10*len(v.Sessions)) {
		t.Fatalf("the task spent %+v in %d sessions", v.Usage, len(v.Sessions))
	}
}

func testCancel(t *testing.T, ctx context.Context, s *stage) {
	v, err := s.create(ctx, "waits")
	if err != nil {
		t.Fatal(err)
	}
	id := <-s.actors.waiting
	began := time.Now()
	if v, err = s.tasks.Cancel(ctx, s.scope, ada, v.Short()); err != nil {
		t.Fatal(err)
	}
	for { // the session's end is told to nobody but the store
		r, ended, err := s.store.LoadResult(ctx, id)
		if err != nil {
			t.Fatal(err)
		}
		if ended {
			if r.Failure != "cancelled" {
				t.Fatalf("the session ended with %q", r.Failure)
			}
			break
		}
		select {
		case <-ctx.Done():
			t.Fatal("the session goes on")
		case <-time.After(10 * time.Millisecond):
		}
	}
	if d := time.Since(began); d > 30*time.Second {
		t.Fatalf("the session went on for %s, and grants have to be dead within 5 s", d)
	} else if d > 5*time.Second {
		t.Logf("the session went on for %s", d) // on a busy machine
	}
	// A new attempt is a new workflow, with its own sessions.
	if v, err = s.tasks.Retry(ctx, s.scope, ada, v.Short(), nil); err != nil {
		t.Fatal(err)
	}
	if err := s.flow.Ensure(ctx, v); err != nil {
		t.Fatal(err)
	}
	if again := <-s.actors.waiting; again == id {
		t.Fatal("the new attempt runs the old session")
	}
	if _, err := s.tasks.Cancel(ctx, s.scope, ada, v.Short()); err != nil {
		t.Fatal(err)
	}
}

func testLanding(t *testing.T, ctx context.Context, s *stage) {
	reviewed := func() cofferdam.Task {
		v, err := s.create(ctx, "good")
		if err == nil {
			v, err = s.until(ctx, v, cofferdam.InReview)
		}
		if err != nil || v.State != cofferdam.InReview {
			t.Fatalf("%s, %v", v.State, err)
		}
		return v
	}
	late, first := reviewed(), reviewed()
	if err := write(filepath.Join(s.dir, "base"), "dddddddddddddddddddddddddddddddddddddddd"); err != nil {
		t.Fatal(err)
	}
	if err := s.merge(ctx, late); err != nil {
		t.Fatal(err)
	}
	err := s.tasks.Watch(ctx, late.ID, func(now cofferdam.Task) error {
		if late = now; now.Reason != "" {
			return errReached
		}
		return nil
	})
	if err != errReached || late.State != cofferdam.InReview || late.Reason != cofferdam.ReasonBaseMoved || !strings.Contains(late.Comment, "task retry") {
		t.Fatalf("after the base moved: %s %q %q, %v", late.State, late.Reason, late.Comment, err)
	}
	if err := write(filepath.Join(s.dir, "base"), string(baseCommit)); err != nil {
		t.Fatal(err)
	}
	if err := s.merge(ctx, first); err != nil {
		t.Fatal(err)
	}
	if first, err = s.until(ctx, first, cofferdam.Done); err != nil || first.State != cofferdam.Done || first.Landed != headCommit {
		t.Fatalf("landed: %s %s (%s), %v", first.State, first.Landed, first.Comment, err)
	}
}

// TestMissedWake keeps a task of which the engine was never told: the flow finds
// it in the store.
func TestMissedWake(t *testing.T) {
	ctx := patience(t, time.Minute)
	s := open(t, ctx, nil)
	v, err := s.tasks.Create(ctx, task.Order{Scope: s.scope, By: ada, Repo: s.repo, Request: cofferdam.TaskRequest{Text: "good", Agent: "command", Command: "true", Checks: []cofferdam.Check{{Command: "make test", MustFailFirst: true}}}})
	if err != nil {
		t.Fatal(err)
	}
	idle := s.flow.look(ctx, nil)
	if !idle[Input{v.ID, 1}] {
		t.Fatalf("not found: %v", idle)
	}
	if now, _ := s.tasks.ByID(ctx, v.ID); now.State != cofferdam.Queued {
		t.Fatalf("found for the first time, and %s already", now.State)
	}
	s.flow.look(ctx, idle)
	if v, err = s.until(ctx, v, cofferdam.InReview); err != nil || v.State != cofferdam.InReview {
		t.Fatalf("%s, %v", v.State, err)
	}
	if idle := s.flow.look(ctx, nil); len(idle) != 0 {
		t.Fatalf("a task that waits for a person is taken for forgotten: %v", idle)
	}
}

// TestServerGoesAndComes closes a server in the middle of an agent's run. The
// next one goes on with that very session; one whose task has ended meanwhile is
// closed.
func TestServerGoesAndComes(t *testing.T) {
	ctx := patience(t, 2*time.Minute)
	p, err := program()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	s, err := enter(ctx, dir, p, nil)
	if err != nil {
		t.Fatal(err)
	}
	v, err := s.create(ctx, "waits")
	if err != nil {
		t.Fatal(err)
	}
	id := <-s.actors.waiting
	s.leave()
	if s, err = enter(ctx, dir, p, nil); err != nil {
		t.Fatal(err)
	}
	if again := <-s.actors.waiting; again != id {
		t.Fatalf("the next server runs %s, want %s", again, id)
	}
	if now, _ := s.tasks.ByID(ctx, v.ID); now.State != cofferdam.Running || len(now.Sessions) != 2 {
		t.Fatalf("the task is %s with sessions %v", now.State, now.Sessions)
	}
	s.leave()
	// While no server is there the task ends.
	st, err := store.Open(ctx, filepath.Join(dir, "cofferdam.db"))
	if err != nil {
		t.Fatal(err)
	}
	_, err = task.New(task.Options{Store: st, Record: &recordFile{path: filepath.Join(dir, "record")}}).Cancel(ctx, v.Scope, ada, v.Short())
	if err != nil {
		t.Fatal(err)
	}
	st.Close()
	if s, err = enter(ctx, dir, p, nil); err != nil {
		t.Fatal(err)
	}
	defer s.leave()
	if err := s.flow.o.Client.GetWorkflow(ctx, workflowID(Input{v.ID, 1}), "").Get(ctx, nil); err != nil {
		t.Fatal(err)
	}
	if r, ended, err := s.store.LoadResult(ctx, id); err != nil || !ended || r.Failure != "cancelled" {
		t.Fatalf("the session of the ended task: %v %v %v", r, ended, err)
	}
}

// every is each point at which the flow can be hit.
func every() []string {
	var points []string
	for _, step := range []string{"prepare", "work", "verify", "land", "end"} {
		points = append(points, step+":before", step+":after")
	}
	return append(points, "verify:signed", "land:moved")
}

// once says whether a point is met for the first time in this folder.
func once(dir, point string) bool {
	f, err := os.OpenFile(filepath.Join(dir, "hit-"+strings.ReplaceAll(point, ":", "-")), os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return false
	}
	f.Close()
	return true
}

// serve is a server as far as this room goes, which kills itself with SIGKILL at
// every point of the flow, each once.
func serve(dir, program string) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	s, err := enter(ctx, dir, program, func(_ *stage, point string) {
		if once(dir, point) {
			syscall.Kill(os.Getpid(), syscall.SIGKILL)
		}
	})
	if err != nil {
		return err
	}
	defer s.leave()
	v, err := s.tasks.Get(ctx, s.scope, "t-1")
	if cofferdam.KindOf(err) == cofferdam.NotFound {
		v, err = s.create(ctx, "good")
	}
	if err != nil {
		return err
	}
	if v, err = s.until(ctx, v, cofferdam.InReview); err != nil {
		return err
	}
	if v.State == cofferdam.InReview {
		if err := s.merge(ctx, v); err != nil {
			return err
		}
	}
	if v, err = s.until(ctx, v, cofferdam.Done); err != nil {
		return err
	}
	// The workflow's own end comes after the task's; wait for it as well.
	err = s.flow.o.Client.GetWorkflow(ctx, workflowID(Input{v.ID, v.Attempt}), "").Get(ctx, nil)
	fmt.Println("state", v.State, err)
	return nil
}

// TestServerKilledEverywhere kills the server at every point of a task's life,
// one after the other, and starts it again. The end is the same: one landing,
// one receipt, three sessions.
func TestServerKilledEverywhere(t *testing.T) {
	p, err := program()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	me, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	said, kills := "", 0
	for said == "" {
		cmd := exec.Command(me)
		cmd.Env = []string{roleVariable + "=server", dirVariable + "=" + dir, programVariable + "=" + p}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		for in := bufio.NewScanner(out); in.Scan(); {
			said = in.Text()
		}
		err = cmd.Wait()
		if err != nil && said == "" {
			kills++
		}
		if kills > len(every()) {
			t.Fatalf("ended %d times without a word: %v", kills, err)
		}
	}
	if want := "state done <nil>"; said != want || kills < len(every())-1 {
		t.Fatalf("after %d kills it says %q, want %q after at least %d", kills, said, want, len(every())-1)
	}
	checkEnd(t, dir)
}

// checkEnd looks at what a task that was hit everywhere left behind.
func checkEnd(t *testing.T, dir string) {
	t.Helper()
	if l := lines(filepath.Join(dir, "base")); !slices.Equal(l, []string{string(headCommit)}) {
		t.Errorf("the base branch moved like this: %v", l)
	}
	seen := map[string]bool{}
	for _, l := range lines(filepath.Join(dir, "runs")) {
		seen[l] = true
	}
	if len(seen) != 3 {
		t.Errorf("sessions: %v, want 3", seen)
	}
	done, landed := 0, 0
	for _, l := range lines(filepath.Join(dir, "record")) {
		if strings.Contains(l, `"to":"done"`) {
			done++
		}
		if strings.Contains(l, `"kind":"merge.land"`) && strings.Contains(l, `"outcome":"ok"`) {
			landed++
		}
	}
	if done == 0 || landed == 0 {
		t.Errorf("on record: %d times done, %d times landed", done, landed)
	}
}

// TestEngineKilledEverywhere does the same to the engine while the server lives.
func TestEngineKilledEverywhere(t *testing.T) {
	ctx := patience(t, 4*time.Minute)
	var mu sync.Mutex
	kills := 0
	s := open(t, ctx, func(s *stage, point string) {
		if !once(s.dir, point) {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		if pid := s.engine.PID(); pid != 0 && syscall.Kill(pid, syscall.SIGKILL) == nil {
			kills++
		}
	})
	v, err := s.create(ctx, "good")
	if err == nil {
		v, err = s.until(ctx, v, cofferdam.InReview)
	}
	if err == nil {
		err = s.merge(ctx, v)
	}
	if err == nil {
		v, err = s.until(ctx, v, cofferdam.Done)
	}
	if err != nil || v.State != cofferdam.Done {
		t.Fatalf("%s (%s), %v", v.State, v.Comment, err)
	}
	mu.Lock()
	defer mu.Unlock()
	if kills < 4 {
		t.Errorf("the engine was killed only %d times: the test does not test", kills)
	}
	checkEnd(t, s.dir)
	if s.actors.together {
		t.Error("a session ran twice at a time")
	}
}
