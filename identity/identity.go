// Package identity says who is asking: people, service accounts and sessions,
// which organisation and projects they belong to and in which role, by what they
// prove it, and that a person is there just now.
//
// It decides nothing about tasks or policy; who may do what is a role's, and
// which verb needs which role is internal/service's table. The invariants: a
// token or password is kept as a hash only; whoever is not known, or not known
// here, is told the same; what proves that a person is present counts for one
// thing and one minute.
package identity

import (
	"context"
	"slices"
	"time"

	"cofferdam"
)

// Role is what a member may do in a project, or in all of an organisation.
type Role string

// The roles, each with what the one before it may.
const (
	Viewer   Role = "viewer"   // sees tasks, traces and proofs
	Author   Role = "author"   // gives tasks and steers them
	Reviewer Role = "reviewer" // answers questions, approves and lands merges
	Operator Role = "operator" // repositories, models, secrets, environments, workspaces
	Owner    Role = "owner"    // members, tokens and policy
)

var order = []Role{Viewer, Author, Reviewer, Operator, Owner}

// Has says whether r includes what needs does; an unknown role has nothing, and
// what needs an unknown one nobody has.
func (r Role) Has(needs Role) bool {
	have, want := slices.Index(order, r), slices.Index(order, needs)
	return have >= 0 && want >= 0 && have >= want
}

// Known says whether r is a role.
func (r Role) Known() bool { return slices.Contains(order, r) }

// Lower returns the role with fewer rights; an unknown one is lowest.
func (r Role) Lower(o Role) Role {
	if r.Has(o) {
		return o
	}
	return r
}

// Person is somebody with an account, or a program that has one.
type Person struct {
	Schema       string                   `json:"schema"` // cofferdam/person/v1
	ID           cofferdam.PersonID       `json:"id"`
	Organization cofferdam.OrganizationID `json:"organization"`
	Name         string                   `json:"name"`    // [a-z0-9][a-z0-9._-]{0,62}, of the organisation
	Service      bool                     `json:"service"` // a program's: it signs nothing and answers nothing
	Created      time.Time                `json:"created"`
	Disabled     time.Time                `json:"disabled,omitzero"`
}

// Membership is a role of somebody. Project "" is all of the organisation's.
type Membership struct {
	Member  string              `json:"member"` // id of a person or a service account
	Project cofferdam.ProjectID `json:"project,omitempty"`
	Role    Role                `json:"role"`
}

// Caller is who sends a request, as far as a face can tell, and what they may.
type Caller struct {
	Principal    cofferdam.Principal
	Member       string // id; "" for the platform
	Organization cofferdam.OrganizationID
	Memberships  []Membership
	Verbs        []string            // of a token that is good for some alone; nil: all
	Most         Role                // of a token: at most this; "" for no bound
	Fixed        cofferdam.ProjectID // of a token that is good for one project; "" for none
	Token        cofferdam.TokenID   // by which the caller acts; "" for none
	Runs         bool                // the kernel, or a file that only they can read, says that they run the server
	Signed       time.Time           // when they signed in, if the token came of that
}

// There says whether the caller is a person and no program of theirs, as far as
// that can be told without a proof: whom the kernel names, or who has signed in. A
// token that somebody made for themselves stands for a program.
func (c Caller) There() bool {
	return c.Principal.IsPerson() && (c.Token == "" || !c.Signed.IsZero())
}

// RoleIn returns what the caller may in a project: the highest of its roles
// there, bounded by its token. "" is nothing: the project does not exist for it.
func (c Caller) RoleIn(scope cofferdam.Scope) Role {
	if scope.Organization != c.Organization || scope.Organization == "" || c.Fixed != "" && c.Fixed != scope.Project {
		return ""
	}
	var best Role
	for _, m := range c.Memberships {
		if (m.Project == "" || m.Project == scope.Project) && !best.Has(m.Role) {
			best = m.Role
		}
	}
	if c.Most != "" {
		best = best.Lower(c.Most)
	}
	return best
}

