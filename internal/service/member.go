package service

import (
	"context"
	"slices"
	"time"

	"cofferdam"
	"cofferdam/identity"
)

// Accounts keeps who belongs to an organisation and what they hold; package
// identity offers it. Errors are *cofferdam.Error.
type Accounts interface {
	Members(ctx context.Context, scope cofferdam.Scope) ([]identity.Member, error) // of a project; "": of the organisation
	Member(ctx context.Context, scope cofferdam.Scope, name string) (identity.Member, error)
	SetRole(ctx context.Context, who identity.Caller, scope cofferdam.Scope, name string, service bool, role identity.Role) (identity.Member, string, error)
	MayHave(ctx context.Context, scope cofferdam.Scope, name string, service bool, role identity.Role) error
	Leave(ctx context.Context, who identity.Caller, scope cofferdam.Scope, name string) error
	Reopen(ctx context.Context, who identity.Caller, scope cofferdam.Scope, name string, role identity.Role) (identity.Member, string, error)
	MayReopen(ctx context.Context, o cofferdam.OrganizationID, name string, role identity.Role) error
	NewProject(ctx context.Context, who identity.Caller, name string) (cofferdam.Project, error)
	Organizations(ctx context.Context) ([]cofferdam.Organization, error)
	NewOrganization(ctx context.Context, who identity.Caller, name, owner string) (o cofferdam.Organization, invitation string, err error)
	NewToken(ctx context.Context, who identity.Caller, t identity.Token, life time.Duration) (identity.Token, string, error)
	Tokens(ctx context.Context, o cofferdam.OrganizationID) ([]identity.Token, error)
	Token(ctx context.Context, o cofferdam.OrganizationID, id cofferdam.TokenID) (identity.Token, error)
	Revoke(ctx context.Context, who identity.Caller, id cofferdam.TokenID) error
	SignIn(ctx context.Context, r cofferdam.LoginRequest, first cofferdam.OrganizationID) (identity.Token, string, error)
}

// Self returns the caller as a member of the project that they act in.
func (s *Service) Self(ctx context.Context) (cofferdam.Member, error) {
	a, err := s.enter(ctx, "service.Self")
	if err != nil {
		return cofferdam.Member{}, err
	}
	if a.Caller.Principal.Kind == cofferdam.TestPerson {
		return cofferdam.Member{
			Schema: "cofferdam/member/v1", ID: cofferdam.PersonID(a.Caller.Member), Name: a.Caller.Principal.Name, Roles: []cofferdam.MemberRole{{Role: string(a.Caller.RoleIn(a.Scope))}},
		}, nil
	}
	m, err := s.Accounts.Member(ctx, a.Scope, a.Caller.Member)
	if err != nil {
		return cofferdam.Member{}, err
	}
	return s.shown(ctx, a, m)
}

// shown is a member as the caller may see it.
func (s *Service) shown(ctx context.Context, a Acting, all ...identity.Member) (cofferdam.Member, error) {
	list, err := s.shownAll(ctx, a, all)
	if err != nil || len(list) == 0 {
		return cofferdam.Member{}, err
	}
	return list[0], nil
}

func (s *Service) shownAll(ctx context.Context, a Acting, all []identity.Member) ([]cofferdam.Member, error) {
	projects, err := s.Projects.Projects(ctx, a.Scope.Organization)
	if err != nil {
		return nil, err
	}
	names := map[cofferdam.ProjectID]string{}
	for _, p := range projects {
		names[p.Project] = p.Name
	}
	list := make([]cofferdam.Member, 0, len(all))
	for _, m := range all {
		v := cofferdam.Member{Schema: "cofferdam/member/v1", ID: m.ID, Name: m.Name, Service: m.Service, Roles: []cofferdam.MemberRole{}, Created: m.Created, Disabled: m.Disabled}
		for _, r := range m.Roles {
			v.Roles = append(v.Roles, cofferdam.MemberRole{Project: r.Project, Name: names[r.Project], Role: string(r.Role)})
		}
		list = append(list, v)
	}
	return list, nil
}

// ListMembers returns who has a role in the project, or, for who has one in all
// of the organisation, everybody in it.
func (s *Service) ListMembers(ctx context.Context, level cofferdam.MemberLevel) ([]cofferdam.Member, error) {
	const op = "service.ListMembers"
	a, err := s.enter(ctx, op)
	if err != nil {
		return nil, err
	}
	scope, err := reachWithRole(a, op, level, "members")
	if err != nil {
		return nil, err
	}
	all, err := s.Accounts.Members(ctx, scope)
	if err != nil {
		return nil, err
	}
	return s.shownAll(ctx, a, all)
}

// Member returns one who has a role in the project.
func (s *Service) Member(ctx context.Context, name string) (cofferdam.Member, error) {
	a, err := s.enter(ctx, "service.Member")
	if err != nil {
		return cofferdam.Member{}, err
	}
	m, err := s.Accounts.Member(ctx, a.Scope, name)
	if err != nil {
		return cofferdam.Member{}, err
	}
	return s.shown(ctx, a, m)
}

// aboutMember is what a proof for a change of a member is about.
func aboutMember(scope cofferdam.Scope, name, role string, service bool) cofferdam.Digest {
	return digestOf("member", scope, name, role, service)
}

