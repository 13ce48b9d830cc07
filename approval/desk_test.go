package approval

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"cofferdam"
)

// memory is a Store of this test.
type memory struct {
	mu    sync.Mutex
	all   []cofferdam.Question
	ended map[cofferdam.QuestionID]bool // openings
}

func (m *memory) Tally(_ context.Context, like cofferdam.Question, since time.Time) (all, recent int, denied time.Time, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, q := range m.all {
		if q.Task != like.Task {
			continue
		}
		all++
		if q.Created.After(since) {
			recent++
		}
		same := q.Hash == like.Hash || q.Proposed != nil && like.Proposed != nil && q.Proposed.Entry == like.Proposed.Entry
		if same && q.State == cofferdam.QuestionDenied {
			denied = q.Answers[len(q.Answers)-1].Time
		}
	}
	return all, recent, denied, nil
}

func (m *memory) AddQuestion(_ context.Context, q cofferdam.Question) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.all = append(m.all, q)
	return nil
}

func (m *memory) find(id cofferdam.QuestionID) *cofferdam.Question {
	for i := range m.all {
		if m.all[i].ID == id {
			return &m.all[i]
		}
	}
	return &cofferdam.Question{}
}

func (m *memory) Question(_ context.Context, scope cofferdam.Scope, id string) (cofferdam.Question, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if q := m.find(cofferdam.QuestionID(id)); q.ID != "" && q.Scope == scope {
		return *q, nil
	}
	return cofferdam.Question{}, &cofferdam.Error{Kind: cofferdam.NotFound}
}

func (m *memory) Answer(_ context.Context, id cofferdam.QuestionID, a cofferdam.Answer, state cofferdam.QuestionState) (cofferdam.Question, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	q := m.find(id)
	for _, o := range q.Answers {
		if o.By == a.By {
			return *q, &cofferdam.Error{Kind: cofferdam.Conflict, Reason: "answered by the same person"}
		}
	}
	if q.State != cofferdam.QuestionOpen {
		return *q, &cofferdam.Error{Kind: cofferdam.Conflict, Reason: "not open"}
	}
	q.Answers, q.State, q.Reason = append(q.Answers[:len(q.Answers):len(q.Answers)], a), state, a.Comment
	return *q, nil
}

func (m *memory) UseAnswer(_ context.Context, id cofferdam.QuestionID, hash cofferdam.Digest) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	q := m.find(id)
	if q.State != cofferdam.QuestionAllowed || q.Hash != hash || q.Used > 0 {
		return &cofferdam.Error{Kind: cofferdam.Conflict, Reason: "used"}
	}
	q.Used++
	return nil
}

func (m *memory) UseOpening(context.Context, cofferdam.QuestionID, int) error { return nil }

func (m *memory) TakeBytes(context.Context, cofferdam.QuestionID, int64, int64) error { return nil }

func (m *memory) EndOpening(_ context.Context, id cofferdam.QuestionID, _ time.Time, _ string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ended[id] {
		return &cofferdam.Error{Kind: cofferdam.NotFound}
	}
	m.ended[id] = true
	return nil
}

func (m *memory) EndQuestion(_ context.Context, id cofferdam.QuestionID, state cofferdam.QuestionState, reason string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if q := m.find(id); q.State == cofferdam.QuestionOpen {
		q.State, q.Reason = state, reason
	}
	return nil
}

func (m *memory) OpenQuestions(context.Context) (open []cofferdam.Question, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, q := range m.all {
		if q.State == cofferdam.QuestionOpen {
			open = append(open, q)
		}
	}
	return open, nil
}

// record keeps what is recorded, or refuses.
type record struct {
	mu     sync.Mutex
	events []cofferdam.Event
	broken bool
}

func (r *record) Record(_ context.Context, e cofferdam.Event) (cofferdam.Event, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.broken {
		return e, errors.New("disk full")
	}
	r.events = append(r.events, e)
	return e, nil
}

func (r *record) kinds() (all []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.events {
		all = append(all, e.Kind)
	}
	return all
}

type lab struct {
	*Desk
	store  *memory
	record *record
	policy cofferdam.Digest
	told   chan cofferdam.Question
}

