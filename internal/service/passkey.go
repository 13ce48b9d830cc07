package service

import (
	"context"

	"cofferdam"
	"cofferdam/identity"
)

// Passkeys has browsers ask people for their passkeys; package identity offers it.
// nil: there are none.
type Passkeys interface {
	Errand(ctx context.Context, who identity.Caller, about cofferdam.Digest, what string) (cofferdam.Errand, error)
	Answered(who identity.Caller, about cofferdam.Digest) ([]byte, bool)
	Page(ticket string) (cofferdam.PasskeyPage, error)
	Answer(ticket string, answer []byte) error
}

type askedKey struct{}

// WithAsked returns a context of a request that what puts in words, for the person
// who has to prove that they mean it.
func WithAsked(ctx context.Context, what func() string) context.Context {
	return context.WithValue(ctx, askedKey{}, what)
}

// passkeys returns them; an error if the server has none.
func (s *Service) passkeys(op string) (Passkeys, error) {
	if s.Passkeys == nil {
		return nil, &cofferdam.Error{Op: op, Kind: cofferdam.NotFound, Subject: "passkeys", Reason: "this server has none", Hint: "prove yourself by a password or a code; who runs the server may set passkey_origin in its file"}
	}
	return s.Passkeys, nil
}

// fetched is a proof with what a browser answered, if it is one by a passkey that
// the request does not bring itself. Until then there is an errand for the person.
func (s *Service) fetched(ctx context.Context, who identity.Caller, p cofferdam.Proof, about cofferdam.Digest) (cofferdam.Proof, error) {
	if p.Kind != identity.Passkey || len(p.Assertion) > 0 {
		return p, nil
	}
	var err error
	p.Assertion, err = s.browse(ctx, who, about)
	return p, err
}

// browse returns what a browser answered, or the errand as an error.
func (s *Service) browse(ctx context.Context, who identity.Caller, about cofferdam.Digest) ([]byte, error) {
	const op = "service.Passkey"
	keys, err := s.passkeys(op)
	if err != nil {
		return nil, err
	}
	if answer, ok := keys.Answered(who, about); ok {
		return answer, nil
	}
	text := ""
	if what, ok := ctx.Value(askedKey{}).(func() string); ok {
		text = what()
	}
	e, err := keys.Errand(ctx, who, about, text)
	if err != nil {
		return nil, err
	}
	return nil, &cofferdam.Error{Op: op, Kind: cofferdam.AwaitsPerson, Subject: "passkey", Reason: "a browser has to ask for it", Hint: "open the errand's address, and send the same request again", Err: &e}
}

// RegisterPasskey has a browser make a passkey of the caller. Without an error it
// has, and Enroll keeps it.
func (s *Service) RegisterPasskey(ctx context.Context) error {
	a, err := s.enter(ctx, "service.RegisterPasskey")
	if err != nil {
		return err
	}
	_, err = s.browse(ctx, a.Caller, "")
	return err
}

// PasskeyPage is what the page of a ticket shows. Whoever has the ticket may see it.
func (s *Service) PasskeyPage(_ context.Context, ticket string) (cofferdam.PasskeyPage, error) {
	keys, err := s.passkeys("service.PasskeyPage")
	if err != nil {
		return cofferdam.PasskeyPage{}, err
	}
	return keys.Page(ticket)
}

// AnswerPasskey takes what a browser gave back.
func (s *Service) AnswerPasskey(_ context.Context, r cofferdam.PasskeyAnswer) error {
	keys, err := s.passkeys("service.AnswerPasskey")
	if err != nil {
		return err
	}
	return keys.Answer(r.Ticket, r.Answer)
}
