package gateway_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"cofferdam"
	"cofferdam/budget"
	"cofferdam/gateway"
	"cofferdam/policy"
)

// crowd is people who answer many questions at once; every answer is for one use.
type crowd struct {
	mu    sync.Mutex
	asked map[cofferdam.QuestionID]cofferdam.Question
	uses  map[cofferdam.QuestionID]int
}

func (c *crowd) Ask(_ context.Context, q cofferdam.Question) (cofferdam.Question, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	q.ID = cofferdam.QuestionID(fmt.Sprintf("q-%d", len(c.asked)+1))
	c.asked[q.ID] = q
	c.uses[q.ID] = 1
	q.State, q.Answers = cofferdam.QuestionAllowed, []cofferdam.Answer{{By: cofferdam.Principal{Kind: cofferdam.Person, Name: "ann"}, Allow: true}}
	return q, nil
}

func (c *crowd) Use(_ context.Context, id cofferdam.QuestionID, hash cofferdam.Digest) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.asked[id].Hash != hash || c.uses[id] == 0 {
		return &cofferdam.Error{Kind: cofferdam.Conflict, Reason: "no answer is left"}
	}
	c.uses[id]--
	return nil
}

func (c *crowd) UseOpening(context.Context, cofferdam.QuestionID, int) error {
	return &cofferdam.Error{Kind: cofferdam.Conflict, Reason: "nothing is open"}
}

func (c *crowd) TakeBytes(context.Context, cofferdam.QuestionID, int64, int64) error {
	return &cofferdam.Error{Kind: cofferdam.Conflict, Reason: "nothing is open"}
}

func (c *crowd) EndOpening(context.Context, cofferdam.Scope, cofferdam.QuestionID, string) error {
	return nil
}

// TestAnswersPolicyAndUseAtOnce: while the policy goes to and fro between asking
// and denying, an act passes only by an answer of its own, once, that was given
// under the policy by which the act is judged; all others are refused, on record.
func TestAnswersPolicyAndUseAtOnce(t *testing.T) {
	c, rec, _ := asking(t, askAsked)
	people := &crowd{asked: map[cofferdam.QuestionID]cofferdam.Question{}, uses: map[cofferdam.QuestionID]int{}}
	c.Ask = people
	asks := c.Policy.Set().Grant()
	shut, err := policy.ParseDocument("project", []byte("[egress]\ndeny = [\"asked.test\"]\n"), nil)
	if err != nil {
		t.Fatal(err)
	}
	denies := asks
	denies.Project = &shut
	asking := c.Policy.Digest()

	var passed, refused atomic.Int64
	var acts, moves sync.WaitGroup
	stop := make(chan struct{})
	moves.Go(func() {
		for {
			for _, g := range []policy.Grant{denies, asks} {
				select {
				case <-stop:
					return
				default:
				}
				if err := c.Policy.Replace(g); err != nil {
					t.Error(err)
				}
			}
		}
	})
	const workers, each = 8, 25
	for range workers {
		acts.Go(func() {
			for range each {
				err := gateway.Handle(t.Context(), c, request("asked.test"), func(context.Context) (gateway.Outcome, error) {
					passed.Add(1)
					return gateway.Outcome{}, nil
				})
				switch {
				case err == nil:
				case cofferdam.KindOf(err) == cofferdam.Denied:
					refused.Add(1)
				default:
					t.Error(err)
				}
			}
		})
	}
	acts.Wait()
	close(stop)
	moves.Wait()
	if passed.Load()+refused.Load() != workers*each {
		t.Errorf("%d passed and %d were refused of %d", passed.Load(), refused.Load(), workers*each)
	}
	for _, last := range []struct {
		g      policy.Grant
		passes int64
	}{{asks, 1}, {denies, 0}} { // controls: each policy alone
		if err := c.Policy.Replace(last.g); err != nil {
			t.Fatal(err)
		}
		before := passed.Load()
		_ = gateway.Handle(t.Context(), c, request("asked.test"), func(context.Context) (gateway.Outcome, error) {
			passed.Add(1)
			return gateway.Outcome{}, nil
		})
		if n := passed.Load() - before; n != last.passes {
			t.Errorf("%d acts passed, want %d", n, last.passes)
		}
	}
	used := map[cofferdam.QuestionID]bool{}
	for _, e := range rec.Events() {
		if e.Verdict != cofferdam.Allowed {
			continue
		}
		id := cofferdam.QuestionID(e.Fields["approval"])
		if q := people.asked[id]; used[id] || q.Policy != asking || people.uses[id] != 0 {
			t.Errorf("an act passed by %q, used before: %v, asked under %s", id, used[id], q.Policy)
		}
		used[id] = true
	}
	if int64(len(used)) != passed.Load() {
		t.Errorf("%d acts passed by %d answers", passed.Load(), len(used))
	}
}

// TestQuestionsToPeopleHaveALimit: a task asks no more than its budget has, and
// what beyond that would be asked is refused before anybody sees it.
func TestQuestionsToPeopleHaveALimit(t *testing.T) {
	c, rec, d := asking(t, askAsked)
	c.Budget = budget.New(cofferdam.Budget{Approvals: 3}, budget.Amount{Approvals: 1}) // a session before it asked one
	passed := 0
	for range 4 {
		err := gateway.Handle(t.Context(), c, request("asked.test"), func(context.Context) (gateway.Outcome, error) {
			passed++
			return gateway.Outcome{}, nil
		})
		if err != nil && cofferdam.KindOf(err) != cofferdam.Denied {
			t.Error(err)
		}
	}
	e := rec.Events()
	if passed != 2 || len(d.asked) != 2 || e[len(e)-1].Rule != cofferdam.RuleBudget {
		t.Errorf("%d passed, %d were asked, the last is refused by %q", passed, len(d.asked), e[len(e)-1].Rule)
	}
}
