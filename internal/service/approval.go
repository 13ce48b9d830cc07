package service

import (
	"context"

	"cofferdam"
)

// Questions keeps what people are asked.
type Questions interface {
	Question(ctx context.Context, scope cofferdam.Scope, id string) (cofferdam.Question, error)
	Questions(ctx context.Context, scope cofferdam.Scope, open bool, limit int) ([]cofferdam.Question, error)
	QuestionAnywhere(ctx context.Context, id cofferdam.QuestionID) (cofferdam.Question, error) // by its whole id
}

// Desk takes answers; package approval offers it.
type Desk interface {
	Answer(ctx context.Context, scope cofferdam.Scope, id string, seen cofferdam.Digest, a cofferdam.Answer) (cofferdam.Question, error)
	Open(ctx context.Context, q cofferdam.Question, a cofferdam.Answer) (cofferdam.Question, error) // what nobody asked
}

// ListApprovals returns the questions of the project, the newest first.
func (s *Service) ListApprovals(ctx context.Context, open bool, limit int) ([]cofferdam.Question, error) {
	if err := s.may(ctx, "service.ListApprovals"); err != nil {
		return nil, err
	}
	return s.Questions.Questions(ctx, s.scope(ctx), open, bounded(limit))
}

// Approval returns one question, with exactly the bytes that would be sent.
func (s *Service) Approval(ctx context.Context, id string) (cofferdam.Question, error) {
	if err := s.may(ctx, "service.Approval"); err != nil {
		return cofferdam.Question{}, err
	}
	return s.Questions.Question(ctx, s.scope(ctx), id)
}

// AnswerApproval takes a person's word, with a fresh proof that it is theirs.
func (s *Service) AnswerApproval(ctx context.Context, id string, r cofferdam.AnswerRequest) (cofferdam.Question, error) {
	const op = "service.AnswerApproval"
	a, err := s.enter(ctx, op)
	if err != nil {
		return cofferdam.Question{}, err
	}
	q, err := s.Questions.Question(ctx, a.Scope, id)
	if err != nil {
		return q, err
	}
	if err := s.opensWithin(ctx, op, q, r); err != nil {
		return q, err
	}
	how, err := s.present(ctx, a.Caller, r.Proof, About(q.Hash, r.Allow, r.Bounds))
	if err != nil {
		return q, err
	}
	return s.Desk.Answer(ctx, a.Scope, string(q.ID), r.Hash, cofferdam.Answer{By: a.Caller.Principal, Allow: r.Allow, Comment: r.Comment, Bounds: r.Bounds, Proof: how})
}

// opensWithin refuses what an answer would open beyond what policy lets a task have.
func (s *Service) opensWithin(ctx context.Context, op string, q cofferdam.Question, r cofferdam.AnswerRequest) error {
	b := r.Bounds
	if b == nil {
		b = q.Proposed
	}
	if !r.Allow || b == nil {
		return nil
	}
	return s.withinPolicy(ctx, op, q.Scope, q.Action, b.Entry)
}

// About is what a proof for an answer is about: the question, the answer and its
// bounds, so that none counts for another.
func About(q cofferdam.Digest, allow bool, b *cofferdam.Bounds) cofferdam.Digest {
	return digestOf("approval", q, allow, b)
}
