package service

import (
	"context"
	"slices"
	"testing"

	"cofferdam"
	"cofferdam/identity"
)

// Paths of the server's machine are for who operates all of the organisation that
// runs it. For everybody else a path of theirs would be a way to what other
// projects, or the server itself, keep on the same disk: as the root of a box, or
// as an upstream that git works in as its owner.
func TestPathsOfTheMachine(t *testing.T) {
	acting := func(scope cofferdam.Scope, c identity.Caller) context.Context {
		c.Principal, c.Member = alice, "m"
		return WithActing(context.Background(), Acting{Caller: c, Scope: scope})
	}
	in := func(project cofferdam.ProjectID, role identity.Role) []identity.Membership {
		return []identity.Membership{{Member: "m", Project: project, Role: role}}
	}
	rival := cofferdam.Scope{Organization: "o-2", Project: "p-2"}
	for name, c := range map[string]struct {
		scope    cofferdam.Scope
		who      identity.Caller
		repo     bool // may name a path as an upstream
		image    bool // may name one as an image
		operates bool // may add a repository at all
	}{
		"an owner of all":                   {scope, identity.Caller{Organization: "o-1", Memberships: in("", identity.Owner)}, true, true, true},
		"an operator of all":                {scope, identity.Caller{Organization: "o-1", Memberships: in("", identity.Operator)}, true, true, true},
		"an owner of a project":             {scope, identity.Caller{Organization: "o-1", Memberships: in("p-1", identity.Owner)}, false, false, true},
		"an author of all":                  {scope, identity.Caller{Organization: "o-1", Memberships: in("", identity.Author)}, false, false, false},
		"an author, who operates elsewhere": {scope, identity.Caller{Organization: "o-1", Memberships: slices.Concat(in("p-1", identity.Author), in("p-9", identity.Owner))}, false, false, false},
		"an owner's token of one project":   {scope, identity.Caller{Organization: "o-1", Memberships: in("", identity.Owner), Fixed: "p-1"}, false, false, true},
		"an owner's token for an author":    {scope, identity.Caller{Organization: "o-1", Memberships: in("", identity.Owner), Most: identity.Author}, false, false, false},
		"an owner of another organisation":  {rival, identity.Caller{Organization: "o-2", Memberships: in("", identity.Owner)}, false, false, true},
		"an owner of a project there":       {rival, identity.Caller{Organization: "o-2", Memberships: in("p-2", identity.Owner)}, false, false, true},
	} {
		m := NewMemory()
		s, ctx := New(m.Options(scope)), acting(c.scope, c.who)
		refused := func(what string, err error, may bool) {
			t.Helper()
			if may != (err == nil) || !may && cofferdam.KindOf(err) != cofferdam.Forbidden {
				t.Errorf("%s, %s: %v", name, what, err)
			}
		}
		_, err := s.AddRepo(ctx, cofferdam.RepoRequest{Name: "path", Upstream: "/srv/other.git"})
		refused("an upstream at a path", err, c.repo)
		_, err = s.AddRepo(ctx, cofferdam.RepoRequest{Name: "shop", Upstream: "https://git.example.com/shop.git"})
		refused("an upstream elsewhere", err, c.operates)
		if err != nil {
			owner := acting(c.scope, identity.Caller{Organization: c.scope.Organization, Memberships: in("", identity.Owner)})
			if _, err := s.AddRepo(owner, cofferdam.RepoRequest{Name: "shop", Upstream: "https://git.example.com/shop.git"}); err != nil {
				t.Fatal(err)
			}
		}
		r := request()
		r.Repo = "shop"
		_, err = s.CreateTask(ctx, r)
		refused("a task", err, true)
		for _, path := range []string{"/", "/etc", "/nonexistent/image"} { // also one that is not there: it is not told
			r.Image = path
			_, err = s.CreateTask(ctx, r)
			if path == "/nonexistent/image" && c.image {
				if cofferdam.KindOf(err) != cofferdam.Invalid {
					t.Errorf("%s: %v", name, err)
				}
				continue
			}
			refused("the image "+path, err, c.image)
		}
	}
}

