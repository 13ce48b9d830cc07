package merge

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"cofferdam"
	"cofferdam/internal/repo"
	"cofferdam/proof"
)

const (
	base  = cofferdam.Commit("1111111111111111111111111111111111111111")
	head  = cofferdam.Commit("2222222222222222222222222222222222222222")
	other = cofferdam.Commit("3333333333333333333333333333333333333333")
)

var anna = cofferdam.Principal{Kind: cofferdam.Person, Name: "anna"}

// desk is everything a Service needs, in memory.
type desk struct {
	task      cofferdam.Task
	branch    cofferdam.Commit
	approvals map[cofferdam.Commit]cofferdam.Approval // the first
	more      []cofferdam.Approval
	notes     map[cofferdam.Commit][]byte
	events    map[cofferdam.SessionID][]cofferdam.Event
	recorded  []cofferdam.Event
	order     []string // what was done, in order
	full      bool     // the record takes nothing
	signer    proof.Signer
	public    string
}

func newDesk(t *testing.T) (*desk, *Service) {
	t.Helper()
	private, public := proof.NewKey("test")
	signer, err := proof.NewSigner(private)
	if err != nil {
		t.Fatal(err)
	}
	d := &desk{
		task: cofferdam.Task{
			ID: "t-00000000000000000000000000000042", Number: 42, Repo: "r-1", Attempt: 1, State: cofferdam.InReview,
			Branch: "refs/heads/cofferdam/t-42-1", Base: "refs/heads/main", BaseAt: base, Head: head, Sessions: []cofferdam.SessionID{"s-1", "s-gone", "s-2"},
		},
		branch: head, approvals: map[cofferdam.Commit]cofferdam.Approval{}, notes: map[cofferdam.Commit][]byte{},
		events: map[cofferdam.SessionID][]cofferdam.Event{}, signer: signer, public: public,
	}
	d.prove(t, head, true)
	return d, New(Options{
		Store: d, Repos: d, Trace: d, Record: d, PublicKey: public,
		Receipt: func(_ context.Context, _ cofferdam.TaskID, c cofferdam.Commit) ([]byte, error) {
			if n := d.notes[c]; n != nil {
				return n, nil
			}
			return nil, missing()
		},
		Now: func() time.Time { return time.Unix(1000, 0) },
	})
}

// prove keeps a receipt for commit under the task's head.
func (d *desk) prove(t *testing.T, commit cofferdam.Commit, held bool) {
	t.Helper()
	note, err := d.signer.Sign(proof.Receipt{
		ID: "c-00000000000000000000000000000001", Task: d.task.ID, Number: 42, Attempt: 1, Repo: "r-1", Branch: d.task.Branch, Base: base, Commit: commit,
		Checks: []cofferdam.CheckResult{{Check: cofferdam.Check{Command: "make test", MustFailFirst: true}, BaseExit: 1, Held: held}}, Time: time.Unix(900, 0),
	})
	if err != nil {
		t.Fatal(err)
	}
	d.notes[head] = note
}

func missing() error { return &cofferdam.Error{Op: "desk", Kind: cofferdam.NotFound} }

func (d *desk) AddApproval(_ context.Context, _ cofferdam.Task, a cofferdam.Approval) (cofferdam.Approval, error) {
	d.order = append(d.order, "store")
	if _, ok := d.approvals[a.Commit]; ok {
		d.more = append(d.more, a)
		return a, nil
	}
	d.approvals[a.Commit] = a
	return a, nil
}

func (d *desk) Approvals(_ context.Context, _ cofferdam.TaskID, c cofferdam.Commit) ([]cofferdam.Approval, error) {
	a, ok := d.approvals[c]
	if !ok {
		return nil, nil
	}
	return append([]cofferdam.Approval{a}, d.more...), nil
}

func (d *desk) Approval(_ context.Context, _ cofferdam.TaskID, c cofferdam.Commit) (cofferdam.Approval, error) {
	if a, ok := d.approvals[c]; ok {
		return a, nil
	}
	return cofferdam.Approval{}, missing()
}

