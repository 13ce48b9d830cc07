package service

import (
	"context"
	"fmt"
	"strings"

	"cofferdam"
	"cofferdam/identity"
)

// Acting is who a request acts for, and in which project.
type Acting struct {
	Caller identity.Caller
	Scope  cofferdam.Scope
}

type actingKey struct{}

// WithActing returns a context that acts for a. Only a face that has
// authenticated the caller makes one.
func WithActing(ctx context.Context, a Acting) context.Context {
	return context.WithValue(ctx, actingKey{}, a)
}

// ActingOf returns who ctx acts for.
func ActingOf(ctx context.Context) (Acting, bool) {
	a, ok := ctx.Value(actingKey{}).(Acting)
	return a, ok && a.Caller.Principal.Name != ""
}

// verb is what one call needs.
type verb struct {
	name  string        // as a token may list it
	needs identity.Role // in the project
	human bool          // a person's word alone counts
}

// verbs is the only list of what needs which role. A call that is not on it is
// refused; a test compares it with the methods of Service.
var verbs = map[string]verb{
	"service.ListApprovals":       {"approval.list", identity.Viewer, false},
	"service.Approval":            {"approval.view", identity.Viewer, false},
	"service.AnswerApproval":      {"approval.answer", identity.Reviewer, true},
	"service.BindWebhook":         {"approval.bind", identity.Viewer, true},
	"service.RotateWebhook":       {"approval.webhook", identity.Operator, true},
	"service.ListPolicies":        {"policy.list", identity.Viewer, false},
	"service.Policy":              {"policy.view", identity.Viewer, false},
	"service.ExplainPolicy":       {"policy.explain", identity.Viewer, false},
	"service.ReplayPolicy":        {"policy.replay", identity.Viewer, false},
	"service.SuggestPolicy":       {"policy.suggest", identity.Viewer, false},
	"service.PromotePolicy":       {"policy.promotion", identity.Viewer, false},
	"service.ProposePolicy":       {"policy.propose", identity.Author, false},
	"service.DecidePolicy":        {"policy.approve", identity.Owner, true},
	"service.OpenTask":            {"approval.open", identity.Reviewer, true},
	"service.Enroll":              {"factor.add", identity.Viewer, true},
	"service.RegisterPasskey":     {"passkey.register", identity.Viewer, true},
	"service.BindSignIn":          {"login.bind", identity.Viewer, true},
	"service.Unenroll":            {"factor.remove", identity.Viewer, true},
	"service.ListFactors":         {"factor.list", identity.Viewer, true},
	"service.Self":                {"user.self", identity.Viewer, false},
	"service.ListMembers":         {"user.list", identity.Viewer, false},
	"service.Member":              {"user.view", identity.Viewer, false},
	"service.AddMember":           {"user.add", identity.Owner, true},
	"service.RemoveMember":        {"user.remove", identity.Owner, true},
	"service.ReopenMember":        {"user.reopen", identity.Owner, true},
	"service.ListProjects":        {"project.list", identity.Viewer, false},
	"service.AddProject":          {"project.add", identity.Owner, true},
	"service.ListOrganizations":   {"organization.list", identity.Owner, true},
	"service.AddOrganization":     {"organization.add", identity.Owner, true},
	"service.ListTokens":          {"token.list", identity.Viewer, false},
	"service.CreateToken":         {"token.create", identity.Viewer, true},
	"service.RevokeToken":         {"token.revoke", identity.Viewer, false},
	"service.Logout":              {"login.end", identity.Viewer, false},
	"service.Status":              {"status.view", identity.Viewer, false},
	"service.Examine":             {"status.doctor", identity.Viewer, false},
	"service.VerifierKey":         {"proof.key", identity.Viewer, false},
	"service.Task":                {"task.view", identity.Viewer, false},
	"service.ListTasks":           {"task.list", identity.Viewer, false},
	"service.CreateTask":          {"task.run", identity.Author, false},
	"service.CancelTask":          {"task.cancel", identity.Author, false},
	"service.RetryTask":           {"task.retry", identity.Author, false},
	"service.SendTask":            {"task.send", identity.Author, true},
	"service.Session":             {"session.view", identity.Viewer, false},
	"service.ListSessions":        {"session.list", identity.Viewer, false},
	"service.Export":              {"trace.export", identity.Viewer, false},
	"service.ListMerges":          {"merge.list", identity.Viewer, false},
	"service.ApproveMerge":        {"merge.approve", identity.Reviewer, true},
	"service.RejectMerge":         {"merge.reject", identity.Reviewer, true},
	"service.LandMerge":           {"merge.land", identity.Reviewer, true},
	"service.Repo":                {"repo.view", identity.Viewer, false},
	"service.ListRepos":           {"repo.list", identity.Viewer, false},
	"service.AddRepo":             {"repo.add", identity.Operator, false},
	"service.RemoveRepo":          {"repo.remove", identity.Operator, false},
	"service.Model":               {"model.view", identity.Viewer, false},
	"service.ListModels":          {"model.list", identity.Viewer, false},
	"service.AddModel":            {"model.add", identity.Operator, false},
	"service.RemoveModel":         {"model.remove", identity.Operator, false},
	"service.Agent":               {"agent.view", identity.Viewer, false},
	"service.ListAgents":          {"agent.list", identity.Viewer, false},
	"service.ListEnvironments":    {"environment.list", identity.Viewer, false},
	"service.Environment":         {"environment.view", identity.Viewer, false},
	"service.RemoveEnvironment":   {"environment.remove", identity.Operator, false},
	"service.RollbackEnvironment": {"environment.rollback", identity.Operator, false},
	"service.PruneEnvironments":   {"environment.prune", identity.Operator, false},
	"service.ListSandboxes":       {"sandbox.list", identity.Viewer, false},
	"service.Sandbox":             {"sandbox.view", identity.Viewer, false},
	"service.ListCheckpoints":     {"checkpoint.list", identity.Viewer, false},
	"service.Checkpoint":          {"checkpoint.view", identity.Viewer, false},
	"service.DiffCheckpoint":      {"checkpoint.diff", identity.Viewer, false},
	"service.CreateCheckpoint":    {"checkpoint.create", identity.Author, false},
	"service.RestoreSandbox":      {"checkpoint.restore", identity.Author, true},
	"service.RemoveCheckpoint":    {"checkpoint.remove", identity.Operator, false},
	"service.ListWorkspaces":      {"workspace.list", identity.Viewer, false},
	"service.Workspace":           {"workspace.view", identity.Viewer, false},
	"service.WorkspaceBundle":     {"workspace.bundle", identity.Viewer, false},
	"service.ExportWorkspace":     {"workspace.export", identity.Operator, false},
	"service.RemoveWorkspace":     {"workspace.remove", identity.Operator, false},
}

