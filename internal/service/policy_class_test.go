package service

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"cofferdam"
	"cofferdam/policy"
)

// A proposal is kept with the text of its class in it, and nobody makes a class of
// their own that only has the name of one.
func TestAProposalIsKeptWithItsClass(t *testing.T) {
	s, m := world(t)
	tess := owner("tess")
	p := propose(t, s, tess, "", "class = \"read-only\"\n[egress]\nallow = [\"a.test\"]\n")
	d, err := policy.ParseDocument(policy.ProjectName, []byte(p.Text), nil)
	if err != nil || !d.Sealed || d.Class() != "read-only" || p.Digest != d.Digest() || !strings.Contains(p.Text, string(d.Base.Digest())) {
		t.Fatalf("%v\n%s", err, p.Text)
	}
	take(t, s, tess, p)
	if _, err := s.ProposePolicy(tess, cofferdam.PolicyRequest{Text: "class = \"read-only\"\n[egress]\nallow = [\"a.test\"]\n"}); cofferdam.KindOf(err) != cofferdam.Conflict {
		t.Errorf("the same again: %v", err)
	}
	own := strings.Replace(string(policy.Classes()[0].Text), "push:**", "push:refs/heads/x", 1)
	mine := policy.Document{Text: "class = \"read-only\"\n", Base: &policy.Document{Name: "read-only", Text: own}}
	for name, text := range map[string]string{
		"a class of one's own": mine.Seal(),
		"beyond the class":     "class = \"read-only\"\n[git]\nallow = [\"push:refs/heads/x\"]\n",
		"no such class":        "class = \"root\"\n",
	} {
		if _, err := s.ProposePolicy(tess, cofferdam.PolicyRequest{Text: text}); cofferdam.KindOf(err) != cofferdam.Invalid || cofferdam.HintOf(err) == "" {
			t.Errorf("%s: %v", name, err)
		}
	}
	// A class of an earlier program that counts goes on to count, and may be proposed
	// with other rules.
	v := m.policies.all[len(m.policies.all)-1]
	old := policy.Document{Text: "class = \"read-only\"\n[egress]\nallow = [\"a.test\"]\n", Base: &policy.Document{Name: "read-only", Text: own}}
	m.policies.all[len(m.policies.all)-1].Text = old.Seal()
	next := propose(t, s, tess, "", strings.Replace(old.Seal(), "a.test", "b.test", 1))
	if len(next.Unbounded) > 0 || !slices.Equal(next.Opens, []string{"egress allow: b.test"}) {
		t.Errorf("%+v", next)
	}
	if wider := propose(t, s, tess, "", "class = \"write\"\n[egress]\nallow = [\"a.test\"]\n"); len(wider.Unbounded) != 1 || len(wider.Opens) != 0 {
		t.Errorf("from a class that this program does not have: %+v", wider)
	}
	m.policies.all[len(m.policies.all)-1] = v
}

