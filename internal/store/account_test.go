package store

import (
	"bytes"
	"encoding/base32"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pquerna/otp/totp"

	"cofferdam"
	"cofferdam/identity"
)

// TestAccountsAreWhole: an account whose role or invitation cannot be kept is not
// there, and its name is free. A server that was killed in between would else leave
// one that nobody can use, and for the first owner a server without any.
func TestAccountsAreWhole(t *testing.T) {
	s, ctx := open(t), t.Context()
	scope, err := s.DefaultScope(ctx)
	if err != nil {
		t.Fatal(err)
	}
	p := identity.Person{ID: cofferdam.PersonID(cofferdam.NewID("u")), Organization: scope.Organization, Name: "ann", Created: time.Now().UTC()}
	owner := identity.Membership{Member: string(p.ID), Role: identity.Owner}
	k := identity.Token{
		ID: cofferdam.TokenID(cofferdam.NewID("k")), Hash: "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", Organization: scope.Organization, Member: string(p.ID),
		Expires: time.Now().Add(time.Hour), Created: time.Now(),
	}
	short := k
	short.Hash = "aaaa"
	for name, c := range map[string]struct {
		m identity.Membership
		k *identity.Token
	}{
		"a role that is none":        {identity.Membership{Member: string(p.ID), Role: "root"}, nil},
		"a project of somebody else": {identity.Membership{Member: string(p.ID), Project: "p-other", Role: identity.Viewer}, &k},
		"somebody else's role":       {identity.Membership{Member: "u-other", Role: identity.Viewer}, &k},
		"a token that is none":       {owner, &short},
	} {
		if err := s.AddPerson(ctx, p, c.m, c.k); err == nil {
			t.Errorf("%s was taken", name)
		}
		if _, err := s.Person(ctx, scope.Organization, "ann"); cofferdam.KindOf(err) != cofferdam.NotFound {
			t.Errorf("%s left an account: %v", name, err)
		}
		if _, err := s.TokenByHash(ctx, k.Hash); cofferdam.KindOf(err) != cofferdam.NotFound {
			t.Errorf("%s left a token: %v", name, err)
		}
	}
	if err := s.AddPerson(ctx, p, owner, &k); err != nil {
		t.Fatal(err)
	}
	if roles, err := s.Memberships(ctx, string(p.ID)); err != nil || len(roles) != 1 || roles[0] != owner {
		t.Errorf("%+v %v", roles, err)
	}
	if got, err := s.Token(ctx, scope.Organization, k.ID); err != nil || got.Hash != k.Hash {
		t.Errorf("%+v %v", got, err)
	}
	for _, c := range []struct {
		o  cofferdam.OrganizationID
		id cofferdam.TokenID
	}{{"o-other", k.ID}, {scope.Organization, k.ID[:10]}, {scope.Organization, ""}} {
		if _, err := s.Token(ctx, c.o, c.id); cofferdam.KindOf(err) != cofferdam.NotFound {
			t.Errorf("%+v: %v", c, err)
		}
	}
	f := identity.Factor{ID: cofferdam.NewID("f"), Person: p.ID, Kind: identity.TOTP, Data: []byte("x"), Step: 7, Created: time.Now()}
	if err := s.AddFactor(ctx, f, 1); cofferdam.KindOf(err) != cofferdam.Conflict {
		t.Errorf("a second one that is the first: %v", err)
	}
	if err := s.AddFactor(ctx, f, 0); err != nil {
		t.Fatal(err)
	}
	f.ID = cofferdam.NewID("f")
	if err := s.AddFactor(ctx, f, 0); cofferdam.KindOf(err) != cofferdam.Conflict {
		t.Errorf("a first one that is the second: %v", err)
	}
	list, err := s.Factors(ctx, p.ID)
	if err != nil || len(list) != 1 {
		t.Fatalf("%+v %v", list, err)
	}
	for step, spent := range map[int64]bool{6: false, 7: false} {
		if err := s.SpendStep(ctx, list[0].ID, step); (err == nil) != spent {
			t.Errorf("step %d after the first code: %v", step, err)
		}
	}
}

