package service

import (
	"context"
	"crypto/rand"

	"cofferdam"
	"cofferdam/identity"
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

// Prover says whether a person is there; package identity offers it.
type Prover interface {
	Prove(ctx context.Context, person cofferdam.PersonID, p cofferdam.Proof, about cofferdam.Digest) (identity.Presence, error)
	Enroll(ctx context.Context, who identity.Caller, e cofferdam.EnrollRequest, p identity.Presence, about cofferdam.Digest) (identity.Factor, error)
	Unenroll(ctx context.Context, who identity.Caller, id string, p identity.Presence, about cofferdam.Digest) error
	Factors(ctx context.Context, person cofferdam.PersonID) ([]identity.Factor, error)
}

// testProof is how a test person is seen to be there. It is on record as such.
const testProof = "test-person"

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

// present says how a person was seen to be there for about. Without a factor they
// are told to set one up: nothing else tells them from a program of theirs.
func (s *Service) present(ctx context.Context, c identity.Caller, p cofferdam.Proof, about cofferdam.Digest) (string, error) {
	if c.Principal.Kind == cofferdam.TestPerson {
		return testProof, nil
	}
	p, err := s.fetched(ctx, c, p, about)
	if err != nil {
		return "", err
	}
	seen, err := s.Prover.Prove(ctx, cofferdam.PersonID(c.Member), p, about)
	return seen.How, err
}

// About is what a proof for an answer is about: the question, the answer and its
// bounds, so that none counts for another.
func About(q cofferdam.Digest, allow bool, b *cofferdam.Bounds) cofferdam.Digest {
	return digestOf("approval", q, allow, b)
}

// mix is chance of this process alone: a browser sees the digest that a passkey signs
// for, and must not be able to try passwords with it.
var mix = rand.Text()

// aboutFactor is what a proof for a change of factors is about: that change and no
// other, so that what a person agreed to in a browser lets nobody make another one.
func aboutFactor(what string, of ...any) cofferdam.Digest {
	return digestOf("factor", mix, what, of)
}

// Enroll gives the caller a factor.
func (s *Service) Enroll(ctx context.Context, r cofferdam.EnrollRequest) (cofferdam.Factor, error) {
	a, err := s.enter(ctx, "service.Enroll")
	if err != nil {
		return cofferdam.Factor{}, err
	}
	var p identity.Presence
	about := aboutFactor("add", r.Kind, r.Name, r.Password, r.Secret, r.Credential) // a code may be another one by now
	if r.Proof.Kind != "" {
		if r.Proof, err = s.fetched(ctx, a.Caller, r.Proof, about); err != nil {
			return cofferdam.Factor{}, err
		}
		if p, err = s.Prover.Prove(ctx, cofferdam.PersonID(a.Caller.Member), r.Proof, about); err != nil {
			return cofferdam.Factor{}, err
		}
	}
	f, err := s.Prover.Enroll(ctx, a.Caller, r, p, about)
	return shownFactor(f), err
}

func shownFactor(f identity.Factor) cofferdam.Factor {
	return cofferdam.Factor{Schema: "cofferdam/factor/v1", ID: f.ID, Kind: f.Kind, Name: f.Name, Created: f.Created}
}

// Unenroll takes a factor of the caller away.
func (s *Service) Unenroll(ctx context.Context, id string, proof cofferdam.Proof) error {
	a, err := s.enter(ctx, "service.Unenroll")
	if err != nil {
		return err
	}
	about := aboutFactor("remove", id)
	if proof, err = s.fetched(ctx, a.Caller, proof, about); err != nil {
		return err
	}
	p, err := s.Prover.Prove(ctx, cofferdam.PersonID(a.Caller.Member), proof, about)
	if err != nil {
		return err
	}
	return s.Prover.Unenroll(ctx, a.Caller, id, p, about)
}

// ListFactors lists those of the caller.
func (s *Service) ListFactors(ctx context.Context) ([]cofferdam.Factor, error) {
	a, err := s.enter(ctx, "service.ListFactors")
	if err != nil {
		return nil, err
	}
	all, err := s.Prover.Factors(ctx, cofferdam.PersonID(a.Caller.Member))
	var shown []cofferdam.Factor
	for _, f := range all {
		shown = append(shown, shownFactor(f))
	}
	return shown, err
}
