package merge

import (
	"context"
	"errors"
	"testing"

	"cofferdam"
	"cofferdam/policy"
)

var ben = cofferdam.Principal{Kind: cofferdam.Person, Name: "ben"}

// ruled has the landings of a desk judged by a project's policy, which can be
// another one later.
func ruled(t *testing.T, text string) (d *desk, s *Service, change func(text string)) {
	t.Helper()
	d, s = newDesk(t)
	var doc policy.Document
	change = func(text string) {
		var err error
		if doc, err = policy.ParseDocument(policy.ProjectName, []byte(text), nil); err != nil {
			t.Fatal(err)
		}
	}
	change(text)
	s.o.Rules = func(context.Context, cofferdam.Task) (*policy.Set, error) {
		return policy.New(policy.Grant{Repo: d.task.Repo, Project: &doc})
	}
	return d, s, change
}

// land lands the task's commit, and says whether its branch would have moved.
func land(t *testing.T, d *desk, s *Service) (moved bool, err error) {
	err = s.Land(t.Context(), d.task, anna, func(context.Context) error { moved = true; return nil })
	return moved, err
}

const (
	deny    = "[merge]\ndeny = [\"land:refs/heads/main\"]\n"
	elsewhe = "[merge]\ndeny = [\"refs/heads/release/**\"]\nask = [\"refs/heads/release\"]\n"
	one     = "[merge]\nask = [\"refs/heads/main\"]\n"
	two     = "[[merge.rule]]\nid = \"main\"\neffect = \"ask\"\nnames = [\"refs/heads/main\"]\npeople = 2\n"
)

// TestLandingIsDecided: what policy says at the moment of landing counts, and is on
// record before the branch moves.
func TestLandingIsDecided(t *testing.T) {
	for _, c := range []struct {
		name, policy string
		approve      []cofferdam.Principal
		kind         cofferdam.Kind // of the refusal; -1: it lands
		rule         string
	}{
		{"no policy", "", []cofferdam.Principal{anna}, -1, "land-approved"},
		{"about other branches", elsewhe, []cofferdam.Principal{anna}, -1, "land-approved"},
		{"asked, nobody", one, nil, cofferdam.Denied, "not-allowed"},
		{"asked, one", one, []cofferdam.Principal{anna}, -1, "project.merge.ask-1"},
		{"two wanted, one", two, []cofferdam.Principal{anna}, cofferdam.Denied, "not-allowed"},
		{"two wanted, the same twice", two, []cofferdam.Principal{anna, anna}, cofferdam.Denied, "not-allowed"},
		{"two wanted, two", two, []cofferdam.Principal{anna, ben}, -1, "project.main"},
	} {
		t.Run(c.name, func(t *testing.T) {
			d, s, _ := ruled(t, c.policy)
			for _, by := range c.approve {
				if _, err := s.Approve(t.Context(), d.task, word(t, s, d.task, head), by, "password"); err != nil {
					t.Fatal(err)
				}
			}
			before := len(d.recorded)
			moved, err := land(t, d, s)
			if c.kind == -1 && (err != nil || !moved) || c.kind != -1 && (moved || cofferdam.KindOf(err) != c.kind || err == nil) {
				t.Fatalf("moved: %v, %v", moved, err)
			}
			events := d.recorded[before:]
			last := events[len(events)-1]
			if c.kind == -1 {
				if last.Of == nil || last.Outcome != "ok" {
					t.Errorf("no outcome on record: %+v", last)
				}
				last = events[len(events)-2]
			}
			if last.Kind != cofferdam.EventLand || last.Rule != c.rule || !last.Durable || last.Fields["new"] != string(head) || last.Actor != anna {
				t.Errorf("on record: %+v, want rule %s", last, c.rule)
			}
			if c.policy != "" && last.Fields["project"] == "" {
				t.Error("the record does not name the project's policy")
			}
		})
	}
}

// TestDeniedLanding: nobody can approve what nobody may land; and a policy that is
// taken after the approval holds when it lands.
func TestDeniedLanding(t *testing.T) {
	d, s, change := ruled(t, deny)
	if _, err := s.Approve(t.Context(), d.task, word(t, s, d.task, head), anna, "password"); err == nil || cofferdam.KindOf(err) != cofferdam.Denied || len(d.recorded) != 0 {
		t.Errorf("approved: %v", err)
	}
	shown := word(t, s, d.task, head)
	change("")
	for name, w := range map[string]cofferdam.ApproveRequest{"the policy of before": shown, "none": {Commit: head}} {
		if _, err := s.Approve(t.Context(), d.task, w, anna, "password"); cofferdam.KindOf(err) != cofferdam.Conflict || len(d.recorded) != 0 {
			t.Errorf("approved by who was shown %s: %v", name, err)
		}
	}
	if _, err := s.Approve(t.Context(), d.task, word(t, s, d.task, head), anna, "password"); err != nil {
		t.Fatal(err)
	}
	change(deny)
	if moved, err := land(t, d, s); moved || cofferdam.KindOf(err) != cofferdam.Denied {
		t.Errorf("moved: %v, %v", moved, err)
	}
	if c, err := s.View(t.Context(), d.task); err != nil || c.Landing.Verdict != cofferdam.Refused || c.Landing.Rule != "project.merge.deny-1" {
		t.Errorf("view: %+v, %v", c.Landing, err)
	}
	change(two)
	if c, err := s.View(t.Context(), d.task); err != nil || c.Landing.Verdict != cofferdam.Asked || c.Landing.People != 2 || len(c.Approvals) != 1 {
		t.Errorf("view: %+v, %v", c.Landing, err)
	}
}

// TestWordsForAnotherCommit: an approval of an earlier commit, or of no person,
// answers nothing.
func TestWordsForAnotherCommit(t *testing.T) {
	d, s, _ := ruled(t, two)
	d.approvals[head] = cofferdam.Approval{Commit: head, By: anna}
	for _, bad := range []cofferdam.Approval{{Commit: other, By: ben}, {Commit: head, By: cofferdam.Principal{Kind: cofferdam.Agent, Name: "claude"}}} {
		d.more = []cofferdam.Approval{bad}
		if moved, err := land(t, d, s); moved || cofferdam.KindOf(err) != cofferdam.Denied {
			t.Errorf("%+v: moved %v, %v", bad, moved, err)
		}
	}
}

// TestLandingWithoutARecord: a full record and rules that cannot be made land nothing.
func TestLandingWithoutARecord(t *testing.T) {
	d, s, _ := ruled(t, "")
	d.full = true
	if moved, err := land(t, d, s); moved || cofferdam.KindOf(err) != cofferdam.Unavailable {
		t.Errorf("moved: %v, %v", moved, err)
	}
	d.full = false
	s.o.Rules = func(context.Context, cofferdam.Task) (*policy.Set, error) {
		return nil, errors.New("a signature does not fit")
	}
	if moved, err := land(t, d, s); moved || err == nil {
		t.Errorf("moved: %v, %v", moved, err)
	}
}
