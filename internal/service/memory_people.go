package service

import (
	"context"

	"cofferdam"
	"cofferdam/identity"
)

// memoryPeople are everybody: whoever the kernel names is an owner of the one
// organisation there is, and no token counts.
type memoryPeople struct{ scope cofferdam.Scope }

func (p memoryPeople) Local(_ context.Context, o cofferdam.OrganizationID, name string) (identity.Caller, error) {
	return identity.Caller{
		Principal: cofferdam.Principal{Kind: cofferdam.Person, Name: name}, Member: "u-" + name, Organization: o,
		Memberships: []identity.Membership{{Member: "u-" + name, Role: identity.Owner}},
	}, nil
}

func (p memoryPeople) Bearer(context.Context, string) (identity.Caller, error) {
	return identity.Caller{}, &cofferdam.Error{Op: "memory.Bearer", Kind: cofferdam.Unauthenticated, Subject: "token", Reason: "it is not one that counts here"}
}

func (p memoryPeople) Project(_ context.Context, o cofferdam.OrganizationID, name string) (cofferdam.Scope, error) {
	if o == p.scope.Organization && (name == string(p.scope.Project) || name == "default") {
		return p.scope, nil
	}
	return cofferdam.Scope{}, noProject("memory.Project", name)
}

func (p memoryPeople) Projects(context.Context, cofferdam.OrganizationID) ([]cofferdam.Project, error) {
	return []cofferdam.Project{{Schema: "cofferdam/project/v1", Scope: p.scope, Name: "default"}}, nil
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
