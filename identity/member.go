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
	p, fresh, err := mayHave(ctx, d.o.Store, scope, name, service, role)
	if err != nil {
		return Member{}, "", err
	}
	if fresh {
		p = newPerson(scope.Organization, name, d.o.Now())
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

// MayHave says whether SetRole would take it, as far as that can be told before.
func (d *Directory) MayHave(ctx context.Context, scope cofferdam.Scope, name string, service bool, role Role) error {
	_, _, err := mayHave(ctx, d.o.Store, scope, name, service, role)
	return err
}

// mayHave finds the account that is to have a role; fresh says that there is none yet.
func mayHave(ctx context.Context, in Store, scope cofferdam.Scope, name string, service bool, role Role) (p Person, fresh bool, err error) {
	const op = "identity.SetRole"
	if err := checkName(op, name); err != nil {
		return p, false, err
	}
	if err := checkRole(op, service, role); err != nil {
		return p, false, err
	}
	p, err = in.Person(ctx, scope.Organization, name)
	conflict := &cofferdam.Error{Op: op, Kind: cofferdam.Conflict, Subject: "account " + name}
	switch {
	case err != nil && cofferdam.KindOf(err) == cofferdam.NotFound:
		return p, true, nil
	case err != nil:
		return p, false, err
	case !p.Disabled.IsZero():
		conflict.Reason, conflict.Hint = "it is closed", "cofferdam admin user reopen "+name+" opens it again, as an owner of the organisation; or choose another name"
		return p, false, conflict
	case p.Service && !service:
		conflict.Reason, conflict.Hint = "it is a program's", "add --service, or choose another name"
		return p, false, conflict
	case service && !p.Service:
		conflict.Reason, conflict.Hint = "it is a person's", "leave --service out, or choose another name"
		return p, false, conflict
	}
	return p, false, nil
}

// checkRole refuses what is no role of a person's, or of a program's, account.
func checkRole(op string, service bool, role Role) error {
	switch {
	case !role.Known():
		return invalid(op, "role "+show(string(role)), "it is viewer, author, reviewer, operator or owner")
	case service && role.Has(Owner):
		return &cofferdam.Error{
			Op: op, Kind: cofferdam.Invalid, Subject: "role owner", Reason: "a program's account decides about no members and no policy", Hint: "give it operator or less",
		}
	}
	return nil
}

// closedMember finds the account that is to be opened again.
func closedMember(ctx context.Context, d *Directory, op string, o cofferdam.OrganizationID, name string, role Role) (Member, error) {
	m, err := d.Member(ctx, cofferdam.Scope{Organization: o}, name)
	if err != nil {
		return m, err
	}
	if m.Disabled.IsZero() {
		return m, &cofferdam.Error{Op: op, Kind: cofferdam.Conflict, Subject: "account " + m.Name, Reason: "it is open", Hint: "cofferdam admin user add gives it a role"}
	}
	return m, checkRole(op, m.Service, role)
}

// MayReopen says whether Reopen would take it.
func (d *Directory) MayReopen(ctx context.Context, o cofferdam.OrganizationID, name string, role Role) error {
	_, err := closedMember(ctx, d, "identity.Reopen", o, name, role)
	return err
}

// Reopen opens a closed account again, with a role in scope. Nothing that it had
// counts: not its other roles, its tokens and logins, nor what its holder proved
// themselves by, which they choose anew by the invitation that is returned.
func (d *Directory) Reopen(ctx context.Context, who Caller, scope cofferdam.Scope, name string, role Role) (Member, string, error) {
	const op = "identity.Reopen"
	m, err := closedMember(ctx, d, op, scope.Organization, name, role)
	if err != nil {
		return Member{}, "", err
	}
	var invited *Token
	var text string
	if !m.Service {
		t, plain, err := d.token(invitation(m.Person, who.Principal), InvitationLife)
		if err != nil {
			return Member{}, "", err
		}
		invited, text = &t, plain
	}
	if err := d.record(ctx, who, cofferdam.EventMember, map[string]string{"member": m.Name, "role": string(role), "project": string(scope.Project), "again": "true"}); err != nil {
		return Member{}, "", err
	}
	if err := d.o.Store.ReopenPerson(ctx, scope.Organization, Membership{Member: string(m.ID), Project: scope.Project, Role: role}, invited); err != nil {
		return Member{}, "", err
	}
	m, err = d.Member(ctx, scope, m.Name)
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

// Leave takes the role in a project away; with project "" it closes the account,
// with all its tokens, until an owner opens it again.
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