// What is on record of a project says whether a wider class is suggested: what it did
// under the class that counts, and nothing from before.
func TestPromotionFromTheRecord(t *testing.T) {
	s, m := world(t)
	tess := owner("tess")
	begun := time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)
	now := begun
	s.Now = func() time.Time { return now }
	if p, err := s.PromotePolicy(tess); err != nil || p.Class != "" || p.Suggested {
		t.Errorf("without a policy: %+v, %v", p, err)
	}
	under := func(rest string) string { return "class = \"read-only\"\n" + rest }
	take(t, s, tess, propose(t, s, tess, "", under("")))
	now = now.Add(time.Hour)
	take(t, s, tess, propose(t, s, tess, "", under("[egress]\nallow = [\"a.test\"]\n"))) // the same class goes on
	q, err := json.Marshal(policy.Query{Action: policy.HTTP, Host: "a.test", Port: 443, Method: "POST", Path: "/x"})
	if err != nil {
		t.Fatal(err)
	}
	add := func(n int, at time.Time, state cofferdam.TaskState, events ...cofferdam.Event) {
		m.mu.Lock()
		task := cofferdam.Task{ID: cofferdam.TaskID(fmt.Sprintf("task-%03d", n)), Number: int64(n), Scope: scope, State: state, Created: at}
		if state == cofferdam.Done {
			task.Receipt = "r-1"
		}
		m.tasks = append(m.tasks, task)
		m.mu.Unlock()
		id := cofferdam.SessionID(fmt.Sprintf("s-%04d", n))
		m.AddSession(cofferdam.Session{ID: id, Scope: scope, Task: task.ID, Phase: "work"})
		for _, e := range events {
			m.Emit(id, e)
		}
	}
	refused := cofferdam.Event{Kind: cofferdam.EventRequest, Verdict: cofferdam.Refused, Rule: "read-only.reads", Fields: map[string]string{cofferdam.FieldQuery: string(q)}}
	add(1, begun.Add(-time.Hour), cofferdam.Failed, cofferdam.Event{Kind: cofferdam.EventPush, Verdict: cofferdam.Refused, Rule: "beyond-scope", Fields: map[string]string{cofferdam.FieldBeyond: "x"}}) // before the class
	for i := range 19 {
		add(2+i, begun.Add(time.Hour), cofferdam.NothingToDo, refused)
	}
	now = begun.AddDate(0, 0, 14)
	if p, err := s.PromotePolicy(tess); err != nil || p.Suggested || p.Class != "read-only" || p.Version != 1 || !p.Since.Equal(begun) || !strings.HasPrefix(p.Reasons[0].What, "19 of at least 20") || p.Refused[0].Count != 19 {
		t.Errorf("after 19: %+v, %v", p, err)
	}
	add(30, begun.Add(2*time.Hour), cofferdam.Done)
	add(31, begun.Add(2*time.Hour), cofferdam.Cancelled)
	m.Ask(cofferdam.Question{ID: "a-0", Scope: scope, Created: begun.Add(-time.Hour), Answers: []cofferdam.Answer{{Allow: false}}})
	m.Ask(cofferdam.Question{ID: "a-1", Scope: scope, Created: begun.Add(time.Hour), Answers: []cofferdam.Answer{{Allow: true}}})
	if p, err := s.PromotePolicy(tess); err != nil || !p.Suggested || p.Next != "ask-to-write" {
		t.Errorf("after 20: %+v, %v", p, err)
	}
	now = now.Add(-time.Second)
	if p, err := s.PromotePolicy(tess); err != nil || p.Suggested {
		t.Errorf("a second too early: %+v, %v", p, err)
	}
	now = now.Add(time.Second)
	m.Ask(cofferdam.Question{ID: "a-2", Scope: scope, Created: begun.Add(time.Hour), Answers: []cofferdam.Answer{{Allow: true}, {Allow: false}}})
	if p, err := s.PromotePolicy(tess); err != nil || p.Suggested || p.Reasons[4].Holds {
		t.Errorf("after a no: %+v, %v", p, err)
	}
	m.questions = m.questions[:2]
	add(32, begun.Add(3*time.Hour), cofferdam.NothingToDo, cofferdam.Event{Kind: cofferdam.EventPush, Verdict: cofferdam.Allowed, Rule: "x", Fields: map[string]string{cofferdam.FieldBeyond: "y"}})
	if p, err := s.PromotePolicy(tess); err != nil || p.Suggested || p.Reasons[3].Holds {
		t.Errorf("marked as beyond its scope: %+v, %v", p, err)
	}
	take(t, s, tess, propose(t, s, tess, "", "class = \"ask-to-write\"\n"))
	now = now.AddDate(0, 0, 20)
	if p, err := s.PromotePolicy(tess); err != nil || p.Suggested || p.Class != "ask-to-write" || p.Next != "write" || !strings.HasPrefix(p.Reasons[0].What, "0 of") {
		t.Errorf("under the next class it begins anew: %+v, %v", p, err)
	}
	if _, err := s.PromotePolicy(WithActing(t.Context(), Acting{Scope: scope})); err == nil {
		t.Error("nobody was told")
	}
}
