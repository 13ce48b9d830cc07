package service

import (
	"context"
	"testing"

	"cofferdam"
	"cofferdam/identity"
)

// hooks are systems of which any message is signed.
type hooks struct {
	proves  bool
	refused []string
}

func (h *hooks) Has(name string) bool { return name == "chat" }

func (h *hooks) Admit(context.Context, cofferdam.SignedMessage) (bool, error) { return h.proves, nil }

func (h *hooks) Refuse(_ context.Context, _ cofferdam.SignedMessage, _ cofferdam.Question, why error) error {
	h.refused = append(h.refused, why.Error())
	return why
}

// bound is who is bound to what name of a system.
type bound struct{ who map[string]identity.Caller }

func (b *bound) Bind(_ context.Context, who identity.Caller, issuer, subject string) error {
	b.who[issuer+" "+subject] = who
	return nil
}

func (b *bound) Bound(_ context.Context, issuer, subject string) (identity.Caller, error) {
	c, ok := b.who[issuer+" "+subject]
	if !ok {
		return c, &cofferdam.Error{Kind: cofferdam.NotFound}
	}
	return c, nil
}

// one is one question, and what was answered.
type one struct {
	Desk
	q    cofferdam.Question
	said []cofferdam.Answer
}

func (o *one) Question(context.Context, cofferdam.Scope, string) (cofferdam.Question, error) {
	return o.q, nil
}

func (o *one) Questions(context.Context, cofferdam.Scope, bool, int) ([]cofferdam.Question, error) {
	return nil, nil
}

func (o *one) QuestionAnywhere(_ context.Context, id cofferdam.QuestionID) (cofferdam.Question, error) {
	if id != o.q.ID {
		return cofferdam.Question{}, &cofferdam.Error{Kind: cofferdam.NotFound}
	}
	return o.q, nil
}

func (o *one) Answer(_ context.Context, scope cofferdam.Scope, _ string, seen cofferdam.Digest, a cofferdam.Answer) (cofferdam.Question, error) {
	if seen != o.q.Hash || scope != o.q.Scope {
		return o.q, &cofferdam.Error{Kind: cofferdam.Conflict, Reason: "not what was seen"}
	}
	o.said = append(o.said, a)
	return o.q, nil
}