// byToken are the verbs of people for which a token that a person made will do: each
// asks for a fresh proof itself, or, before there is anything to prove by, is for an
// invitation. For every other one the person has to be there: their token stands for
// a program.
var byToken = map[string]bool{
	"service.AnswerApproval": true, "service.DecidePolicy": true, "service.OpenTask": true, "service.Enroll": true, "service.BindSignIn": true,
	"service.RegisterPasskey": true, "service.AddOrganization": true, "service.BindWebhook": true,
	"service.Unenroll": true, "service.ListFactors": true, "service.AddMember": true, "service.RemoveMember": true, "service.ReopenMember": true, "service.CreateToken": true,
}

// enter admits a caller who may do op in the project that they act in.
func (s *Service) enter(ctx context.Context, op string) (Acting, error) {
	a, ok := ActingOf(ctx)
	if !ok {
		return a, &cofferdam.Error{Op: op, Kind: cofferdam.Unauthenticated, Subject: "request", Reason: "nobody is signed in", Hint: "sign in with cofferdam login"}
	}
	v, known := verbs[op]
	switch {
	case !known:
		return a, &cofferdam.Error{Op: op, Kind: cofferdam.Forbidden, Subject: a.Caller.Principal.String(), Reason: "nobody may do this", Hint: "this is a fault of the server"}
	case a.Caller.RoleIn(a.Scope) == "":
		return a, noProject(op, string(a.Scope.Project))
	case v.human && !a.Caller.Principal.IsPerson():
		return a, &cofferdam.Error{Op: op, Kind: cofferdam.Forbidden, Subject: a.Caller.Principal.String(), Reason: "only a person may do this", Hint: "a person runs it, signed in with an account of their own"}
	case v.human && !byToken[op] && !a.Caller.There():
		return a, &cofferdam.Error{
			Op: op, Kind: cofferdam.Forbidden, Subject: v.name, Reason: "only a person may do this, and a token that is no login stands for a program", Hint: "sign in with cofferdam login",
		}
	case !a.Caller.May(a.Scope, v.name, v.needs):
		return a, &cofferdam.Error{
			Op: op, Kind: cofferdam.Forbidden, Subject: v.name, Hint: "ask an owner of the project",
			Reason: fmt.Sprintf("%s is %s here, or acts by a token that is not good for it, and this needs %s", a.Caller.Principal, a.Caller.RoleIn(a.Scope), v.needs),
		}
	}
	return a, nil
}

// reach is what a request is about: the project that the caller acts in, or all of
// its organisation.
func reach(a Acting, op string, level cofferdam.PolicyLevel) (cofferdam.Scope, error) {
	switch level {
	case "", cofferdam.OfProject:
		return a.Scope, nil
	case cofferdam.OfOrganization:
		return cofferdam.Scope{Organization: a.Scope.Organization}, nil
	}
	return cofferdam.Scope{}, invalid(op, "level", fmt.Sprintf("%.40q is neither project nor organization", level), "name one of the two, or none for the project")
}