func (d *desk) TaskByID(context.Context, cofferdam.TaskID) (cofferdam.Task, error) {
	return d.task, nil
}

func (d *desk) Log(context.Context, cofferdam.RepoID, cofferdam.Commit, cofferdam.Commit) ([]string, error) {
	return []string{"222 fix"}, nil
}

func (d *desk) Diff(context.Context, cofferdam.RepoID, cofferdam.Commit, cofferdam.Commit) (repo.Diff, error) {
	return repo.Diff{Text: "+x\n", Files: []cofferdam.FileChange{{Path: "a", Status: "M", Added: 1}}}, nil
}

func (d *desk) Resolve(context.Context, cofferdam.RepoID, cofferdam.Ref) (cofferdam.Commit, error) {
	return d.branch, nil
}

func (d *desk) Events(_ context.Context, id cofferdam.SessionID, from uint64, limit int) ([]cofferdam.Event, error) {
	all, ok := d.events[id]
	if !ok {
		return nil, missing()
	}
	rest := all[min(int(from), len(all)):]
	return rest[:min(len(rest), limit, 3)], nil // short pages, as where events are large
}

func (d *desk) Record(_ context.Context, e cofferdam.Event) (cofferdam.Event, error) {
	if d.full {
		return e, errors.New("disk full")
	}
	d.order = append(d.order, "record")
	d.recorded = append(d.recorded, e)
	return e, nil
}

func TestView(t *testing.T) {
	d, s := newDesk(t)
	for i := range 10 {
		v := cofferdam.Allowed
		if i%4 == 0 {
			v = cofferdam.Refused
		}
		d.events["s-1"] = append(d.events["s-1"], cofferdam.Event{Seq: uint64(i), Verdict: v, Resource: fmt.Sprint(i)})
	}
	d.events["s-2"] = []cofferdam.Event{{Verdict: cofferdam.Refused, Resource: "late"}}
	agent, zero := cofferdam.Principal{Kind: cofferdam.Agent, Name: "loop"}, uint64(0)
	d.events["s-2"] = append(d.events["s-2"],
		cofferdam.Event{Kind: cofferdam.EventExecStart, Actor: agent, Verdict: cofferdam.Allowed},
		cofferdam.Event{Kind: cofferdam.EventExecStart, Actor: agent, Of: &zero, Outcome: "ok"}, // of the same command
		cofferdam.Event{Kind: cofferdam.EventExecStart, Actor: agent, Verdict: cofferdam.Asked},
		cofferdam.Event{Kind: cofferdam.EventExecStart, Actor: cofferdam.Principal{Kind: cofferdam.Platform, Name: "check"}, Verdict: cofferdam.Allowed})
	c, err := s.View(t.Context(), d.task)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]int{"agent:loop": 1, "platform:check": 1}, c.Commands); diff != "" {
		t.Error(diff)
	}
	var what []string
	for _, e := range c.Refusals {
		what = append(what, e.Resource)
	}
	if diff := cmp.Diff([]string{"0", "4", "8", "late"}, what); diff != "" {
		t.Error(diff)
	}
	if c.Proof == nil || !c.Proof.Held || c.Proof.Commit != head || c.Approval != nil || c.Diff != "+x\n" || len(c.Commits) != 1 || c.Truncated {
		t.Errorf("change: %+v", c)
	}
	if _, err := s.Approve(t.Context(), d.task, word(t, s, d.task, head), anna, "password"); err != nil {
		t.Fatal(err)
	}
	if c, _ = s.View(t.Context(), d.task); c.Approval == nil || c.Approval.By != anna {
		t.Errorf("approval is not shown: %+v", c.Approval)
	}
}

