package identity

import (
	"bytes"
	"crypto/ed25519"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/pquerna/otp/totp"

	"cofferdam"
)

type clock struct{ now time.Time }

func newDirectory() (*Directory, *Memory, *clock) {
	m, c := NewMemory("acme", cofferdam.Project{Scope: acme, Name: "web"}), &clock{time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)}
	return New(Options{Store: m, Sealer: seals{}, Now: func() time.Time { return c.now }}), m, c
}

var acme = cofferdam.Scope{Organization: "o-acme", Project: "p-web"}

func TestRoles(t *testing.T) {
	for i, have := range order {
		for j, needs := range order {
			if have.Has(needs) != (i >= j) {
				t.Errorf("%s has %s: %v", have, needs, have.Has(needs))
			}
		}
	}
	if Role("root").Has(Viewer) || Owner.Has("root") || Role("").Has("") || Role("").Known() {
		t.Error("a role that is none counts")
	}
	c := Caller{Organization: "o-acme", Memberships: []Membership{{Project: "p-web", Role: Author}, {Role: Viewer}, {Project: "p-db", Role: Owner}}}
	for scope, want := range map[cofferdam.Scope]Role{
		acme: Author,
		{Organization: "o-acme", Project: "p-other"}: Viewer,
		{Organization: "o-acme", Project: "p-db"}:    Owner,
		{Organization: "o-evil", Project: "p-web"}:   "",
		{}: "",
	} {
		if got := c.RoleIn(scope); got != want {
			t.Errorf("%+v: %q, not %q", scope, got, want)
		}
	}
	c.Most = Reviewer
	if got := c.RoleIn(cofferdam.Scope{Organization: "o-acme", Project: "p-db"}); got != Reviewer {
		t.Errorf("a token gives %s", got)
	}
	c.Fixed = "p-web"
	if got := c.RoleIn(cofferdam.Scope{Organization: "o-acme", Project: "p-db"}); got != "" {
		t.Errorf("a token of one project gives %s in another", got)
	}
	c.Verbs = []string{"task.list"}
	if !c.May(acme, "task.list", Viewer) || c.May(acme, "task.create", Author) {
		t.Error("verbs of a token do not count")
	}
}

func TestTokens(t *testing.T) {
	d, m, c := newDirectory()
	ctx := t.Context()
	local, err := d.Local(ctx, acme.Organization, "ann")
	if err != nil || local.RoleIn(acme) != Owner {
		t.Fatalf("%+v, %v", local, err)
	}
	if again, err := d.Local(ctx, acme.Organization, "ann"); err != nil || again.Member != local.Member || len(m.people) != 1 {
		t.Fatalf("%+v, %v", again, err)
	}
	kept, text, err := d.Issue(ctx, Token{Organization: acme.Organization, Holder: local.Principal, Member: local.Member, Most: Author}, 0)
	if err != nil {
		t.Fatal(err)
	}
	if all, _ := json.Marshal(m.tokens); strings.Contains(string(all), text) || strings.Contains(m.tokens[0].Hash, text) {
		t.Error("the token itself is kept")
	}
	who, err := d.Bearer(ctx, text)
	if err != nil || who.RoleIn(acme) != Author || who.Principal != local.Principal {
		t.Fatalf("%+v, %v", who, err)
	}
	for name, other := range map[string]string{
		"empty": "", "longer": text + "A", "shorter": text[:len(text)-1], "another": tokenPrefix + strings.Repeat("A", 43), "100 KB": strings.Repeat("A", 100<<10), "its hash": hash(text),
	} {
		if _, err := d.Bearer(ctx, other); cofferdam.KindOf(err) != cofferdam.Unauthenticated {
			t.Errorf("%s: %v", name, err)
		}
	}
	refused := func(why string) {
		t.Helper()
		if _, err := d.Bearer(ctx, text); cofferdam.KindOf(err) != cofferdam.Unauthenticated {
			t.Errorf("%s: %v", why, err)
		}
	}
	begin := c.now
	c.now = begin.Add(DefaultLife)
	refused("expired")
	c.now = begin
	if err := m.DisablePerson(ctx, acme.Organization, cofferdam.PersonID(local.Member), c.now); err != nil {
		t.Fatal(err)
	}
	refused("of a person who is disabled")
	m.people[0].Disabled = time.Time{}
	if err := m.RevokeToken(ctx, acme.Organization, kept.ID, c.now); err != nil {
		t.Fatal(err)
	}
	refused("revoked")
	if _, text, err = d.Issue(ctx, Token{Organization: acme.Organization, Holder: local.Principal, Member: local.Member, Most: Author}, 0); err != nil {
		t.Fatal(err)
	}
	for _, role := range []Role{"", Owner} {
		if err := m.SetMembership(ctx, acme.Organization, Membership{Member: local.Member, Role: role}); err != nil {
			t.Fatal(err)
		}
		refused("of a person who left, and is back: " + string(role))
	}
	for name, bad := range map[string]func() error{
		"for ever":    func() error { _, _, err := d.Issue(ctx, Token{Most: Viewer}, 2*MaxLife); return err },
		"for no time": func() error { _, _, err := d.Issue(ctx, Token{Most: Viewer}, time.Second); return err },
		"of no role":  func() error { _, _, err := d.Issue(ctx, Token{Most: "root"}, 0); return err },
	} {
		if cofferdam.KindOf(bad()) != cofferdam.Invalid {
			t.Errorf("a token %s: %v", name, bad())
		}
	}
}

// seals is a Sealer that can be seen through.
type seals struct{}