// TestTokensGoWithTheRole: who leaves a project, and comes back, has no token of
// before there; who is still in another keeps those that are not for the one left.
func TestTokensGoWithTheRole(t *testing.T) {
	s, ctx := open(t), t.Context()
	scope, err := s.DefaultScope(ctx)
	if err != nil {
		t.Fatal(err)
	}
	other := cofferdam.ProjectID(cofferdam.NewID("p"))
	if err := s.AddProject(ctx, cofferdam.Project{Scope: cofferdam.Scope{Organization: scope.Organization, Project: other}, Name: "other", Created: time.Now()}); err != nil {
		t.Fatal(err)
	}
	owner := identity.Person{ID: cofferdam.PersonID(cofferdam.NewID("u")), Organization: scope.Organization, Name: "ann", Created: time.Now()}
	if err := s.AddPerson(ctx, owner, identity.Membership{Member: string(owner.ID), Role: identity.Owner}, nil); err != nil {
		t.Fatal(err)
	}
	p := identity.Person{ID: cofferdam.PersonID(cofferdam.NewID("u")), Organization: scope.Organization, Name: "robot", Service: true, Created: time.Now()}
	in := func(project cofferdam.ProjectID, role identity.Role) identity.Membership {
		return identity.Membership{Member: string(p.ID), Project: project, Role: role}
	}
	if err := s.AddPerson(ctx, p, in(scope.Project, identity.Author), nil); err != nil {
		t.Fatal(err)
	}
	set := func(project cofferdam.ProjectID, role identity.Role) {
		t.Helper()
		if err := s.SetMembership(ctx, scope.Organization, in(project, role)); err != nil {
			t.Fatal(err)
		}
	}
	set(other, identity.Author)
	tokens := map[string]cofferdam.TokenID{}
	for name, project := range map[string]cofferdam.ProjectID{"here": scope.Project, "there": other, "anywhere": ""} {
		k := identity.Token{ID: cofferdam.TokenID(cofferdam.NewID("k")), Organization: scope.Organization, Project: project, Member: string(p.ID), Expires: time.Now().Add(time.Hour), Created: time.Now()}
		k.Hash = strings.Repeat(string(k.ID[2:]), 2)
		if err := s.AddToken(ctx, k); err != nil {
			t.Fatal(err)
		}
		tokens[name] = k.ID
	}
	good := func(when string, want ...string) {
		t.Helper()
		for name, id := range tokens {
			k, err := s.Token(ctx, scope.Organization, id)
			if err != nil || k.Revoked.IsZero() != slices.Contains(want, name) {
				t.Errorf("%s, the token for %s: %+v %v", when, name, k.Revoked, err)
			}
		}
	}
	set(scope.Project, identity.Viewer)
	good("another role", "here", "there", "anywhere")
	set(scope.Project, "")
	set(scope.Project, identity.Author)
	good("left and back", "there", "anywhere")
	set(scope.Project, "")
	set(other, "")
	set(other, identity.Author)
	good("left all and back")
}

// TestOldTokensAreForgotten: what counts no more is kept for a while, and no longer.
func TestOldTokensAreForgotten(t *testing.T) {
	s, ctx := open(t), t.Context()
	scope, err := s.DefaultScope(ctx)
	if err != nil {
		t.Fatal(err)
	}
	p := identity.Person{ID: cofferdam.PersonID(cofferdam.NewID("u")), Organization: scope.Organization, Name: "ann", Created: time.Now()}
	if err := s.AddPerson(ctx, p, identity.Membership{Member: string(p.ID), Role: identity.Owner}, nil); err != nil {
		t.Fatal(err)
	}
	now, day := time.Now().UTC(), 24*time.Hour
	ids := map[cofferdam.TokenID]string{}
	for what, made := range map[string]struct{ created, expires, revoked time.Time }{
		"over long ago":       {now.Add(-200 * day), now.Add(-tokenKept - day), time.Time{}},
		"revoked long ago":    {now.Add(-200 * day), now.Add(day), now.Add(-tokenKept - day)},
		"over a while ago":    {now.Add(-200 * day), now.Add(-tokenKept + day), time.Time{}},
		"revoked a while ago": {now.Add(-200 * day), now.Add(day), now.Add(-tokenKept + day)},
		"good":                {now.Add(-200 * day), now.Add(day), time.Time{}},
	} {
		id := cofferdam.TokenID(cofferdam.NewID("k"))
		k := identity.Token{ID: id, Hash: strings.Repeat(string(id)[2:], 2), Organization: scope.Organization, Member: string(p.ID), Created: made.created, Expires: made.expires}
		if err := s.AddToken(ctx, k); err != nil {
			t.Fatal(err)
		}
		if !made.revoked.IsZero() {
			if err := s.RevokeToken(ctx, scope.Organization, id, made.revoked); err != nil {
				t.Fatal(err)
			}
		}
		ids[id] = what
	}
	id := cofferdam.TokenID(cofferdam.NewID("k"))
	if err := s.AddToken(ctx, identity.Token{ID: id, Hash: strings.Repeat(string(id)[2:], 2), Organization: scope.Organization, Member: string(p.ID), Created: now, Expires: now.Add(day)}); err != nil {
		t.Fatal(err)
	}
	left, err := s.Tokens(ctx, scope.Organization)
	if err != nil || len(left) != 4 {
		t.Errorf("%d are left, %v", len(left), err)
	}
	for _, k := range left {
		if strings.Contains(ids[k.ID], "long ago") {
			t.Errorf("one is left that is %s", ids[k.ID])
		}
	}
}

