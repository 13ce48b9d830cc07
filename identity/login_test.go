package identity

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/pquerna/otp/totp"

	"cofferdam"
)

// taken is a record that keeps what it was told.
type taken struct{ events []cofferdam.Event }

func (r *taken) Record(_ context.Context, e cofferdam.Event) (cofferdam.Event, error) {
	r.events = append(r.events, e)
	return e, nil
}

const word = "a long enough password"

// bare is a directory with nobody in it.
func bare() (*Directory, *Memory, *clock, *taken) {
	m, c, record := NewMemory("acme", cofferdam.Project{Scope: acme, Name: "web"}), &clock{time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)}, &taken{}
	return New(Options{Store: m, Record: record, Sealer: seals{}, Now: func() time.Time { return c.now }}), m, c, record
}

// signing is a directory with ann, who has a password and, if asked, an
// application for codes with the secret returned.
func signing(t *testing.T, codes bool) (d *Directory, m *Memory, c *clock, record *taken, secret string) {
	t.Helper()
	d, m, c, record = bare()
	ann, err := d.Local(t.Context(), acme.Organization, "ann")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Enroll(t.Context(), ann, cofferdam.EnrollRequest{Kind: Password, Password: word}, Presence{}, ""); err != nil {
		t.Fatal(err)
	}
	if codes {
		key, err := totp.Generate(totp.GenerateOpts{Issuer: "x", AccountName: "ann"})
		if err != nil {
			t.Fatal(err)
		}
		secret = key.Secret()
		m.factors = append(m.factors, Factor{ID: "f-2", Person: cofferdam.PersonID(ann.Member), Kind: TOTP, Data: sealed("f-2", secret)})
	}
	return d, m, c, record, secret
}

func TestSignIn(t *testing.T) {
	d, m, c, record, _ := signing(t, false)
	ctx := t.Context()
	if err := m.AddPerson(ctx, Person{ID: "u-robot", Organization: acme.Organization, Name: "robot", Service: true}, Membership{}, nil); err != nil {
		t.Fatal(err)
	}
	want := ""
	for name, r := range map[string]cofferdam.LoginRequest{
		"wrong password": {Name: "ann", Password: "not her password"}, "no password": {Name: "ann"}, "nobody": {Name: "eve", Password: word}, "a program": {Name: "robot", Password: word},
		"by id": {Name: m.memberID("ann"), Password: word}, "another organisation": {Organization: "rival", Name: "ann", Password: word}, "no name": {Password: word},
		"a long password": {Name: "ann", Password: strings.Repeat("x", MaxPassword+1)},
	} {
		c.now = c.now.Add(time.Hour)
		_, text, err := d.SignIn(ctx, r, acme.Organization)
		if text != "" || cofferdam.KindOf(err) != cofferdam.Unauthenticated || want != "" && err.Error()+cofferdam.HintOf(err) != want {
			t.Errorf("%s: %q %v", name, text, err)
		}
		want = err.Error() + cofferdam.HintOf(err)
	}
	if !strings.Contains(want, "--organization NAME") {
		t.Errorf("who is of another organisation is told nothing of it: %s", want)
	}
	for _, organization := range []string{"", "acme"} {
		kept, text, err := d.SignIn(ctx, cofferdam.LoginRequest{Organization: organization, Name: "ann", Password: word}, acme.Organization)
		if err != nil || !kept.Login || kept.Expires.Sub(kept.Created) != LoginLife {
			t.Fatalf("%+v %v", kept, err)
		}
		if who, err := d.Bearer(ctx, text); err != nil || who.Principal.Name != "ann" || who.RoleIn(acme) != Owner {
			t.Errorf("%+v %v", who, err)
		}
		c.now = c.now.Add(LoginLife)
		if _, err := d.Bearer(ctx, text); cofferdam.KindOf(err) != cofferdam.Unauthenticated {
			t.Errorf("after %s: %v", LoginLife, err)
		}
	}
	if last := record.events[len(record.events)-1]; last.Kind != cofferdam.EventLogin || !last.Durable {
		t.Errorf("on record: %+v", last)
	}
}

// memberID finds the id of a person by name.
func (m *Memory) memberID(name string) string {
	for _, p := range m.people {
		if p.Name == name {
			return string(p.ID)
		}
	}
	return ""
}

