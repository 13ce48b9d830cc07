package store

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"cofferdam"
)

func TestQuestions(t *testing.T) {
	s, ctx := open(t), t.Context()
	task := s.create(t, "")
	add := func(hash cofferdam.Digest, needs int) cofferdam.Question {
		t.Helper()
		q := cofferdam.Question{
			Schema: "cofferdam/approval/v1", ID: cofferdam.QuestionID(cofferdam.NewID("a")), Scope: task.Scope, Task: task.ID, Hash: hash, Needs: needs,
			State: cofferdam.QuestionOpen, Reason: "why", Created: time.Now().UTC(), Bytes: []byte{0, 1, 255}, Resource: "a.test\x1b[2J",
		}
		if err := s.AddQuestion(ctx, q); err != nil {
			t.Fatal(err)
		}
		return q
	}
	say := func(name string, allow bool) cofferdam.Answer {
		return cofferdam.Answer{By: cofferdam.Principal{Kind: cofferdam.Person, Name: name}, Allow: allow, Proof: "password", Time: time.Now().UTC()}
	}
	q := add("h-1", 1)
	got, err := s.Question(ctx, task.Scope, string(q.ID)[:9])
	if err != nil || fmt.Sprint(got) != fmt.Sprint(q) {
		t.Errorf("%+v\nnot %+v, %v", got, q, err)
	}
	other := task.Scope
	other.Project = "p-other"
	if _, err := s.Question(ctx, other, string(q.ID)); cofferdam.KindOf(err) != cofferdam.NotFound {
		t.Errorf("another project sees it: %v", err)
	}
	if err := s.UseAnswer(ctx, q.ID, q.Hash); cofferdam.KindOf(err) != cofferdam.Conflict {
		t.Errorf("used before an answer: %v", err)
	}
	for _, raw := range []string{
		`UPDATE question SET state = 'allowed' WHERE id = ?`, `UPDATE question SET used = 1 WHERE id = ?`, `UPDATE question SET hash = 'x' WHERE id = ?`, `DELETE FROM question WHERE id = ?`,
	} {
		if _, err := s.write.ExecContext(ctx, raw, q.ID); err == nil {
			t.Errorf("%s passed", raw)
		}
	}
	if q, err = s.Answer(ctx, q.ID, say("ann", true), cofferdam.QuestionAllowed); err != nil || q.State != cofferdam.QuestionAllowed || len(q.Answers) != 1 {
		t.Fatalf("%+v, %v", q, err)
	}
	if _, err := s.Answer(ctx, q.ID, say("bob", false), cofferdam.QuestionDenied); err == nil {
		t.Error("answered twice")
	}
	var mu sync.Mutex
	var all sync.WaitGroup
	used := 0
	for range 20 {
		all.Go(func() {
			if s.UseAnswer(ctx, q.ID, "h-1") == nil {
				mu.Lock()
				used++
				mu.Unlock()
			}
		})
	}
	all.Wait()
	if used != 1 || s.UseAnswer(ctx, q.ID, "h-2") == nil {
		t.Errorf("used %d times", used)
	}
	two := add("h-2", 2)
	if _, err := s.Answer(ctx, two.ID, say("ann", true), cofferdam.QuestionAllowed); err == nil {
		t.Error("one person was enough for two")
	}
	if _, err := s.Answer(ctx, two.ID, say("ann", true), cofferdam.QuestionOpen); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Answer(ctx, two.ID, say("ann", true), cofferdam.QuestionAllowed); err == nil {
		t.Error("the same person answered twice")
	}
	agent := say("x", true)
	agent.By.Kind = cofferdam.Agent
	if _, err := s.Answer(ctx, two.ID, agent, cofferdam.QuestionAllowed); err == nil || !strings.Contains(err.Error(), "CHECK") {
		t.Errorf("an agent answered: %v", err)
	}
	if _, err := s.Answer(ctx, two.ID, say("bob", false), cofferdam.QuestionDenied); err != nil {
		t.Fatal(err)
	}
	n, recent, denied, err := s.Tally(ctx, cofferdam.Question{Task: task.ID, Hash: "h-2"}, time.Now().Add(-time.Hour))
	if err != nil || n != 2 || recent != 2 || denied.IsZero() {
		t.Errorf("%d, %d, %v, %v", n, recent, denied, err)
	}
	three := add("h-3", 1)
	if open, err := s.OpenQuestions(ctx); err != nil || len(open) != 1 || open[0].ID != three.ID {
		t.Errorf("%+v, %v", open, err)
	}
	for range 2 {
		if err := s.EndQuestion(ctx, three.ID, cofferdam.QuestionExpired, "nobody answered"); err != nil {
			t.Fatal(err)
		}
	}
	if list, err := s.Questions(ctx, task.Scope, false, 0); err != nil || len(list) != 3 || list[0].Reason != "nobody answered" {
		t.Errorf("%+v, %v", list, err)
	}
}

// A message of a system outside counts once, also for two who take it at the same
// time, and is forgotten when it could count no more.
func TestMessagesCountOnce(t *testing.T) {
	s, ctx := open(t), t.Context()
	at := time.Now().UTC()
	var took atomic.Int64
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			switch err := s.Deliver(ctx, "chat", "message-1", at, at.Add(-time.Minute)); {
			case err == nil:
				took.Add(1)
			case cofferdam.KindOf(err) != cofferdam.Conflict:
				t.Error(err)
			}
		})
	}
	all.Wait()
	if took.Load() != 1 {
		t.Errorf("it counted %d times", took.Load())
	}
	if err := s.Deliver(ctx, "desk", "message-1", at, at.Add(-time.Minute)); err != nil {
		t.Errorf("of another system: %v", err)
	}
	if err := s.Deliver(ctx, "chat", "message-2", at.Add(time.Hour), at.Add(time.Minute)); err != nil {
		t.Error(err)
	}
	var n int
	if err := s.read.QueryRowContext(ctx, `SELECT COUNT(*) FROM delivery`).Scan(&n); err != nil || n != 1 {
		t.Errorf("%d are kept, %v", n, err)
	}
}