// TestAnswersByWebhook: an answer counts that a bound person with the role gives,
// with a code of theirs or by a system that the operator trusts; no other.
func TestAnswersByWebhook(t *testing.T) {
	s, _ := world(t)
	desk, h, b := &one{q: cofferdam.Question{ID: "a-1", Scope: scope, Hash: "h-1", Action: "request"}}, &hooks{}, &bound{who: map[string]identity.Caller{}}
	s.Desk, s.Questions, s.Systems, s.Bound = desk, desk, h, b
	who := func(role identity.Role, project cofferdam.ProjectID, o cofferdam.OrganizationID) identity.Caller {
		return identity.Caller{
			Principal: cofferdam.Principal{Kind: cofferdam.Person, Name: string(role)}, Member: "m", Organization: o,
			Memberships: []identity.Membership{{Member: "m", Project: project, Role: role}},
		}
	}
	b.who["webhook:chat rev"] = who(identity.Reviewer, scope.Project, scope.Organization)
	b.who["webhook:chat aut"] = who(identity.Author, scope.Project, scope.Organization)
	b.who["webhook:chat far"] = who(identity.Owner, "p-other", scope.Organization)
	b.who["webhook:chat out"] = who(identity.Owner, "", "o-other")
	b.who["https://id.example.com sub"] = who(identity.Owner, "", scope.Organization)
	say := func(id, person string, r cofferdam.WebhookAnswer) error {
		r.System, r.Person, r.Question = "chat", person, "a-1"
		if r.Hash == "" {
			r.Hash = "h-1"
		}
		_, err := s.AnswerByWebhook(t.Context(), id, cofferdam.SignedMessage{}, r)
		return err
	}
	for _, proves := range []bool{true, false} {
		h.proves, h.refused = proves, nil
		for name, c := range map[string]struct {
			err  error
			kind cofferdam.Kind
		}{
			"nobody":                  {say("a-1", "nob", cofferdam.WebhookAnswer{Allow: true}), cofferdam.Forbidden},
			"no name":                 {say("a-1", "", cofferdam.WebhookAnswer{Allow: true}), cofferdam.Forbidden},
			"an account elsewhere":    {say("a-1", "sub", cofferdam.WebhookAnswer{Allow: true}), cofferdam.Forbidden},
			"an author":               {say("a-1", "aut", cofferdam.WebhookAnswer{Allow: true}), cofferdam.Forbidden},
			"of another project":      {say("a-1", "far", cofferdam.WebhookAnswer{Allow: true}), cofferdam.NotFound},
			"of another organization": {say("a-1", "out", cofferdam.WebhookAnswer{Allow: true}), cofferdam.NotFound},
			"another address":         {say("a-2", "rev", cofferdam.WebhookAnswer{Allow: true}), cofferdam.Invalid},
			"a wrong code":            {say("a-1", "rev", cofferdam.WebhookAnswer{Allow: true, Code: "000000"}), cofferdam.Forbidden},
		} {
			if cofferdam.KindOf(c.err) != c.kind || c.err == nil {
				t.Errorf("%s: %v", name, c.err)
			}
		}
		if len(desk.said) != 0 || len(h.refused) != 8 {
			t.Errorf("answered: %+v; refused: %d", desk.said, len(h.refused))
		}
	}
	if err := say("a-1", "rev", cofferdam.WebhookAnswer{Allow: true}); cofferdam.KindOf(err) != cofferdam.Forbidden || len(desk.said) != 0 {
		t.Errorf("nothing shows that they are there: %v", err)
	}
	h.proves = true
	if err := say("a-1", "rev", cofferdam.WebhookAnswer{Allow: true, Hash: "h-0"}); err == nil || len(desk.said) != 0 {
		t.Errorf("about something else: %v", err)
	}
	if err := say("a-1", "rev", cofferdam.WebhookAnswer{Allow: true}); err != nil || len(desk.said) != 1 || desk.said[0].Proof != "webhook:chat" || desk.said[0].By.Name != "reviewer" {
		t.Errorf("%v, %+v", err, desk.said)
	}
}

// TestBindWebhook: a person says what a registered system calls them, with a proof.
func TestBindWebhook(t *testing.T) {
	s, _ := world(t)
	b := &bound{who: map[string]identity.Caller{}}
	s.Systems, s.Bound = &hooks{}, b
	acting, _ := ActingOf(owner("rev", identity.Membership{Member: "m-rev", Project: scope.Project, Role: identity.Viewer}))
	acting.Caller.Principal.Kind = cofferdam.Person
	rev := WithActing(t.Context(), acting)
	good := cofferdam.Proof{Kind: "password", Password: MemoryPassword}
	for name, err := range map[string]error{
		"no such system": s.BindWebhook(rev, cofferdam.WebhookBinding{System: "post", Person: "u1", Proof: good}),
		"no name":        s.BindWebhook(rev, cofferdam.WebhookBinding{System: "chat", Proof: good}),
		"an agent":       s.BindWebhook(as(cofferdam.Principal{Kind: cofferdam.Agent, Name: "x"}), cofferdam.WebhookBinding{System: "chat", Person: "u1", Proof: good}),
	} {
		if err == nil {
			t.Errorf("%s", name)
		}
	}
	if len(b.who) != 0 {
		t.Errorf("bound: %v", b.who)
	}
	if err := s.BindWebhook(rev, cofferdam.WebhookBinding{System: "chat", Person: "u1", Proof: good}); err != nil || b.who["webhook:chat u1"].Principal.Name != "rev" {
		t.Errorf("%v, %v", err, b.who)
	}
}