func (seals) Seal(name string, p []byte) ([]byte, error) { return sealed(name, string(p)), nil }

func (seals) Unseal(name string, p []byte) ([]byte, error) {
	plain, ok := bytes.CutPrefix(p, sealed(name, ""))
	if !ok {
		return nil, &cofferdam.Error{Op: "seals.Unseal", Kind: cofferdam.Tampered, Subject: name, Reason: "another one"}
	}
	return plain, nil
}

func sealed(name, text string) []byte { return []byte("sealed for " + name + ": " + text) }

func TestPresence(t *testing.T) {
	d, m, c := newDirectory()
	ctx := t.Context()
	kept, err := d.HashPassword(ctx, "correct horse battery")
	if err != nil {
		t.Fatal(err)
	}
	key, err := totp.Generate(totp.GenerateOpts{Issuer: "cofferdam", AccountName: "ann"})
	if err != nil {
		t.Fatal(err)
	}
	m.factors = []Factor{{ID: "f-1", Person: "u-ann", Kind: Password, Data: kept}, {ID: "f-2", Person: "u-ann", Kind: TOTP, Data: sealed("f-2", key.Secret())}}
	p, err := d.Prove(ctx, "u-ann", cofferdam.Proof{Kind: Password, Password: "correct horse battery"}, "sha256:act")
	if err != nil || !p.Counts("u-ann", "sha256:act", c.now) {
		t.Fatalf("%+v, %v", p, err)
	}
	if p.Counts("u-bob", "sha256:act", c.now) || p.Counts("u-ann", "sha256:other", c.now) || p.Counts("u-ann", "sha256:act", c.now.Add(PresentFor)) || (Presence{}).Counts("", "", c.now) {
		t.Error("a presence counts for something else")
	}
	code, err := totp.GenerateCode(key.Secret(), c.now)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Prove(ctx, "u-ann", cofferdam.Proof{Kind: TOTP, Code: code}, "sha256:act"); err != nil {
		t.Fatal(err)
	}
	for name, wrong := range map[string]cofferdam.Proof{
		"a code twice": {Kind: TOTP, Code: code}, "no code": {Kind: TOTP}, "another password": {Kind: Password, Password: "correct horse"}, "the hash": {Kind: Password, Password: string(kept)},
	} {
		if _, err := d.Prove(ctx, "u-ann", wrong, "sha256:act"); cofferdam.KindOf(err) != cofferdam.Forbidden {
			t.Errorf("%s: %v", name, err)
		}
	}
	for range 2 { // the fifth and the sixth
		_, _ = d.Prove(ctx, "u-ann", cofferdam.Proof{Kind: Password}, "sha256:act")
	}
	if _, err := d.Prove(ctx, "u-ann", cofferdam.Proof{Kind: Password, Password: "correct horse battery"}, "sha256:act"); cofferdam.KindOf(err) != cofferdam.Forbidden {
		t.Error("the right password counts after too many wrong ones")
	}
	c.now = c.now.Add(Lock + time.Minute)
	if _, err := d.Prove(ctx, "u-ann", cofferdam.Proof{Kind: Password, Password: "correct horse battery"}, "sha256:act"); err != nil {
		t.Errorf("after the lock: %v", err)
	}
	if s := (cofferdam.Proof{Kind: Password, Password: "x"}).String(); strings.Contains(s, "x") && s != "password [redacted]" {
		t.Error(s)
	}
}

func TestWorkloadTokens(t *testing.T) {
	now := time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)
	_, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	_, otherKey, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	at := func() time.Time { return now }
	i, err := NewIssuer("https://cofferdam.test", key, at)
	if err != nil {
		t.Fatal(err)
	}
	other, err := NewIssuer("https://cofferdam.test", otherKey, at)
	if err != nil {
		t.Fatal(err)
	}
	w := Workload{Scope: acme, Task: "t-1", Session: "s-1", Wire: "w-1"}
	text, ends, err := i.Sign(w, "tools.test")
	if err != nil || ends.Sub(now) != WorkloadLife {
		t.Fatal(err, ends)
	}
	if got, err := i.Check(text, "tools.test", "w-1"); err != nil || got != w {
		t.Fatalf("%+v, %v", got, err)
	}
	forged, _, err := other.Sign(w, "tools.test")
	if err != nil {
		t.Fatal(err)
	}
	parts := strings.Split(text, ".")
	for name, try := range map[string][3]string{
		"another wire":     {text, "tools.test", "w-2"},
		"no wire":          {text, "tools.test", ""},
		"another audience": {text, "evil.test", "w-1"},
		"another key":      {forged, "tools.test", "w-1"},
		"no signature":     {parts[0] + "." + parts[1] + ".", "tools.test", "w-1"},
		"alg none":         {"eyJhbGciOiJub25lIn0." + parts[1] + ".", "tools.test", "w-1"},
		"nothing":          {"", "tools.test", "w-1"},
		"too long":         {strings.Repeat("a", 9<<10), "tools.test", "w-1"},
	} {
		if _, err := i.Check(try[0], try[1], try[2]); cofferdam.KindOf(err) != cofferdam.Unauthenticated {
			t.Errorf("%s: %v", name, err)
		}
	}
	now = now.Add(WorkloadLife + time.Second)
	if _, err := i.Check(text, "tools.test", "w-1"); err == nil {
		t.Error("an old token counts")
	}
	if keys := string(i.Keys()); !strings.Contains(keys, i.id) || strings.Contains(keys, `"d"`) {
		t.Errorf("published keys: %s", keys)
	}
}