// TestViewBounded: a flood of refusals ends at the bound, and the page says so.
func TestViewBounded(t *testing.T) {
	d, s := newDesk(t)
	for range MaxRefusals + 10 {
		d.events["s-1"] = append(d.events["s-1"], cofferdam.Event{Verdict: cofferdam.Refused})
	}
	c, err := s.View(t.Context(), d.task)
	if err != nil || len(c.Refusals) != MaxRefusals || !c.Truncated {
		t.Errorf("%d refusals, truncated %v, %v", len(c.Refusals), c.Truncated, err)
	}
}

// TestViewWithoutProof: no proof is shown where there is none, and a proof of
// something else is an alarm.
func TestViewWithoutProof(t *testing.T) {
	d, s := newDesk(t)
	d.prove(t, other, true)
	if _, err := s.View(t.Context(), d.task); cofferdam.KindOf(err) != cofferdam.Tampered {
		t.Errorf("a receipt of another commit: %v", err)
	}
	d.notes[head] = []byte(strings.Replace(string(d.notes[head]), "make test", "make tess", 1))
	if _, err := s.View(t.Context(), d.task); cofferdam.KindOf(err) != cofferdam.Tampered {
		t.Errorf("a changed receipt: %v", err)
	}
	delete(d.notes, head)
	if c, err := s.View(t.Context(), d.task); err != nil || c.Proof != nil {
		t.Errorf("no receipt: %+v, %v", c.Proof, err)
	}
	d.task.Head = ""
	if _, err := s.View(t.Context(), d.task); cofferdam.KindOf(err) != cofferdam.NotFound {
		t.Errorf("no commit: %v", err)
	}
}

// word is one for a commit, of who was shown the policy of now.
func word(t *testing.T, s *Service, of cofferdam.Task, commit cofferdam.Commit) cofferdam.ApproveRequest {
	t.Helper()
	rule, err := s.standing(t.Context(), of)
	if err != nil || rule.Policy == "" {
		t.Fatalf("%+v, %v", rule, err)
	}
	return cofferdam.ApproveRequest{Commit: commit, Policy: rule.Policy}
}

func TestApprove(t *testing.T) {
	tester := cofferdam.Principal{Kind: cofferdam.TestPerson, Name: "demo"}
	for _, c := range []struct {
		name   string
		change func(*testing.T, *desk)
		commit cofferdam.Commit
		by     cofferdam.Principal
		want   cofferdam.Kind
		ok     bool
	}{
		{"a person", nil, head, anna, 0, true},
		{"a test person", nil, head, tester, 0, true},
		{"an agent", nil, head, cofferdam.Principal{Kind: cofferdam.Agent, Name: "claude"}, cofferdam.Forbidden, false},
		{"the platform", nil, head, cofferdam.Principal{Kind: cofferdam.Platform, Name: "task"}, cofferdam.Forbidden, false},
		{"nobody", nil, head, cofferdam.Principal{}, cofferdam.Forbidden, false},
		{"a person without a name", nil, head, cofferdam.Principal{Kind: cofferdam.Person}, cofferdam.Forbidden, false},
		{"another commit", nil, other, anna, cofferdam.Conflict, false},
		{"no commit", nil, "", anna, cofferdam.Conflict, false},
		{"a short commit", nil, head[:8], anna, cofferdam.Conflict, false},
		{"a new head since", func(_ *testing.T, d *desk) { d.task.Head = other }, head, anna, cofferdam.Conflict, false},
		{"not in review", func(_ *testing.T, d *desk) { d.task.State = cofferdam.Running }, head, anna, cofferdam.Conflict, false},
		{"blocked", func(_ *testing.T, d *desk) { d.task.State = cofferdam.Blocked }, head, anna, cofferdam.Conflict, false},
		{"no proof", func(_ *testing.T, d *desk) { delete(d.notes, head) }, head, anna, cofferdam.Conflict, false},
		{"a proof that does not hold", func(t *testing.T, d *desk) { d.prove(t, head, false) }, head, anna, cofferdam.Conflict, false},
		{"a proof of another commit", func(t *testing.T, d *desk) { d.prove(t, other, true) }, head, anna, cofferdam.Tampered, false},
		{"a branch that moved on", func(_ *testing.T, d *desk) { d.branch = other }, head, anna, cofferdam.Conflict, false},
		{"a full disk", func(_ *testing.T, d *desk) { d.full = true }, head, anna, cofferdam.Internal, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			d, s := newDesk(t)
			shown := d.task
			if c.change != nil {
				c.change(t, d)
			}
			a, err := s.Approve(t.Context(), shown, word(t, s, shown, c.commit), c.by, "password")
			if (err == nil) != c.ok || err != nil && cofferdam.KindOf(err) != c.want {
				t.Fatalf("Approve: %v (%s)", err, cofferdam.KindOf(err))
			}
			if !c.ok {
				if len(d.approvals) != 0 {
					t.Error("there is an approval all the same")
				}
				return
			}
			if a.Commit != head || a.By != c.by || d.approvals[head] != a {
				t.Errorf("approval %+v, kept %+v", a, d.approvals)
			}
			if diff := cmp.Diff([]string{"record", "store"}, d.order); diff != "" || !d.recorded[0].Durable || d.recorded[0].Kind != cofferdam.EventApprove {
				t.Errorf("order: %s, event %+v", diff, d.recorded)
			}
		})
	}
}