// The secret of the webhook signs the notices of all projects: an owner of one of
// them comes by it no more than by a path of the machine.
func TestWebhookIsOfTheMachine(t *testing.T) {
	s, _ := world(t)
	made := 0
	s.NewWebhookSecret = func(context.Context) (string, error) { made++; return "whsec_x", nil }
	for name, c := range map[string]struct {
		m    identity.Membership
		good bool
	}{
		"an operator of all":    {identity.Membership{Member: "m", Role: identity.Operator}, true},
		"an owner of a project": {identity.Membership{Member: "m", Project: scope.Project, Role: identity.Owner}, false},
	} {
		made = 0
		ctx := WithActing(context.Background(), Acting{Scope: scope, Caller: identity.Caller{Principal: alice, Member: "m", Organization: scope.Organization, Memberships: []identity.Membership{c.m}}})
		if _, err := s.RotateWebhook(ctx); (err == nil) != c.good || (made == 1) != c.good || !c.good && cofferdam.KindOf(err) != cofferdam.Forbidden {
			t.Errorf("%s: %d %v", name, made, err)
		}
	}
}

// A project of another organisation has not the limits of one here that happens to
// have its name.
func TestBudgetOfAnothersProject(t *testing.T) {
	s, _ := world(t)
	s.ProjectBudgets = map[string]cofferdam.Budget{"default": {Cost: 50_000}}
	s.Projects = named{}
	for _, c := range []struct {
		scope cofferdam.Scope
		want  int64
	}{{scope, 50_000}, {cofferdam.Scope{Organization: "o-2", Project: "p-2"}, 0}} {
		ctx := WithActing(context.Background(), Acting{Caller: identity.Caller{Principal: alice, Organization: c.scope.Organization}, Scope: c.scope})
		var r cofferdam.TaskRequest
		if err := s.settleBudget(ctx, "test", &r); err != nil {
			t.Fatal(err)
		}
		if got := r.Budget; c.want == 0 && got != nil || c.want != 0 && (got == nil || got.Cost != c.want) {
			t.Errorf("%+v: %+v", c.scope, got)
		}
	}
}

// named is one project called default in each organisation.
type named struct{}

func (named) Project(_ context.Context, o cofferdam.OrganizationID, _ string) (cofferdam.Scope, error) {
	return cofferdam.Scope{Organization: o}, nil
}

func (named) Projects(_ context.Context, o cofferdam.OrganizationID) (all []cofferdam.Project, err error) {
	for _, s := range []cofferdam.Scope{scope, {Organization: "o-2", Project: "p-2"}} {
		if s.Organization == o {
			all = append(all, cofferdam.Project{Scope: s, Name: "default"})
		}
	}
	return all, nil
}

// A token is revoked also where there are more than a list has.
func TestRevokeBeyondTheList(t *testing.T) {
	s, _ := world(t)
	kept := &long{Accounts: s.Accounts, token: identity.Token{ID: "k-1", Organization: scope.Organization, Member: "m"}}
	s.Accounts = kept
	if err := s.RevokeToken(as(alice), "k-1"); err != nil || kept.revoked != "k-1" {
		t.Errorf("%q %v", kept.revoked, err)
	}
	kept.token.Member, kept.revoked = "m-other", ""
	ctx := WithActing(context.Background(), Acting{Scope: scope, Caller: identity.Caller{
		Principal: alice, Member: "m", Organization: scope.Organization, Memberships: []identity.Membership{{Member: "m", Role: identity.Operator}},
	}})
	if err := s.RevokeToken(ctx, "k-1"); cofferdam.KindOf(err) != cofferdam.NotFound || kept.revoked != "" {
		t.Errorf("somebody else's: %q %v", kept.revoked, err)
	}
}

// long has one token, too far down for a list.
type long struct {
	Accounts
	token   identity.Token
	revoked cofferdam.TokenID
}

func (l *long) Tokens(context.Context, cofferdam.OrganizationID) ([]identity.Token, error) {
	return nil, nil
}

func (l *long) Token(_ context.Context, o cofferdam.OrganizationID, id cofferdam.TokenID) (identity.Token, error) {
	if o != l.token.Organization || id != l.token.ID {
		return identity.Token{}, &cofferdam.Error{Op: "test.Token", Kind: cofferdam.NotFound, Subject: "token", Reason: "there is none", Hint: "list them"}
	}
	return l.token, nil
}

func (l *long) Revoke(_ context.Context, _ identity.Caller, id cofferdam.TokenID) error {
	l.revoked = id
	return nil
}
