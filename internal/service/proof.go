package service

import (
	"context"
	"fmt"

	"cofferdam"
	"cofferdam/task"
)

// Proof returns the signed receipt for a task's present commit.
func (s *Service) Proof(ctx context.Context, name string) (task.Receipt, error) {
	t, err := s.Task(ctx, name)
	if err != nil {
		return task.Receipt{}, err
	}
	if t.Head == "" || t.Receipt == "" {
		return task.Receipt{}, &cofferdam.Error{
			Op: "service.Proof", Kind: cofferdam.NotFound, Subject: "proof of " + t.Short(), Reason: fmt.Sprintf("there is none: the task is %s", t.State),
			Hint: "cofferdam task view " + t.Short(),
		}
	}
	return s.Receipts.ReceiptFor(ctx, t.ID, t.Head)
}

// VerifierKey returns the public key that checks receipts and exports.
func (s *Service) VerifierKey(ctx context.Context) (string, error) {
	if err := s.may(ctx, "service.VerifierKey"); err != nil {
		return "", err
	}
	return s.PublicKey, nil
}