func newLab(t *testing.T) *lab {
	t.Helper()
	l := &lab{store: &memory{ended: map[cofferdam.QuestionID]bool{}}, record: &record{}, policy: "p-1", told: make(chan cofferdam.Question, 1000)}
	d, err := New(Options{
		Store: l.store, Record: l.record, Told: func(q cofferdam.Question) { l.told <- q },
		Policy: func(context.Context, cofferdam.SessionID) (cofferdam.Digest, error) { return l.policy, nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	l.Desk = d
	return l
}

func question(hash cofferdam.Digest) cofferdam.Question {
	return cofferdam.Question{Task: "t-1", Session: "s-1", Action: "request", Resource: "api.test:443", Hash: hash, Policy: "p-1", Rule: "ask-1", Needs: 1}
}

type outcome struct {
	q   cofferdam.Question
	err error
}

// ask asks in the background and returns the question as people see it.
func (l *lab) ask(ctx context.Context, q cofferdam.Question) (cofferdam.Question, chan outcome) {
	done := make(chan outcome, 1)
	go func() {
		q, err := l.Ask(ctx, q)
		done <- outcome{q, err}
	}()
	return <-l.told, done
}

func person(name string, allow bool) cofferdam.Answer {
	return cofferdam.Answer{By: cofferdam.Principal{Kind: cofferdam.Person, Name: name}, Allow: allow, Proof: "password"}
}

func TestAnAnswerLetsOneActPass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t)
		q, done := l.ask(t.Context(), question("h-1"))
		if err := l.Use(t.Context(), q.ID, "h-1"); cofferdam.KindOf(err) != cofferdam.Conflict {
			t.Errorf("used before an answer: %v", err)
		}
		if _, err := l.Answer(t.Context(), q.Scope, string(q.ID), q.Hash, person("ann", true)); err != nil {
			t.Fatal(err)
		}
		if o := <-done; o.err != nil || o.q.State != cofferdam.QuestionAllowed {
			t.Fatalf("%+v", o)
		}
		if err := l.Use(t.Context(), q.ID, "h-2"); cofferdam.KindOf(err) != cofferdam.Conflict {
			t.Errorf("used for something else: %v", err)
		}
		var used int
		for range 20 {
			if l.Use(t.Context(), q.ID, "h-1") == nil {
				used++
			}
		}
		if used != 1 {
			t.Errorf("used %d times", used)
		}
		if got := fmt.Sprint(l.record.kinds()); got != "[approval.ask approval.answer]" {
			t.Errorf("on record: %s", got)
		}
	})
}

func TestNoAnswerIsNo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t)
		q, done := l.ask(t.Context(), question("h-1"))
		time.Sleep(DefaultWait + time.Second)
		if o := <-done; cofferdam.KindOf(o.err) != cofferdam.Denied || o.q.State != cofferdam.QuestionExpired {
			t.Errorf("%+v", o)
		}
		if _, err := l.Answer(t.Context(), q.Scope, string(q.ID), q.Hash, person("ann", true)); cofferdam.KindOf(err) != cofferdam.Conflict {
			t.Errorf("answered after its time: %v", err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		_, done = l.ask(ctx, question("h-2"))
		cancel()
		if o := <-done; cofferdam.KindOf(o.err) != cofferdam.Denied || o.q.State != cofferdam.QuestionVoid {
			t.Errorf("who asked is gone: %+v", o)
		}
	})
}

func TestWhoMayAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t)
		q, done := l.ask(t.Context(), question("h-1"))
		agent, unproved := person("x", true), person("ann", true)
		agent.By.Kind, unproved.Proof = cofferdam.Agent, ""
		other := q.Scope
		other.Project = "p-other"
		for name, try := range map[string]func() error{
			"an agent":        func() error { _, err := l.Answer(t.Context(), q.Scope, string(q.ID), q.Hash, agent); return err },
			"without a proof": func() error { _, err := l.Answer(t.Context(), q.Scope, string(q.ID), q.Hash, unproved); return err },
			"another project": func() error {
				_, err := l.Answer(t.Context(), other, string(q.ID), q.Hash, person("ann", true))
				return err
			},
			"not what was seen": func() error {
				_, err := l.Answer(t.Context(), q.Scope, string(q.ID), "h-0", person("ann", true))
				return err
			},
			"bounds without end": func() error {
				a := person("ann", true)
				a.Bounds = &cofferdam.Bounds{Entry: "api.test", Seconds: 1e9}
				_, err := l.Answer(t.Context(), q.Scope, string(q.ID), q.Hash, a)
				return err
			},
		} {
			if try() == nil {
				t.Errorf("%s answered", name)
			}
		}
		l.policy = "p-2"
		if _, err := l.Answer(t.Context(), q.Scope, string(q.ID), q.Hash, person("ann", true)); cofferdam.KindOf(err) != cofferdam.Conflict {
			t.Errorf("answered for another policy: %v", err)
		}
		if o := <-done; o.q.State != cofferdam.QuestionVoid {
			t.Errorf("%+v", o)
		}
	})
}

