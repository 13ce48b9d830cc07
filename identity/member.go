package identity

import (
	"context"
	"regexp"
	"slices"
	"time"

	"cofferdam"
)

// accountName is that of a person, a service account or a project.
var accountName = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,62}$`)

// idLike is what no name may look like: it would stand for an id.
var idLike = regexp.MustCompile(`^[a-z]-[0-9a-f]{6,32}$`)

// checkName refuses what is no name of an account or a project.
func checkName(op, name string) error {
	if !accountName.MatchString(name) || idLike.MatchString(name) {
		return invalid(op, "name", "it is 1 to 63 of a-z, 0-9, '.', '_' and '-', begins with a letter or a digit, and is not like an id")
	}
	return nil
}

// InvitationLife is how long somebody new may take to choose a password.
// Source: docs/SPECIFICATION.md, "Identity".
const InvitationLife = 24 * time.Hour

// invited are the verbs of an invitation.
var invited = []string{"factor.add", "login.bind", "factor.list", "user.self", "login.end"}

// invitation is the token by which a new person chooses what to prove by.
func invitation(p Person, by cofferdam.Principal) Token {
	return Token{
		Organization: p.Organization, Holder: cofferdam.Principal{Kind: cofferdam.Person, Name: p.Name}, Member: string(p.ID), Most: Viewer, Verbs: invited, By: by,
	}
}

// Member is a person or service account with its roles.
type Member struct {
	Person
	Roles []Membership
}

// Members lists those of an organisation who have a role in a project, or with
// project "" everybody. Those alone whom the caller may know are there.
func (d *Directory) Members(ctx context.Context, scope cofferdam.Scope) ([]Member, error) {
	people, err := d.o.Store.People(ctx, scope.Organization)
	if err != nil {
		return nil, err
	}
	roles, err := d.o.Store.Roles(ctx, scope.Organization)
	if err != nil {
		return nil, err
	}
	var list []Member
	for _, p := range people {
		m := Member{Person: p}
		for _, r := range roles[string(p.ID)] {
			if scope.Project == "" || r.Project == "" || r.Project == scope.Project {
				m.Roles = append(m.Roles, r)
			}
		}
		if scope.Project == "" || len(m.Roles) > 0 {
			list = append(list, m)
		}
	}
	return list, nil
}

// Member finds one of Members by name or id.
func (d *Directory) Member(ctx context.Context, scope cofferdam.Scope, name string) (Member, error) {
	all, err := d.Members(ctx, scope)
	if err != nil {
		return Member{}, err
	}
	for _, m := range all {
		if m.Name == name || string(m.ID) == name {
			return m, nil
		}
	}
	return Member{}, noMember(name)
}

func noMember(name string) error {
	return &cofferdam.Error{Op: "identity.Member", Kind: cofferdam.NotFound, Subject: "member " + show(name), Reason: "there is none", Hint: "cofferdam admin user list shows yours"}
}

func show(name string) string {
	if !accountName.MatchString(name) {
		return "of that name"
	}
	return name
}

// SetRole gives somebody a role in scope, or with project "" in all of the
// organisation. An account that is not there is made, and a person's comes with an
// invitation, by which they choose a password.
func (d *Directory) SetRole(ctx context.Context, who Caller, scope cofferdam.Scope, name string, service bool, role Role) (Member, string, error) {
	const op = "identity.SetRole"
	if err := checkName(op, name); err != nil {
		return Member{}, "", err
	}
	switch {
	case !role.Known():
		return Member{}, "", invalid(op, "role "+show(string(role)), "it is viewer, author, reviewer, operator or owner")
	case service && role.Has(Owner):
		return Member{}, "", invalid(op, "role owner", "a program's account decides about no members and no policy")
	}
	p, err := d.o.Store.Person(ctx, scope.Organization, name)
	fresh := err != nil && cofferdam.KindOf(err) == cofferdam.NotFound
	if err != nil && !fresh {
		return Member{}, "", err
	}
	if !fresh && (p.Service != service || !p.Disabled.IsZero()) {
		return Member{}, "", &cofferdam.Error{Op: op, Kind: cofferdam.Conflict, Subject: "account " + name, Reason: "it is of the other kind, or was closed", Hint: "choose another name"}
	}
	if fresh {
		p = d.person(scope.Organization, name)
		p.Service = service
	}
	if err := d.record(ctx, who, cofferdam.EventMember, map[string]string{"member": name, "role": string(role), "project": string(scope.Project)}); err != nil {
		return Member{}, "", err
	}
	membership, text := Membership{Member: string(p.ID), Project: scope.Project, Role: role}, ""
	if fresh {
		text, err = d.welcome(ctx, who, p, membership)
	} else {
		err = d.o.Store.SetMembership(ctx, scope.Organization, membership)
	}
	if err != nil {
		return Member{}, "", err
	}
	m, err := d.Member(ctx, scope, name)
	return m, text, err
}

// welcome makes an account with its first role and, if it is a person's, the
// invitation whose text it returns.
func (d *Directory) welcome(ctx context.Context, who Caller, p Person, m Membership) (string, error) {
	if p.Service {
		return "", d.o.Store.AddPerson(ctx, p, m, nil)
	}
	t, text, err := d.token(invitation(p, who.Principal), InvitationLife)
	if err != nil {
		return "", err
	}
	return text, d.o.Store.AddPerson(ctx, p, m, &t)
}

// Leave takes the role in a project away; with project "" it closes the account
// for good, with all its tokens.
func (d *Directory) Leave(ctx context.Context, who Caller, scope cofferdam.Scope, name string) error {
	const op = "identity.Leave"
	m, err := d.Member(ctx, scope, name)
	if err != nil {
		return err
	}
	if scope.Project != "" && !slices.ContainsFunc(m.Roles, func(r Membership) bool { return r.Project == scope.Project }) {
		return &cofferdam.Error{Op: op, Kind: cofferdam.Conflict, Subject: "member " + name, Reason: "has the role in all of the organisation", Hint: "an owner of the organisation takes it away with --organization"}
	}
	if err := d.record(ctx, who, cofferdam.EventMember, map[string]string{"member": name, "role": "none", "project": string(scope.Project)}); err != nil {
		return err
	}
	if err := d.o.Store.SetMembership(ctx, scope.Organization, Membership{Member: string(m.ID), Project: scope.Project}); err != nil || scope.Project != "" {
		return err
	}
	return d.o.Store.DisablePerson(ctx, scope.Organization, m.ID, d.o.Now().UTC()) // no token of a closed account counts
}
