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