func TestTwoPeople(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t)
		two := question("h-1")
		two.Needs = 2
		q, done := l.ask(t.Context(), two)
		for range 2 {
			if _, err := l.Answer(t.Context(), q.Scope, string(q.ID), q.Hash, person("ann", true)); err != nil && cofferdam.KindOf(err) != cofferdam.Conflict {
				t.Fatal(err)
			}
		}
		if err := l.Use(t.Context(), q.ID, q.Hash); err == nil {
			t.Error("one person was enough")
		}
		if _, err := l.Answer(t.Context(), q.Scope, string(q.ID), q.Hash, person("bob", true)); err != nil {
			t.Fatal(err)
		}
		if o := <-done; o.err != nil {
			t.Error(o.err)
		}
		q, done = l.ask(t.Context(), func() cofferdam.Question { q := two; q.Hash = "h-2"; return q }())
		for q.Hash != "h-2" {
			q = <-l.told
		}
		for i, allow := range []bool{true, false} {
			if _, err := l.Answer(t.Context(), q.Scope, string(q.ID), q.Hash, person(fmt.Sprint("p", i), allow)); err != nil {
				t.Fatal(err)
			}
		}
		if o := <-done; cofferdam.KindOf(o.err) != cofferdam.Denied {
			t.Errorf("one no of two: %+v", o)
		}
	})
}

func TestQuestionsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t)
		asked, refusals := 0, 0
		for i := range 200 {
			q, done := question(cofferdam.Digest(fmt.Sprint("h-", i))), make(chan outcome, 1)
			go func() { q, err := l.Ask(t.Context(), q); done <- outcome{q, err} }()
			synctest.Wait()
			select {
			case o := <-done:
				if cofferdam.KindOf(o.err) != cofferdam.Denied {
					t.Fatal(o.err)
				}
				refusals++
			default:
				asked++
			}
			if i%MaxMinute == MaxMinute-1 {
				time.Sleep(61 * time.Second)
			}
		}
		if asked != MaxTask || refusals != 200-MaxTask {
			t.Errorf("%d were asked and %d refused", asked, refusals)
		}
		time.Sleep(2 * DefaultWait)
		l = newLab(t)
		minute := 0
		for i := range 2 * MaxMinute {
			go func() { _, _ = l.Ask(t.Context(), question(cofferdam.Digest(fmt.Sprint("h-", i)))) }()
			synctest.Wait()
			minute = len(l.store.all)
		}
		if minute != MaxMinute {
			t.Errorf("%d within a minute", minute)
		}
		time.Sleep(2 * DefaultWait)
	})
}

func TestTheSameIsNotAskedAgainAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t)
		q, done := l.ask(t.Context(), question("h-1"))
		if _, err := l.Answer(t.Context(), q.Scope, string(q.ID), q.Hash, person("ann", false)); err != nil {
			t.Fatal(err)
		}
		<-done
		if _, err := l.Ask(t.Context(), question("h-1")); cofferdam.KindOf(err) != cofferdam.Denied || len(l.store.all) != 1 {
			t.Errorf("asked again: %v, %d questions", err, len(l.store.all))
		}
		time.Sleep(Quiet)
		go func() { _, _ = l.Ask(t.Context(), question("h-1")) }()
		synctest.Wait()
		if len(l.store.all) != 2 {
			t.Error("not asked after a while")
		}
		time.Sleep(2 * DefaultWait)
	})
}

func TestNoRecordNoQuestion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t)
		q, done := l.ask(t.Context(), question("h-1"))
		l.record.broken = true
		if _, err := l.Answer(t.Context(), q.Scope, string(q.ID), q.Hash, person("ann", true)); err == nil {
			t.Error("an answer counted that is not on record")
		}
		if _, err := l.Ask(t.Context(), question("h-2")); err == nil || len(l.store.all) != 1 {
			t.Error("a question was asked that is not on record")
		}
		l.record.broken = false
		if err := l.Sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
		if o := <-done; o.q.State != cofferdam.QuestionVoid {
			t.Errorf("%+v", o)
		}
	})
}