// TestApproveTwice: a person's word stays, and is said once; another's is their own.
func TestApproveTwice(t *testing.T) {
	d, s := newDesk(t)
	first, err := s.Approve(t.Context(), d.task, word(t, s, d.task, head), anna, "password")
	if err != nil {
		t.Fatal(err)
	}
	again, err := s.Approve(t.Context(), d.task, word(t, s, d.task, head), anna, "password")
	if err != nil || again != first || len(d.recorded) != 1 {
		t.Errorf("again: %+v, %v, %d events", again, err, len(d.recorded))
	}
	second, err := s.Approve(t.Context(), d.task, word(t, s, d.task, head), ben, "password")
	if err != nil || second.By != ben || len(d.recorded) != 2 {
		t.Errorf("another: %+v, %v, %d events", second, err, len(d.recorded))
	}
}

// TestLandable: only a proven commit with a person's word, and a new push
// voids the word.
func TestLandable(t *testing.T) {
	d, s := newDesk(t)
	if err := s.Landable(t.Context(), d.task); cofferdam.KindOf(err) != cofferdam.AwaitsPerson {
		t.Errorf("without approval: %v", err)
	}
	if _, err := s.Approve(t.Context(), d.task, word(t, s, d.task, head), anna, "password"); err != nil {
		t.Fatal(err)
	}
	if err := s.Landable(t.Context(), d.task); err != nil {
		t.Errorf("with approval: %v", err)
	}
	d.branch = other
	if err := s.Landable(t.Context(), d.task); cofferdam.KindOf(err) != cofferdam.Conflict {
		t.Errorf("after a push: %v", err)
	}
	d.branch = head
	d.approvals[head] = cofferdam.Approval{Commit: head, By: cofferdam.Principal{Kind: cofferdam.Agent, Name: "claude"}}
	if err := s.Landable(t.Context(), d.task); cofferdam.KindOf(err) != cofferdam.Tampered {
		t.Errorf("with an agent's approval: %v", err)
	}
	delete(d.notes, head)
	if err := s.Landable(t.Context(), d.task); cofferdam.KindOf(err) != cofferdam.Conflict {
		t.Errorf("without proof: %v", err)
	}
}

func TestVoid(t *testing.T) {
	d, s := newDesk(t)
	if _, err := s.Approve(t.Context(), d.task, word(t, s, d.task, head), anna, "password"); err != nil {
		t.Fatal(err)
	}
	now := d.task
	now.Head = other
	for _, c := range []cofferdam.Commit{"", base, other, head} {
		if err := s.Void(t.Context(), now, c); err != nil {
			t.Fatal(err)
		}
	}
	if len(d.recorded) != 2 || d.recorded[1].Kind != cofferdam.EventVoid || d.recorded[1].Fields["commit"] != string(head) {
		t.Errorf("recorded: %+v", d.recorded)
	}
}