// reachWithRole is reach for who has the verb's role in all of what is reached. what
// names the part of it that is meant, for people: policy, members.
func reachWithRole(a Acting, op string, level cofferdam.PolicyLevel, what string) (cofferdam.Scope, error) {
	scope, err := reach(a, op, level)
	if v := verbs[op]; err == nil && level == cofferdam.OfOrganization && !a.Caller.May(scope, v.name, v.needs) {
		err = &cofferdam.Error{
			Op: op, Kind: cofferdam.Forbidden, Subject: what + " of the organisation", Hint: "ask an owner of the organisation",
			Reason: fmt.Sprintf("%s is not %s in all of it", a.Caller.Principal, v.needs),
		}
	}
	return scope, err
}

// may is enter for reading.
func (s *Service) may(ctx context.Context, op string) error {
	_, err := s.enter(ctx, op)
	return err
}

// who is enter for what changes something: the principal goes on record.
func (s *Service) who(ctx context.Context, op string) (cofferdam.Principal, error) {
	a, err := s.enter(ctx, op)
	return a.Caller.Principal, err
}

// scope is the project that ctx acts in; the zero scope, in which there is
// nothing, if nobody is signed in.
func (s *Service) scope(ctx context.Context) cofferdam.Scope {
	a, _ := ActingOf(ctx)
	return a.Scope
}

// noProject is said of a project that is not there and of one that the caller is
// not in.
func noProject(op, name string) error {
	return &cofferdam.Error{Op: op, Kind: cofferdam.NotFound, Subject: fmt.Sprintf("project %.80q", name), Reason: "there is none", Hint: "cofferdam admin project list shows yours"}
}

// People knows who holds what; package identity offers it.
type People interface {
	Local(ctx context.Context, o cofferdam.OrganizationID, name string) (identity.Caller, error)
	Bearer(ctx context.Context, token string) (identity.Caller, error)
}

// Projects finds the projects of an organisation. Errors are *cofferdam.Error.
type Projects interface {
	Project(ctx context.Context, o cofferdam.OrganizationID, name string) (cofferdam.Scope, error) // name, id or unique prefix
	Projects(ctx context.Context, o cofferdam.OrganizationID) ([]cofferdam.Project, error)
}

// Local returns the caller whom the kernel names, a user of this machine.
func (s *Service) Local(ctx context.Context, name string) (identity.Caller, error) {
	c, err := s.People.Local(ctx, s.Scope.Organization, name)
	c.Runs = err == nil
	return c, err
}

// Bearer returns the caller who holds a token.
func (s *Service) Bearer(ctx context.Context, token string) (identity.Caller, error) {
	return s.People.Bearer(ctx, token)
}

// Tester returns the test person of a server that was started with one: an owner
// of this server's own organisation, who is in no database.
func (s *Service) Tester(name string) identity.Caller {
	return identity.Caller{
		Principal: cofferdam.Principal{Kind: cofferdam.TestPerson, Name: name}, Member: "test-person", Organization: s.Scope.Organization,
		Memberships: []identity.Membership{{Member: "test-person", Role: identity.Owner}},
	}
}

// maxNamed bounds the projects that an error names.
const maxNamed = 20

// In returns the caller as they act in a project: the one of that name, or with ""
// the one that they mean if they can only mean one. One that they are not in is
// not there.
func (s *Service) In(ctx context.Context, c identity.Caller, name string) (Acting, error) {
	const op = "service.In"
	a := Acting{Caller: c}
	if name != "" {
		scope, err := s.Projects.Project(ctx, c.Organization, name)
		if err != nil && cofferdam.KindOf(err) != cofferdam.NotFound {
			return a, err
		}
		if err != nil || c.RoleIn(scope) == "" {
			return a, noProject(op, name)
		}
		a.Scope = scope
		return a, nil
	}
	if c.RoleIn(s.Scope) != "" {
		a.Scope = s.Scope // that of the server
		return a, nil
	}
	all, err := s.Projects.Projects(ctx, c.Organization)
	if err != nil {
		return a, err
	}
	var names []string
	for _, p := range all {
		if c.RoleIn(p.Scope) != "" {
			a.Scope, names = p.Scope, append(names, p.Name)
		}
	}
	if len(names) > 1 {
		if len(names) > maxNamed {
			names = append(names[:maxNamed], "…")
		}
		return Acting{Caller: c}, invalid(op, "project", "you are in "+strings.Join(names, ", ")+", and the request names none", "name one with --project")
	}
	if len(names) == 0 {
		return a, &cofferdam.Error{Op: op, Kind: cofferdam.Forbidden, Subject: c.Principal.String(), Reason: "is in no project", Hint: "an owner adds you with cofferdam admin user add"}
	}
	return a, nil
}
