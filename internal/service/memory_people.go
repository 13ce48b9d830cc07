package service

import (
	"context"

	"cofferdam"
	"cofferdam/identity"
)

// memoryAccounts are the accounts of a world in memory: whoever the kernel names is
// an owner of the one organisation there is at first.
func memoryAccounts(scope cofferdam.Scope) (*identity.Directory, *identity.Memory) {
	kept := identity.NewMemory("default", cofferdam.Project{Schema: "cofferdam/project/v1", Scope: scope, Name: "default"})
	return identity.New(identity.Options{Store: kept, Record: memoryRecord{}}), kept
}

// MemoryPassword is what everybody there proves themselves by.
const MemoryPassword = "correct horse battery"

// memoryProver knows one password for all.
type memoryProver struct{}

func (memoryProver) Prove(_ context.Context, person cofferdam.PersonID, p cofferdam.Proof, about cofferdam.Digest) (identity.Presence, error) {
	if p.Kind != identity.Password || p.Password != MemoryPassword {
		return identity.Presence{}, &cofferdam.Error{Op: "memory.Prove", Kind: cofferdam.Forbidden, Subject: "proof that you are there", Reason: "it does not hold", Hint: "give your password"}
	}
	return identity.Presence{Person: person, How: p.Kind, About: about}, nil
}

func (memoryProver) Enroll(context.Context, identity.Caller, cofferdam.EnrollRequest, identity.Presence, cofferdam.Digest) (identity.Factor, error) {
	return identity.Factor{}, &cofferdam.Error{Op: "memory.Enroll", Kind: cofferdam.Conflict, Subject: "factor", Reason: "everybody has one", Hint: "give it"}
}

func (memoryProver) Unenroll(context.Context, identity.Caller, string, identity.Presence, cofferdam.Digest) error {
	return &cofferdam.Error{Op: "memory.Unenroll", Kind: cofferdam.Conflict, Subject: "factor", Reason: "it is the last one", Hint: "keep it"}
}

func (memoryProver) Factors(_ context.Context, person cofferdam.PersonID) ([]identity.Factor, error) {
	return []identity.Factor{{ID: "f-1", Person: person, Kind: identity.Password, Name: "terminal"}}, nil
}