// What a person opens unasked is a question with its answer: counted, kept and on
// record as any other, and bad words of it leave nothing behind.
func TestOpenUnasked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t)
		q := cofferdam.Question{Task: "t-1", Action: "request", Resource: "a.test", Hash: "h-1"}
		opens := func(b *cofferdam.Bounds, by cofferdam.Answer) error {
			by.Bounds = b
			_, err := l.Open(t.Context(), q, by)
			return err
		}
		for name, err := range map[string]error{
			"nothing":    opens(nil, person("ann", true)),
			"no entry":   opens(&cofferdam.Bounds{Seconds: 60}, person("ann", true)),
			"no time":    opens(&cofferdam.Bounds{Entry: "a.test"}, person("ann", true)),
			"too long":   opens(&cofferdam.Bounds{Entry: "a.test", Seconds: MaxOpen + 1}, person("ann", true)),
			"bytes":      opens(&cofferdam.Bounds{Entry: "a.test", Seconds: 60, Bytes: MaxBytes + 1}, person("ann", true)),
			"less bytes": opens(&cofferdam.Bounds{Entry: "a.test", Seconds: 60, Bytes: -1}, person("ann", true)),
			"no uses":    opens(&cofferdam.Bounds{Entry: "a.test", Seconds: 60, Uses: -1}, person("ann", true)),
			"no proof":   opens(&cofferdam.Bounds{Entry: "a.test", Seconds: 60}, cofferdam.Answer{By: cofferdam.Principal{Kind: cofferdam.Person, Name: "ann"}}),
			"an agent":   opens(&cofferdam.Bounds{Entry: "a.test", Seconds: 60}, cofferdam.Answer{By: cofferdam.Principal{Kind: cofferdam.Agent, Name: "x"}, Proof: "password"}),
			"not a time": opens(&cofferdam.Bounds{Entry: "a.test", Seconds: math.NaN()}, person("ann", true)),
		} {
			if err == nil {
				t.Errorf("%s: opened", name)
			}
		}
		if len(l.store.all) != 0 || len(l.record.events) != 0 {
			t.Errorf("left behind: %+v, %v", l.store.all, l.record.kinds())
		}
		if err := opens(&cofferdam.Bounds{Entry: "a.test", Seconds: 60, Uses: 2}, person("ann", true)); err != nil {
			t.Fatal(err)
		}
		kept := l.store.all[0]
		if kept.State != cofferdam.QuestionAllowed || len(kept.Answers) != 1 || kept.Answers[0].Bounds.Uses != 2 || kept.Answers[0].Proof != "password" {
			t.Errorf("%+v", kept)
		}
		if got := fmt.Sprint(l.record.kinds()); got != "[approval.ask approval.answer]" {
			t.Errorf("on record: %s", got)
		}
		for range 2 * MaxMinute {
			_ = opens(&cofferdam.Bounds{Entry: "a.test", Seconds: 60}, person("ann", true)) // the last of them is too many
		}
		if err := opens(&cofferdam.Bounds{Entry: "a.test", Seconds: 60}, person("ann", true)); cofferdam.KindOf(err) != cofferdam.Denied {
			t.Errorf("without end: %v", err)
		}
	})
}

// An agent that has asked all that its task may ask keeps no person from opening
// something for it.
func TestAnAgentTakesNobodysWordAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t)
		opens := func() error {
			q := question("")
			q.Hash = cofferdam.Digest(fmt.Sprint("o-", len(l.store.all)))
			a := person("ann", true)
			a.Bounds = &cofferdam.Bounds{Entry: "a.test", Seconds: 60}
			_, err := l.Open(t.Context(), q, a)
			return err
		}
		ask := func(n int) {
			for range n {
				q := question(cofferdam.Digest(fmt.Sprint("h-", len(l.store.all))))
				go func() { _, _ = l.Ask(t.Context(), q) }()
				synctest.Wait()
			}
		}
		ask(2 * MaxMinute)
		if err := opens(); err != nil || len(l.store.all) != MaxMinute+1 {
			t.Errorf("within the minute, of %d questions: %v", len(l.store.all), err)
		}
		for range 4 {
			time.Sleep(61 * time.Second)
			ask(MaxMinute)
		}
		if err := opens(); err != nil {
			t.Errorf("of %d questions: %v", len(l.store.all), err)
		}
		time.Sleep(2 * DefaultWait)
	})
}