// AddMember gives somebody a role, with a fresh proof that it is an owner who does.
func (s *Service) AddMember(ctx context.Context, r cofferdam.MemberRequest) (cofferdam.MemberAdded, error) {
	const op = "service.AddMember"
	none := cofferdam.MemberAdded{}
	a, err := s.enter(ctx, op)
	if err != nil {
		return none, err
	}
	scope, err := reachWithRole(a, op, r.Level, "members")
	if err != nil {
		return none, err
	}
	if err := s.runnerStays(ctx, op, scope, r.Name, r.Role); err != nil {
		return none, err
	}
	if err := s.Accounts.MayHave(ctx, scope, r.Name, r.Service, identity.Role(r.Role)); err != nil {
		return none, err
	}
	if _, err := s.present(ctx, a.Caller, r.Proof, aboutMember(scope, r.Name, r.Role, r.Service)); err != nil {
		return none, err
	}
	m, text, err := s.Accounts.SetRole(ctx, a.Caller, scope, r.Name, r.Service, identity.Role(r.Role))
	if err != nil {
		return none, err
	}
	shown, err := s.shown(ctx, a, m)
	return cofferdam.MemberAdded{Schema: "cofferdam/member-added/v1", Member: shown, Invitation: text}, err
}

// runnerStays refuses what leaves the account of who runs the server less than an
// owner: the kernel says who that is, and without it nobody could put right what owners
// did. One that is less already, from before its user ran the server, may become one.
func (s *Service) runnerStays(ctx context.Context, op string, scope cofferdam.Scope, name, role string) error {
	if scope.Organization != s.Scope.Organization || !slices.Contains(s.Runners, name) {
		return nil
	}
	if scope.Project == "" && identity.Role(role) == identity.Owner {
		if _, err := s.Accounts.Member(ctx, scope, name); err == nil {
			return nil
		}
	}
	return &cofferdam.Error{
		Op: op, Kind: cofferdam.Conflict, Subject: "account " + name, Reason: "it is of who runs the server, who stays an owner of all of the organisation",
		Hint: "what it does as root, or as the server's own user, is the machine's matter",
	}
}

// RemoveMember takes a role away, or with level organization closes the account.
func (s *Service) RemoveMember(ctx context.Context, name string, r cofferdam.MemberRemoval) error {
	const op = "service.RemoveMember"
	a, err := s.enter(ctx, op)
	if err != nil {
		return err
	}
	scope, err := reachWithRole(a, op, r.Level, "members")
	if err != nil {
		return err
	}
	m, err := s.Accounts.Member(ctx, scope, name) // which may be an id
	if err != nil {
		return err
	}
	if err := s.runnerStays(ctx, op, scope, m.Name, ""); err != nil {
		return err
	}
	if _, err := s.present(ctx, a.Caller, r.Proof, aboutMember(scope, name, "", false)); err != nil {
		return err
	}
	return s.Accounts.Leave(ctx, a.Caller, scope, name)
}

// ReopenMember opens a closed account again, with a fresh proof that it is an owner of
// the organisation who does: closing one is for them too.
func (s *Service) ReopenMember(ctx context.Context, name string, r cofferdam.MemberReopening) (cofferdam.MemberAdded, error) {
	const op = "service.ReopenMember"
	none := cofferdam.MemberAdded{}
	a, err := s.enter(ctx, op)
	if err != nil {
		return none, err
	}
	if _, err := reachWithRole(a, op, cofferdam.OfOrganization, "accounts"); err != nil {
		return none, err
	}
	scope, err := reach(a, op, r.Level)
	if err != nil {
		return none, err
	}
	if err := s.runnerStays(ctx, op, scope, name, r.Role); err != nil {
		return none, err
	}
	if err := s.Accounts.MayReopen(ctx, scope.Organization, name, identity.Role(r.Role)); err != nil {
		return none, err
	}
	if _, err := s.present(ctx, a.Caller, r.Proof, digestOf("member again", scope, name, r.Role)); err != nil {
		return none, err
	}
	m, text, err := s.Accounts.Reopen(ctx, a.Caller, scope, name, identity.Role(r.Role))
	if err != nil {
		return none, err
	}
	shown, err := s.shown(ctx, a, m)
	return cofferdam.MemberAdded{Schema: "cofferdam/member-added/v1", Member: shown, Invitation: text}, err
}

// ListProjects returns those that the caller has a role in.
func (s *Service) ListProjects(ctx context.Context) ([]cofferdam.Project, error) {
	a, err := s.enter(ctx, "service.ListProjects")
	if err != nil {
		return nil, err
	}
	all, err := s.Projects.Projects(ctx, a.Scope.Organization)
	return slices.DeleteFunc(all, func(p cofferdam.Project) bool { return a.Caller.RoleIn(p.Scope) == "" }), err
}

// AddProject makes a project of the organisation, for an owner of all of it.
func (s *Service) AddProject(ctx context.Context, r cofferdam.ProjectRequest) (cofferdam.Project, error) {
	const op = "service.AddProject"
	a, err := s.enter(ctx, op)
	if err != nil {
		return cofferdam.Project{}, err
	}
	if _, err := reachWithRole(a, op, cofferdam.OfOrganization, "members"); err != nil {
		return cofferdam.Project{}, err
	}
	return s.Accounts.NewProject(ctx, a.Caller, r.Name)
}
