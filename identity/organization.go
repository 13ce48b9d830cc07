package identity

import (
	"context"
	"time"

	"cofferdam"
)

// Founding is a new organisation with what it begins with.
type Founding struct {
	Organization cofferdam.Organization
	Project      cofferdam.Project
	Owner        Person
	Invitation   Token
}

// NewOrganization makes an organisation with a project, default, and a person who
// owns it and is invited. If there is one of the name, whose owner of that name has
// chosen nothing to prove by yet, the owner is invited again.
func (d *Directory) NewOrganization(ctx context.Context, who Caller, name, owner string) (cofferdam.Organization, string, error) {
	const op = "identity.NewOrganization"
	none := cofferdam.Organization{}
	if err := checkName(op, name); err != nil {
		return none, "", err
	}
	if err := checkName(op, owner); err != nil {
		return none, "", err
	}
	f := Founding{Organization: cofferdam.Organization{Schema: "cofferdam/organization/v1", ID: cofferdam.OrganizationID(cofferdam.NewID("o")), Name: name, Created: d.o.Now().UTC()}}
	id, err := d.o.Store.Organization(ctx, name)
	switch {
	case err == nil:
		return d.inviteAgain(ctx, who, id, name, owner)
	case cofferdam.KindOf(err) != cofferdam.NotFound:
		return none, "", err
	}
	f.Project, f.Owner = newProject(f.Organization.ID, "default", d.o.Now()), newPerson(f.Organization.ID, owner, d.o.Now())
	var text string
	if f.Invitation, text, err = d.token(invitation(f.Owner, who.Principal), InvitationLife); err != nil {
		return none, "", err
	}
	if err := d.record(ctx, who, cofferdam.EventOrganization, map[string]string{"organization": string(f.Organization.ID), "name": name, "owner": owner}); err != nil {
		return none, "", err
	}
	return f.Organization, text, d.o.Store.AddOrganization(ctx, f)
}

// inviteAgain is for an owner who has lost the invitation, or let it go stale.
func (d *Directory) inviteAgain(ctx context.Context, who Caller, id cofferdam.OrganizationID, name, owner string) (cofferdam.Organization, string, error) {
	taken := &cofferdam.Error{Op: "identity.NewOrganization", Kind: cofferdam.Conflict, Subject: "organisation " + name, Reason: "there is one", Hint: "choose another name; an owner who has chosen a password invites others"}
	p, err := d.o.Store.Person(ctx, id, owner)
	if err != nil && cofferdam.KindOf(err) != cofferdam.NotFound {
		return cofferdam.Organization{}, "", err
	}
	if err != nil || id == who.Organization || p.Name != owner || p.Service || !p.Disabled.IsZero() {
		return cofferdam.Organization{}, "", taken
	}
	roles, err := d.o.Store.Memberships(ctx, string(p.ID))
	if err != nil {
		return cofferdam.Organization{}, "", err
	}
	factors, err := d.o.Store.Factors(ctx, p.ID)
	if err != nil {
		return cofferdam.Organization{}, "", err
	}
	whole := Caller{Organization: id, Memberships: roles}.RoleIn(cofferdam.Scope{Organization: id})
	if len(factors) > 0 || whole != Owner {
		return cofferdam.Organization{}, "", taken
	}
	all, err := d.Organizations(ctx)
	if err != nil {
		return cofferdam.Organization{}, "", err
	}
	for _, o := range all {
		if o.ID != id {
			continue
		}
		if err := d.record(ctx, who, cofferdam.EventOrganization, map[string]string{"organization": string(id), "name": name, "owner": owner, "again": "true"}); err != nil {
			return o, "", err
		}
		_, text, err := d.Issue(ctx, invitation(p, who.Principal), InvitationLife)
		return o, text, err
	}
	return cofferdam.Organization{}, "", taken
}

// Organizations lists those of this server, by name.
func (d *Directory) Organizations(ctx context.Context) ([]cofferdam.Organization, error) {
	return d.o.Store.Organizations(ctx)
}

// NewProject makes a project of the caller's organisation.
func (d *Directory) NewProject(ctx context.Context, who Caller, name string) (cofferdam.Project, error) {
	const op = "identity.NewProject"
	if err := checkName(op, name); err != nil {
		return cofferdam.Project{}, err
	}
	p := newProject(who.Organization, name, d.o.Now())
	if err := d.record(ctx, who, cofferdam.EventProject, map[string]string{"project": string(p.Project), "name": name}); err != nil {
		return p, err
	}
	return p, d.o.Store.AddProject(ctx, p)
}

// newProject is a new one, which is there once it is kept.
func newProject(o cofferdam.OrganizationID, name string, at time.Time) cofferdam.Project {
	return cofferdam.Project{
		Schema: "cofferdam/project/v1", Name: name, Created: at.UTC(), Scope: cofferdam.Scope{Organization: o, Project: cofferdam.ProjectID(cofferdam.NewID("p"))},
	}
}