// Who knows the password must not have as many guesses at the code as they like:
// a right password with a wrong code is a wrong attempt like any other.
func TestRightPasswordBuysNoGuesses(t *testing.T) {
	d, _, c, _, secret := signing(t, true)
	ctx := t.Context()
	for i := range MaxWrong {
		if _, _, err := d.SignIn(ctx, cofferdam.LoginRequest{Name: "ann", Password: word, Code: "000000"}, acme.Organization); err == nil {
			t.Fatalf("guess %d was right", i+1)
		}
	}
	code := func() string {
		t.Helper()
		code, err := totp.GenerateCode(secret, c.now)
		if err != nil {
			t.Fatal(err)
		}
		return code
	}
	if _, _, err := d.SignIn(ctx, cofferdam.LoginRequest{Name: "ann", Password: word, Code: code()}, acme.Organization); cofferdam.KindOf(err) != cofferdam.Unauthenticated {
		t.Errorf("after %d wrong codes: %v", MaxWrong, err)
	}
	c.now = c.now.Add(Lock + time.Second)
	r := cofferdam.LoginRequest{Name: "ann", Password: word, Code: code()}
	if _, _, err := d.SignIn(ctx, r, acme.Organization); err != nil {
		t.Errorf("after %s: %v", Lock, err)
	}
	if _, _, err := d.SignIn(ctx, r, acme.Organization); err == nil {
		t.Error("a code counts twice")
	}
}

func TestInvitation(t *testing.T) {
	d, m, c, record, _ := signing(t, false)
	ctx := t.Context()
	ann, err := d.Local(ctx, acme.Organization, "ann")
	if err != nil {
		t.Fatal(err)
	}
	for name, bad := range map[string]struct {
		name    string
		service bool
		role    Role
	}{
		"no name": {"", false, Viewer}, "capital": {"Bob", false, Viewer}, "long": {strings.Repeat("b", 64), false, Viewer}, "blank": {"b b", false, Viewer}, "like an id": {"u-0123456789", false, Viewer},
		"no role": {"bob", false, ""}, "unknown role": {"bob", false, "root"}, "a program that owns": {"bob", true, Owner}, "the other kind": {"ann", true, Viewer},
	} {
		if _, _, err := d.SetRole(ctx, ann, acme, bad.name, bad.service, bad.role); err == nil {
			t.Errorf("%s was taken", name)
		}
	}
	if len(m.people) != 1 {
		t.Fatalf("%d accounts", len(m.people))
	}
	_, text, err := d.SetRole(ctx, ann, acme, "bob", false, Author)
	if err != nil || text == "" {
		t.Fatalf("%q %v", text, err)
	}
	bob, err := d.Bearer(ctx, text)
	if err != nil || bob.RoleIn(acme) != Viewer || !bob.May(acme, "factor.add", Viewer) || bob.May(acme, "task.list", Viewer) {
		t.Errorf("an invitation gives %+v, %v", bob, err)
	}
	c.now = c.now.Add(InvitationLife)
	if _, err := d.Bearer(ctx, text); err == nil {
		t.Error("an invitation counts for longer than a day")
	}
	// Somebody who is here gets a role and no second invitation; a program gets none.
	for _, again := range []struct {
		name    string
		service bool
	}{{"bob", false}, {"robot", true}} {
		if m, text, err := d.SetRole(ctx, ann, acme, again.name, again.service, Viewer); err != nil || text != "" || len(m.Roles) != 1 || m.Roles[0].Role != Viewer {
			t.Errorf("%s: %+v %q %v", again.name, m, text, err)
		}
	}
	if err := d.Leave(ctx, ann, acme, "ann"); cofferdam.KindOf(err) != cofferdam.Conflict {
		t.Errorf("a role in all of the organisation was taken away in one project: %v", err)
	}
	if err := d.Leave(ctx, ann, acme, "bob"); err != nil {
		t.Error(err)
	}
	if _, err := d.Member(ctx, acme, "bob"); cofferdam.KindOf(err) != cofferdam.NotFound {
		t.Errorf("who left is a member: %v", err)
	}
	for _, e := range record.events {
		if strings.Contains(e.Resource+e.Fields["member"], text) && text != "" {
			t.Error("an invitation is on record")
		}
	}
}
