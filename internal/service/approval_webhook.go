package service

import (
	"context"
	"fmt"

	"cofferdam"
	"cofferdam/identity"
)

// Systems are programs outside that bring people's answers; package approval offers
// them.
type Systems interface {
	Has(name string) bool
	Admit(ctx context.Context, m cofferdam.SignedMessage) (proves bool, err error)
	Refuse(ctx context.Context, m cofferdam.SignedMessage, q cofferdam.Question, why error) error
}

// Bound are people as systems outside call them; package identity offers it.
type Bound interface {
	Bind(ctx context.Context, who identity.Caller, issuer, subject string) error
	Bound(ctx context.Context, issuer, subject string) (identity.Caller, error)
}

// maxSubject bounds what a system calls somebody, in bytes. Source:
// docs/SPECIFICATION.md, "Approvals".
const maxSubject = 128

// issuerOf is under which name the people of a system are bound. No provider's
// address begins so.
func issuerOf(system string) string { return "webhook:" + system }

// AnswerByWebhook takes a person's word from a message that a registered system
// signed. The person has bound the system's name for them to their account, has the
// role for it in the question's project, and is there: by a code of theirs, or by
// the operator's trust in the system. What does not count is on record.
func (s *Service) AnswerByWebhook(ctx context.Context, id string, m cofferdam.SignedMessage, r cofferdam.WebhookAnswer) (cofferdam.Question, error) {
	m.System = r.System
	if s.Systems == nil {
		return cofferdam.Question{}, &cofferdam.Error{Op: "service.AnswerByWebhook", Kind: cofferdam.Unauthenticated, Subject: "message", Reason: "no system is registered here", Hint: "the operator names it in the table [approvals.systems] of the configuration file"}
	}
	proves, err := s.Systems.Admit(ctx, m)
	if err != nil {
		return cofferdam.Question{}, err
	}
	q, err := s.answerBySystem(identity.WithSource(ctx, "system "+r.System), id, proves, r)
	if err != nil {
		on := cofferdam.Question{Scope: s.Scope}
		if q.ID != "" {
			on = q
		}
		return cofferdam.Question{}, s.Systems.Refuse(ctx, m, on, err)
	}
	q.Bytes = nil // who wants to see them asks for the question, and is known then
	return q, nil
}

func (s *Service) answerBySystem(ctx context.Context, id string, proves bool, r cofferdam.WebhookAnswer) (cofferdam.Question, error) {
	const op = "service.AnswerByWebhook"
	none := cofferdam.Question{}
	nobody := &cofferdam.Error{Op: op, Kind: cofferdam.Forbidden, Subject: "person", Reason: "nobody here has bound what the system calls them", Hint: "the person runs cofferdam approval bind SYSTEM NAME"}
	if string(r.Question) != id {
		return none, invalid(op, "question", "the message is about another one than its address", "send it to /v1/approvals/ID/webhook")
	}
	if r.Person == "" || len(r.Person) > maxSubject {
		return none, nobody
	}
	c, err := s.Bound.Bound(ctx, issuerOf(r.System), r.Person)
	if err != nil {
		if cofferdam.KindOf(err) == cofferdam.NotFound {
			err = nobody
		}
		return none, err
	}
	q, err := s.Questions.QuestionAnywhere(ctx, r.Question)
	if err == nil && c.RoleIn(q.Scope) == "" {
		err = &cofferdam.Error{Kind: cofferdam.NotFound}
	}
	if err != nil {
		if cofferdam.KindOf(err) == cofferdam.NotFound {
			err = &cofferdam.Error{Op: op, Kind: cofferdam.NotFound, Subject: "question", Reason: "there is none", Hint: "notices name it whole"}
		}
		return none, err
	}
	ctx = WithActing(ctx, Acting{Caller: c, Scope: q.Scope})
	if _, err := s.enter(ctx, "service.AnswerApproval"); err != nil {
		return q, err
	}
	answer := cofferdam.AnswerRequest{Hash: r.Hash, Allow: r.Allow, Comment: r.Comment, Bounds: r.Bounds}
	if err := s.opensWithin(ctx, op, q, answer); err != nil {
		return q, err
	}
	how := issuerOf(r.System)
	switch {
	case r.Code != "":
		code, err := s.present(ctx, c, cofferdam.Proof{Kind: identity.TOTP, Code: r.Code}, About(q.Hash, r.Allow, r.Bounds))
		if err != nil {
			return q, err
		}
		how += " and " + code
	case !proves:
		return q, &cofferdam.Error{Op: op, Kind: cofferdam.Forbidden, Subject: "question " + string(q.ID), Reason: "nothing shows that the person is there", Hint: "send a code of their application, or have the operator trust the system with proves = true"}
	}
	return s.Desk.Answer(ctx, q.Scope, string(q.ID), r.Hash, cofferdam.Answer{By: c.Principal, Allow: r.Allow, Comment: r.Comment, Bounds: r.Bounds, Proof: how})
}

// BindWebhook says what a system outside calls the caller, with a fresh proof that
// it is they who say so.
func (s *Service) BindWebhook(ctx context.Context, r cofferdam.WebhookBinding) error {
	const op = "service.BindWebhook"
	a, err := s.enter(ctx, op)
	if err != nil {
		return err
	}
	switch {
	case s.Systems == nil || !s.Systems.Has(r.System):
		return &cofferdam.Error{Op: op, Kind: cofferdam.NotFound, Subject: fmt.Sprintf("system %.40q", r.System), Reason: "none of that name is registered", Hint: "the operator names it in the table [approvals.systems] of the configuration file"}
	case r.Person == "" || len(r.Person) > maxSubject:
		return invalid(op, "person", fmt.Sprintf("it has 1 to %d bytes", maxSubject), "give the name or number that the system has for you")
	case a.Caller.Principal.Kind != cofferdam.Person:
		return invalid(op, "person", "a test person has no account", "sign in with one")
	}
	if _, err := s.present(ctx, a.Caller, r.Proof, digestOf("webhook-binding", a.Caller.Member, r.System, r.Person)); err != nil {
		return err
	}
	return s.Bound.Bind(ctx, a.Caller, issuerOf(r.System), r.Person)
}

// RotateWebhook makes another secret for notices, for who runs the server. The one
// before signs beside it for a day.
func (s *Service) RotateWebhook(ctx context.Context) (cofferdam.WebhookSecret, error) {
	const op = "service.RotateWebhook"
	none := cofferdam.WebhookSecret{}
	a, err := s.enter(ctx, op)
	if err != nil {
		return none, err
	}
	if !s.ofServer(a) || s.NewWebhookSecret == nil {
		return none, &cofferdam.Error{Op: op, Kind: cofferdam.NotFound, Subject: "webhook", Reason: "there is none", Hint: "the operator names one in the table [approvals] of the configuration file"}
	}
	if err := s.ofMachine(ctx, op, "secret of the webhook"); err != nil { // it signs notices of all projects
		return none, err
	}
	if _, err := s.Record.Record(ctx, cofferdam.Event{Scope: a.Scope, Actor: a.Caller.Principal, Source: "approval", Kind: cofferdam.EventApprovalSecret, Durable: true}); err != nil {
		return none, err
	}
	text, err := s.NewWebhookSecret(ctx)
	return cofferdam.WebhookSecret{Schema: "cofferdam/webhook-secret/v1", Secret: text}, err
}
