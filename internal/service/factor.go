package service

import (
	"context"
	"crypto/rand"

	"cofferdam"
	"cofferdam/identity"
)

// Prover says whether a person is there; package identity offers it.
type Prover interface {
	Prove(ctx context.Context, person cofferdam.PersonID, p cofferdam.Proof, about cofferdam.Digest) (identity.Presence, error)
	Enroll(ctx context.Context, who identity.Caller, e cofferdam.EnrollRequest, p identity.Presence, about cofferdam.Digest) (identity.Factor, error)
	Unenroll(ctx context.Context, who identity.Caller, id string, p identity.Presence, about cofferdam.Digest) error
	Factors(ctx context.Context, person cofferdam.PersonID) ([]identity.Factor, error)
}

// testProof is how a test person is seen to be there. It is on record as such.
const testProof = "test-person"

// present says how a person was seen to be there for about. Without a factor they
// are told to set one up: nothing else tells them from a program of theirs.
func (s *Service) present(ctx context.Context, c identity.Caller, p cofferdam.Proof, about cofferdam.Digest) (string, error) {
	if c.Principal.Kind == cofferdam.TestPerson {
		return testProof, nil
	}
	if p.Kind == "" { // no guess at one: it is not counted
		return "", &cofferdam.Error{
			Op: "service.Present", Kind: cofferdam.Forbidden, Subject: "proof that you are there", Reason: cofferdam.NoProof,
			Hint: "give your password, a fresh code or your passkey; cofferdam login --enroll sets one up",
		}
	}
	p, err := s.fetched(ctx, c, p, about)
	if err != nil {
		return "", err
	}
	seen, err := s.Prover.Prove(ctx, cofferdam.PersonID(c.Member), p, about)
	return seen.How, err
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