// May says whether the caller may use a verb that needs a role in a project.
func (c Caller) May(scope cofferdam.Scope, verb string, needs Role) bool {
	return c.RoleIn(scope).Has(needs) && (c.Verbs == nil || slices.Contains(c.Verbs, verb))
}

// Store keeps accounts. Errors are *cofferdam.Error; NotFound says the same of
// what is not there and of what belongs to another organisation.
type Store interface {
	Person(ctx context.Context, o cofferdam.OrganizationID, name string) (Person, error) // id, unique prefix or name
	People(ctx context.Context, o cofferdam.OrganizationID) ([]Person, error)
	// AddPerson keeps an account with its first role and invitation, all or nothing:
	// one without them could not be used, and its name would be taken. The zero
	// Membership is no role, nil no invitation.
	AddPerson(ctx context.Context, p Person, m Membership, invitation *Token) error
	DisablePerson(ctx context.Context, o cofferdam.OrganizationID, id cofferdam.PersonID, at time.Time) error
	// ReopenPerson opens a closed account with this role and invitation, all or
	// nothing, and with no role, token, factor or sign-in of before; a Conflict if it is open.
	ReopenPerson(ctx context.Context, o cofferdam.OrganizationID, m Membership, invitation *Token) error
	Memberships(ctx context.Context, member string) ([]Membership, error)
	Roles(ctx context.Context, o cofferdam.OrganizationID) (map[string][]Membership, error) // of all members
	SetMembership(ctx context.Context, o cofferdam.OrganizationID, m Membership) error      // Role "" removes it, and its tokens

	Organization(ctx context.Context, name string) (cofferdam.OrganizationID, error)
	Organizations(ctx context.Context) ([]cofferdam.Organization, error)
	AddOrganization(ctx context.Context, f Founding) error // all of it or nothing; a Conflict if the name is taken
	AddProject(ctx context.Context, p cofferdam.Project) error

	// BindSubject binds who a provider names to a person; a Conflict if it is bound.
	BindSubject(ctx context.Context, issuer, subject string, p cofferdam.PersonID, at time.Time) error
	PersonBySubject(ctx context.Context, issuer, subject string) (Person, error)

	AddToken(ctx context.Context, t Token) error
	TokenByHash(ctx context.Context, hash string) (Token, error)
	Tokens(ctx context.Context, o cofferdam.OrganizationID) ([]Token, error) // newest first, up to a bound
	Token(ctx context.Context, o cofferdam.OrganizationID, id cofferdam.TokenID) (Token, error)
	RevokeToken(ctx context.Context, o cofferdam.OrganizationID, id cofferdam.TokenID, at time.Time) error
	UsedToken(ctx context.Context, id cofferdam.TokenID, at time.Time) error

	// AddFactor keeps a factor of somebody who has so many; a Conflict if that is
	// not what they have by now.
	AddFactor(ctx context.Context, f Factor, have int) error
	Factors(ctx context.Context, p cofferdam.PersonID) ([]Factor, error)
	CodeFactors(ctx context.Context) ([]Factor, error) // of the kind TOTP, of everybody
	// SealFactor writes what a factor holds anew; once Forget has returned, nothing of
	// before is on disk.
	SealFactor(ctx context.Context, id string, data []byte) error
	Forget(ctx context.Context) error
	RemoveFactor(ctx context.Context, p cofferdam.PersonID, id string) error
	ChangeFactor(ctx context.Context, id string, data []byte) error
	// SpendStep marks a TOTP step of a factor as used: a conflict if it was, or
	// a later one.
	SpendStep(ctx context.Context, factor string, step int64) error
	// Attempt counts a wrong proof from a source, or with right forgets its count,
	// and returns how many were wrong since then: of the source, or MaxWrong and
	// more if all sources but "" together had more than MaxGuesses.
	Attempt(ctx context.Context, p cofferdam.PersonID, source string, right bool, now, since time.Time) (wrong int, err error)
}
