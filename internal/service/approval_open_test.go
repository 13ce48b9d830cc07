package service

import (
	"context"
	"testing"

	"cofferdam"
	"cofferdam/identity"
)

// opened keeps what is opened.
type opened struct {
	Desk
	got []cofferdam.Question
}

func (o *opened) Open(_ context.Context, q cofferdam.Question, a cofferdam.Answer) (cofferdam.Question, error) {
	q.Answers = []cofferdam.Answer{a}
	o.got = append(o.got, q)
	return q, nil
}

func TestOpenTask(t *testing.T) {
	s, m := world(t)
	desk := &opened{}
	judged := 0
	s.Desk, s.Judge = desk, func(context.Context, cofferdam.Scope) error { judged++; return nil }
	tess := owner("tess")
	take(t, s, tess, propose(t, s, tess, cofferdam.OfOrganization, "[egress]\nlimit = [\"*.acme.test\"]\n"))
	judged = 0
	task, err := s.CreateTask(as(alice), request())
	if err != nil {
		t.Fatal(err)
	}
	open := func(ctx context.Context, name, action, entry string) error {
		_, err := s.OpenTask(ctx, name, cofferdam.OpenRequest{Action: action, Bounds: cofferdam.Bounds{Entry: entry, Seconds: 60}})
		return err
	}
	reviewer := owner("rev", identity.Membership{Member: "m-rev", Project: scope.Project, Role: identity.Reviewer})
	author := owner("aut", identity.Membership{Member: "m-aut", Project: scope.Project, Role: identity.Author})
	for name, c := range map[string]struct {
		err  error
		kind cofferdam.Kind
	}{
		"an author":        {open(author, "t-1", "", "a.acme.test"), cofferdam.Forbidden},
		"an agent":         {open(as(cofferdam.Principal{Kind: cofferdam.Agent, Name: "x"}), "t-1", "", "a.acme.test"), cofferdam.Forbidden},
		"no such task":     {open(reviewer, "t-9", "", "a.acme.test"), cofferdam.NotFound},
		"beyond the limit": {open(reviewer, "t-1", "", "stranger.test"), cofferdam.Denied},
		"no host":          {open(reviewer, "t-1", "", "https://a.acme.test"), cofferdam.Invalid},
		"no action":        {open(reviewer, "t-1", "fly", "a.acme.test"), cofferdam.Invalid},
		"everything":       {open(reviewer, "t-1", "", "*"), cofferdam.Invalid},
	} {
		if cofferdam.KindOf(c.err) != c.kind || c.err == nil {
			t.Errorf("%s: %v", name, c.err)
		}
	}
	if len(desk.got) != 0 || judged != 0 {
		t.Fatalf("opened %+v", desk.got)
	}
	if err := open(reviewer, "t-1", "", "a.acme.test"); err != nil {
		t.Fatal(err)
	}
	if q := desk.got[0]; q.Task != task.ID || q.Action != "request" || q.Hash == "" || q.Answers[0].Bounds.Entry != "a.acme.test" || q.Answers[0].Proof == "" || judged != 1 {
		t.Errorf("%+v, judged %d", q, judged)
	}
	if err := open(reviewer, "t-1", "", "a.acme.test"); err != nil || desk.got[1].Hash == desk.got[0].Hash {
		t.Errorf("again: %v", err)
	}
	for _, rests := range []cofferdam.TaskState{cofferdam.Blocked, cofferdam.Failed, cofferdam.InReview} { // its next attempt has it
		m.Set(task.ID, func(t *cofferdam.Task) { t.State = rests })
		if err := open(reviewer, "t-1", "", "a.acme.test"); err != nil {
			t.Errorf("of a task that is %s: %v", rests, err)
		}
	}
	m.Set(task.ID, func(t *cofferdam.Task) { t.State = cofferdam.Done })
	if err := open(reviewer, "t-1", "", "a.acme.test"); cofferdam.KindOf(err) != cofferdam.Conflict {
		t.Errorf("of a task that has ended: %v", err)
	}
}
