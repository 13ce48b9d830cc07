package store

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"cofferdam"
	"cofferdam/identity"
)

func TestAccounts(t *testing.T) {
	s, ctx := open(t), t.Context()
	scope, err := s.DefaultScope(ctx)
	if err != nil {
		t.Fatal(err)
	}
	add := func(name string, service bool) identity.Person {
		t.Helper()
		p := identity.Person{Schema: "cofferdam/person/v1", ID: cofferdam.PersonID(cofferdam.NewID("u")), Organization: scope.Organization, Name: name, Service: service, Created: time.Now().UTC()}
		if err := s.AddPerson(ctx, p, identity.Membership{}, nil); err != nil {
			t.Fatal(err)
		}
		return p
	}
	ann, robot := add("ann", false), add("robot", true)
	if err := s.AddPerson(ctx, identity.Person{ID: cofferdam.PersonID(cofferdam.NewID("u")), Organization: scope.Organization, Name: "ann"}, identity.Membership{}, nil); cofferdam.KindOf(err) != cofferdam.Conflict {
		t.Errorf("a second ann: %v", err)
	}
	for _, name := range []string{"ann", string(ann.ID), string(ann.ID)[:10]} {
		if got, err := s.Person(ctx, scope.Organization, name); err != nil || got.ID != ann.ID {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	for _, name := range []string{"ann", string(ann.ID)} {
		if _, err := s.Person(ctx, "o-other", name); cofferdam.KindOf(err) != cofferdam.NotFound || !strings.Contains(err.Error(), "there is none") {
			t.Errorf("another organisation finds %s: %v", name, err)
		}
	}
	set := func(id cofferdam.PersonID, project cofferdam.ProjectID, role identity.Role) error {
		return s.SetMembership(ctx, scope.Organization, identity.Membership{Member: string(id), Project: project, Role: role})
	}
	if err := set(robot.ID, "", identity.Author); cofferdam.KindOf(err) != cofferdam.Conflict {
		t.Errorf("an organisation without an owner: %v", err)
	}
	for _, m := range []struct {
		id      cofferdam.PersonID
		project cofferdam.ProjectID
		role    identity.Role
		good    bool
	}{
		{ann.ID, "", identity.Owner, true},
		{robot.ID, scope.Project, identity.Author, true},
		{ann.ID, scope.Project, "root", false},
		{ann.ID, "p-other", identity.Viewer, false},
		{"u-nobody", "", identity.Viewer, false},
		{ann.ID, "", identity.Viewer, false}, // the last owner
		{ann.ID, "", "", false},
		{robot.ID, scope.Project, "", true},
	} {
		if err := set(m.id, m.project, m.role); (err == nil) != m.good {
			t.Errorf("%+v: %v", m, err)
		}
	}
	if roles, err := s.Memberships(ctx, string(ann.ID)); err != nil || len(roles) != 1 || roles[0].Role != identity.Owner {
		t.Errorf("%+v, %v", roles, err)
	}
	if _, err := s.write.ExecContext(ctx, `INSERT INTO organization VALUES ('o-other', 'other', '')`); err != nil {
		t.Fatal(err)
	}
	if _, err := s.write.ExecContext(ctx, `INSERT INTO membership VALUES ('o-other', ?, '', 'owner')`, ann.ID); err == nil || !strings.Contains(err.Error(), "another organisation") {
		t.Errorf("a member of two organisations: %v", err)
	}
}

func TestTokensAreKeptAsHashes(t *testing.T) {
	s, ctx := open(t), t.Context()
	scope, err := s.DefaultScope(ctx)
	if err != nil {
		t.Fatal(err)
	}
	d := identity.New(identity.Options{Store: s})
	ann, err := d.Local(ctx, scope.Organization, "ann")
	if err != nil {
		t.Fatal(err)
	}
	kept, text, err := d.Issue(ctx, identity.Token{Organization: scope.Organization, Project: scope.Project, Holder: ann.Principal, Member: ann.Member, Most: identity.Author, Verbs: []string{"task.list"}}, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	who, err := d.Bearer(ctx, text)
	if err != nil || !who.May(scope, "task.list", identity.Viewer) || who.May(scope, "task.create", identity.Author) || who.May(cofferdam.Scope{Organization: scope.Organization, Project: "p-other"}, "task.list", identity.Viewer) {
		t.Fatalf("%+v, %v", who, err)
	}
	if list, err := s.Tokens(ctx, scope.Organization); err != nil || len(list) != 1 || list[0].ID != kept.ID || list[0].Used.IsZero() {
		t.Errorf("%+v, %v", list, err)
	}
	if list, err := s.Tokens(ctx, "o-other"); err != nil || len(list) != 0 {
		t.Errorf("%+v, %v", list, err)
	}
	if err := s.RevokeToken(ctx, "o-other", kept.ID, time.Now()); cofferdam.KindOf(err) != cofferdam.NotFound {
		t.Errorf("another organisation revokes: %v", err)
	}
	if err := s.RevokeToken(ctx, scope.Organization, kept.ID, time.Now()); err != nil {
		t.Fatal(err)
	}
	if _, err := s.write.ExecContext(ctx, `UPDATE token SET revoked = '' WHERE id = ?`, kept.ID); err == nil {
		t.Error("a token that is revoked came back")
	}
	if _, err := d.Bearer(ctx, text); cofferdam.KindOf(err) != cofferdam.Unauthenticated {
		t.Errorf("revoked: %v", err)
	}
}

func TestFactors(t *testing.T) {
	s, ctx := open(t), t.Context()
	scope, err := s.DefaultScope(ctx)
	if err != nil {
		t.Fatal(err)
	}
	d := identity.New(identity.Options{Store: s})
	ann, err := d.Local(ctx, scope.Organization, "ann")
	if err != nil {
		t.Fatal(err)
	}
	id := cofferdam.PersonID(ann.Member)
	f := identity.Factor{ID: cofferdam.NewID("f"), Person: id, Kind: identity.TOTP, Name: "phone", Data: []byte("x"), Created: time.Now().UTC()}
	if err := s.AddFactor(ctx, f, 0); err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var all sync.WaitGroup
	spent := 0
	for range 20 {
		all.Go(func() {
			if s.SpendStep(ctx, f.ID, 7) == nil {
				mu.Lock()
				spent++
				mu.Unlock()
			}
		})
	}
	all.Wait()
	if spent != 1 || s.SpendStep(ctx, f.ID, 6) == nil || s.SpendStep(ctx, f.ID, 8) != nil {
		t.Errorf("a step was used %d times, or an earlier one after it", spent)
	}
	at := time.Now()
	wrong := func(source string, at time.Time) int {
		t.Helper()
		n, err := s.Attempt(ctx, id, source, false, at, at.Add(-identity.Lock))
		if err != nil {
			t.Error(err)
		}
		return n
	}
	for i := range identity.MaxWrong + 3 {
		if n := wrong("uid 7", at); n != min(i+1, identity.MaxWrong+1) {
			t.Errorf("attempt %d: %d", i+1, n)
		}
	}
	if a, b := wrong("", at), wrong("uid 8", at); a != 1 || b != 1 {
		t.Errorf("what one source guessed counts for others: %d, %d", a, b)
	}
	if n := wrong("uid 7", at.Add(2*identity.Lock)); n != 1 {
		t.Errorf("after the lock: %d", n)
	}
	for i := range identity.MaxGuesses - 1 {
		wrong(fmt.Sprintf("uid %d", 100+i), at.Add(2*identity.Lock))
	}
	if a, b := wrong("uid 9", at.Add(2*identity.Lock)), wrong("", at.Add(2*identity.Lock)); a != identity.MaxWrong+1 || b != 1 {
		t.Errorf("after %d guesses: %d, and for the person %d", identity.MaxGuesses, a, b)
	}
	if _, err := s.Attempt(ctx, id, "uid 7", true, at, at); err != nil || wrong("uid 9", at.Add(2*identity.Lock)) != 1 {
		t.Errorf("one that is right forgets none: %v", err)
	}
	if err := s.RemoveFactor(ctx, "u-other", f.ID); cofferdam.KindOf(err) != cofferdam.NotFound {
		t.Errorf("somebody else's factor: %v", err)
	}
	if err := s.RemoveFactor(ctx, id, f.ID); err != nil {
		t.Error(err)
	}
}

// A person of an identity provider is one person here, whoever else asks for them.
func TestSubjects(t *testing.T) {
	s, ctx := open(t), t.Context()
	scope, err := s.DefaultScope(ctx)
	if err != nil {
		t.Fatal(err)
	}
	d := identity.New(identity.Options{Store: s})
	ann, err := d.Local(ctx, scope.Organization, "ann")
	if err != nil {
		t.Fatal(err)
	}
	bob, err := d.Local(ctx, scope.Organization, "bob")
	if err != nil {
		t.Fatal(err)
	}
	const issuer = "https://id.example.com"
	if err := s.BindSubject(ctx, issuer, "1", cofferdam.PersonID(ann.Member), time.Now()); err != nil {
		t.Fatal(err)
	}
	if err := s.BindSubject(ctx, issuer, "1", cofferdam.PersonID(bob.Member), time.Now()); cofferdam.KindOf(err) != cofferdam.Conflict {
		t.Errorf("bound to somebody else: %v", err)
	}
	if err := s.BindSubject(ctx, issuer, "2", "u-nobody", time.Now()); err == nil {
		t.Error("bound to nobody")
	}
	if p, err := s.PersonBySubject(ctx, issuer, "1"); err != nil || string(p.ID) != ann.Member {
		t.Errorf("%+v %v", p, err)
	}
	for _, who := range [][2]string{{issuer, "2"}, {"https://other.example.com", "1"}, {"", ""}} {
		if _, err := s.PersonBySubject(ctx, who[0], who[1]); cofferdam.KindOf(err) != cofferdam.NotFound {
			t.Errorf("%v: %v", who, err)
		}
	}
}

func TestPolicyVersions(t *testing.T) {
	s, ctx := open(t), t.Context()
	scope, err := s.DefaultScope(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Policy(ctx, scope); cofferdam.KindOf(err) != cofferdam.NotFound {
		t.Errorf("a policy before any: %v", err)
	}
	propose := func(text string) cofferdam.PolicyVersion {
		t.Helper()
		v, err := s.ProposePolicy(ctx, cofferdam.PolicyVersion{Scope: scope, Text: text, Digest: cofferdam.Digest("sha256:" + text), ProposedBy: "person:ann", Proposed: time.Now()})
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	one, two, three := propose("1"), propose("2"), propose("3")
	if one.Version != 1 || three.Version != 3 {
		t.Errorf("%+v %+v", one, three)
	}
	decide := func(v cofferdam.PolicyVersion, state cofferdam.PolicyState, by, signature string) error {
		v.Scope, v.State, v.DecidedBy, v.Decided, v.Signature = scope, state, by, time.Now(), signature
		return s.DecidePolicy(ctx, v)
	}
	if err := decide(two, cofferdam.PolicyTaken, "person:bob", ""); err == nil {
		t.Error("a version counts without a signature")
	}
	if err := decide(two, cofferdam.PolicyTaken, "person:bob", "note"); err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{decide(two, cofferdam.PolicyRejected, "person:bob", ""), decide(one, cofferdam.PolicyTaken, "person:bob", "note"), decide(cofferdam.PolicyVersion{Version: 9}, cofferdam.PolicyTaken, "person:bob", "note")} {
		if err == nil {
			t.Error("decided twice, or an older version came back")
		}
	}
	if err := decide(three, cofferdam.PolicyRejected, "person:bob", ""); err != nil {
		t.Fatal(err)
	}
	if v, err := s.Policy(ctx, scope); err != nil || v.Version != 2 || v.DecidedBy != "person:bob" {
		t.Errorf("%+v, %v", v, err)
	}
	if _, err := s.write.ExecContext(ctx, `UPDATE policy SET text = 'x' WHERE version = 2`); err == nil {
		t.Error("the text of a version was changed")
	}
}