// TestReopenedAccountsAreBare: whose account is opened again has one role and one
// invitation, and nothing of before: not another role, a token for elsewhere, a factor,
// or who a provider named; and one that is open is not opened.
func TestReopenedAccountsAreBare(t *testing.T) {
	s, ctx := open(t), t.Context()
	scope, err := s.DefaultScope(ctx)
	if err != nil {
		t.Fatal(err)
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	other := cofferdam.ProjectID(cofferdam.NewID("p"))
	must(s.AddProject(ctx, cofferdam.Project{Scope: cofferdam.Scope{Organization: scope.Organization, Project: other}, Name: "other", Created: time.Now()}))
	token := func(member string, project cofferdam.ProjectID) identity.Token {
		id := cofferdam.TokenID(cofferdam.NewID("k"))
		return identity.Token{ID: id, Hash: strings.Repeat(string(id)[2:], 2), Organization: scope.Organization, Project: project, Member: member, Expires: time.Now().Add(time.Hour), Created: time.Now()}
	}
	people := map[string]identity.Person{}
	tokens := map[string]identity.Token{}
	for _, name := range []string{"ann", "zoe"} {
		p := identity.Person{ID: cofferdam.PersonID(cofferdam.NewID("u")), Organization: scope.Organization, Name: name, Created: time.Now()}
		must(s.AddPerson(ctx, p, identity.Membership{Member: string(p.ID), Role: identity.Owner}, nil))
		must(s.SetMembership(ctx, scope.Organization, identity.Membership{Member: string(p.ID), Project: other, Role: identity.Operator}))
		people[name], tokens[name] = p, token(string(p.ID), other)
		must(s.AddToken(ctx, tokens[name]))
		must(s.AddFactor(ctx, identity.Factor{ID: cofferdam.NewID("f"), Person: p.ID, Kind: identity.Password, Name: "terminal", Data: []byte("x"), Created: time.Now()}, 0))
		must(s.BindSubject(ctx, "https://id.test", name, p.ID, time.Now()))
	}
	ann := people["ann"]
	back, invitation := identity.Membership{Member: string(ann.ID), Project: scope.Project, Role: identity.Viewer}, token(string(ann.ID), "")
	if err := s.ReopenPerson(ctx, scope.Organization, back, &invitation); cofferdam.KindOf(err) != cofferdam.Conflict {
		t.Errorf("one that is open: %v", err)
	}
	must(s.DisablePerson(ctx, scope.Organization, ann.ID, time.Now()))
	if err := s.ReopenPerson(ctx, "o-other", back, &invitation); cofferdam.KindOf(err) != cofferdam.NotFound {
		t.Errorf("by another organisation: %v", err)
	}
	short := invitation
	short.Hash = "aaaa"
	if err := s.ReopenPerson(ctx, scope.Organization, back, &short); err == nil {
		t.Error("an invitation that is none was taken")
	} else if p, err := s.Person(ctx, scope.Organization, "ann"); err != nil || p.Disabled.IsZero() {
		t.Errorf("half of it was done: %+v, %v", p, err)
	}
	must(s.ReopenPerson(ctx, scope.Organization, back, &invitation))
	for name, want := range map[string]bool{"ann": false, "zoe": true} { // zoe is the twin, whom nobody closed
		p := people[name]
		roles, err := s.Memberships(ctx, string(p.ID))
		must(err)
		if want != (len(roles) == 2) || !want && (len(roles) != 1 || roles[0] != back) {
			t.Errorf("%s has the roles %+v", name, roles)
		}
		factors, err := s.Factors(ctx, p.ID)
		must(err)
		_, err = s.PersonBySubject(ctx, "https://id.test", name)
		k, kerr := s.Token(ctx, scope.Organization, tokens[name].ID)
		must(kerr)
		if (len(factors) == 1) != want || (err == nil) != want || k.Revoked.IsZero() != want {
			t.Errorf("%s has factors %+v, by the provider %v, a token %+v", name, factors, err, k)
		}
	}
	if p, err := s.Person(ctx, scope.Organization, "ann"); err != nil || !p.Disabled.IsZero() {
		t.Errorf("%+v, %v", p, err)
	}
	if k, err := s.TokenByHash(ctx, invitation.Hash); err != nil || !k.Revoked.IsZero() {
		t.Errorf("the invitation is %+v, %v", k, err)
	}
}

// xored seals for a test; a vault does for a server.
type xored byte

func (x xored) Seal(name string, p []byte) ([]byte, error) {
	out := []byte(name + "\x00")
	for _, b := range p {
		out = append(out, b^byte(x))
	}
	return out, nil
}

func (x xored) Unseal(name string, sealed []byte) ([]byte, error) {
	rest, ok := bytes.CutPrefix(sealed, []byte(name+"\x00"))
	if !ok {
		return nil, errors.New("it was not sealed under this name")
	}
	out, err := x.Seal("", rest)
	return out[1:], err
}

// TestOldSecretsForCodesAreSealed: a server that starts on the database of an earlier
// one, which kept secrets for codes as they were typed, leaves none in any of its
// files; their codes count on, and one that is sealed is left as it is.
func TestOldSecretsForCodesAreSealed(t *testing.T) {
	ctx, path := t.Context(), filepath.Join(t.TempDir(), "cofferdam.db")
	s, err := Open(ctx, path)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	scope, err := s.DefaultScope(ctx)
	if err != nil {
		t.Fatal(err)
	}
	d := identity.New(identity.Options{Store: s, Sealer: xored(0x80)})
	secrets := map[cofferdam.PersonID]string{}
	for i := range 12 {
		p := identity.Person{ID: cofferdam.PersonID(cofferdam.NewID("u")), Organization: scope.Organization, Name: fmt.Sprintf("ann%d", i), Created: time.Now()}
		if err := s.AddPerson(ctx, p, identity.Membership{}, nil); err != nil {
			t.Fatal(err)
		}
		secret := base32.StdEncoding.EncodeToString([]byte(fmt.Sprintf("secret number %06d", i)))
		f := identity.Factor{ID: cofferdam.NewID("f"), Person: p.ID, Kind: identity.TOTP, Name: "application", Data: []byte(secret), Created: time.Now()}
		if err := s.AddFactor(ctx, f, 0); err != nil {
			t.Fatal(err)
		}
		secrets[p.ID] = secret
	}
	left := func() (n int) {
		files, err := filepath.Glob(path + "*")
		if err != nil {
			t.Fatal(err)
		}
		for _, secret := range secrets {
			for _, name := range files {
				text, err := os.ReadFile(name)
				if err != nil {
					t.Fatal(err)
				}
				if bytes.Contains(text, []byte(secret)) {
					n++
				}
			}
		}
		return n
	}
	if left() == 0 {
		t.Fatal("the control: none is there before")
	}
	all, err := s.CodeFactors(ctx) // a start that is killed after one of them
	if err != nil {
		t.Fatal(err)
	}
	sealed, err := xored(0x80).Seal(all[0].ID, all[0].Data)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.SealFactor(ctx, all[0].ID, sealed); err != nil {
		t.Fatal(err)
	}
	for range 2 { // of two starts the second changes nothing
		if err := identity.SealCodes(ctx, s, xored(0x80)); err != nil {
			t.Fatal(err)
		}
		if n := left(); n != 0 {
			t.Errorf("%d are in the files", n)
		}
	}
	for p, secret := range secrets {
		code, err := totp.GenerateCode(secret, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := d.Prove(ctx, p, cofferdam.Proof{Kind: identity.TOTP, Code: code}, "sha256:x"); err != nil {
			t.Errorf("a code counts no more: %v", err)
		}
	}
}

// TestTheLastOwnerStays: of an organisation, whichever way they would go, and is told
// what to do; with a second owner they go.
func TestTheLastOwnerStays(t *testing.T) {
	s, ctx := open(t), t.Context()
	scope, err := s.DefaultScope(ctx)
	if err != nil {
		t.Fatal(err)
	}
	add := func(name string, service bool, role identity.Role) string {
		t.Helper()
		p := identity.Person{ID: cofferdam.PersonID(cofferdam.NewID("u")), Organization: scope.Organization, Name: name, Service: service, Created: time.Now()}
		if err := s.AddPerson(ctx, p, identity.Membership{Member: string(p.ID), Role: role}, nil); err != nil {
			t.Fatal(err)
		}
		return string(p.ID)
	}
	ann := add("ann", false, identity.Owner)
	add("bob", false, identity.Operator)
	set := func(role identity.Role) error {
		return s.SetMembership(ctx, scope.Organization, identity.Membership{Member: ann, Role: role})
	}
	for _, role := range []identity.Role{"", identity.Viewer, identity.Operator} {
		if err := set(role); cofferdam.KindOf(err) != cofferdam.Conflict || !strings.Contains(cofferdam.HintOf(err), "--role owner --organization") {
			t.Errorf("to %q: %v, %s", role, err, cofferdam.HintOf(err))
		}
	}
	if roles, err := s.Memberships(ctx, ann); err != nil || len(roles) != 1 || roles[0].Role != identity.Owner {
		t.Errorf("%+v, %v", roles, err)
	}
	add("zoe", false, identity.Owner)
	if err := set(""); err != nil {
		t.Errorf("with a second owner: %v", err)
	}
}

// TestAProgramIsNoOwner: whatever asks for it, in a project as in the organisation; its
// other roles are as anybody's.
func TestAProgramIsNoOwner(t *testing.T) {
	s, ctx := open(t), t.Context()
	scope, err := s.DefaultScope(ctx)
	if err != nil {
		t.Fatal(err)
	}
	ann := identity.Person{ID: cofferdam.PersonID(cofferdam.NewID("u")), Organization: scope.Organization, Name: "ann", Created: time.Now()}
	if err := s.AddPerson(ctx, ann, identity.Membership{Member: string(ann.ID), Role: identity.Owner}, nil); err != nil {
		t.Fatal(err)
	}
	p := identity.Person{ID: cofferdam.PersonID(cofferdam.NewID("u")), Organization: scope.Organization, Name: "ci", Service: true, Created: time.Now()}
	for _, project := range []cofferdam.ProjectID{"", scope.Project} {
		if err := s.AddPerson(ctx, p, identity.Membership{Member: string(p.ID), Project: project, Role: identity.Owner}, nil); err == nil {
			t.Errorf("made as an owner of %q", project)
		}
	}
	if err := s.AddPerson(ctx, p, identity.Membership{Member: string(p.ID), Project: scope.Project, Role: identity.Operator}, nil); err != nil {
		t.Fatal(err)
	}
	for _, project := range []cofferdam.ProjectID{"", scope.Project} {
		if err := s.SetMembership(ctx, scope.Organization, identity.Membership{Member: string(p.ID), Project: project, Role: identity.Owner}); err == nil {
			t.Errorf("became an owner of %q", project)
		}
	}
	if _, err := s.write.ExecContext(ctx, `UPDATE membership SET role = 'owner' WHERE member = ?`, p.ID); err == nil {
		t.Error("written as an owner")
	}
	if roles, err := s.Memberships(ctx, string(p.ID)); err != nil || len(roles) != 1 || roles[0].Role != identity.Operator {
		t.Errorf("%+v, %v", roles, err)
	}
}
