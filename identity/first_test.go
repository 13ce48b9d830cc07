package identity

import (
	"context"
	"encoding/base32"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pquerna/otp/totp"

	"cofferdam"
)

// withBob has bob, who has nothing to prove by and acts by his invitation.
func withBob(t *testing.T) (d *Directory, m *Memory, c *clock, bob Caller) {
	t.Helper()
	d, m, c, _ = bare()
	ann, err := d.Local(t.Context(), acme.Organization, "ann")
	if err != nil {
		t.Fatal(err)
	}
	_, text, err := d.SetRole(t.Context(), ann, acme, "bob", false, Reviewer)
	if err != nil {
		t.Fatal(err)
	}
	if bob, err = d.Bearer(t.Context(), text); err != nil {
		t.Fatal(err)
	}
	return d, m, c, bob
}

// TestFirstFactor: whoever comes by a login that an identity provider gave to
// somebody who has nothing to prove by cannot, later, make what proves that person,
// nor bind an account of theirs.
func TestFirstFactor(t *testing.T) {
	ctx := t.Context()
	d, _, c, bob := withBob(t)
	p := newOP(t)
	now := time.Now()
	c.now = now // the provider's
	o, err := NewOIDC(Provider{Issuer: p.URL, Client: client}, d)
	if err != nil {
		t.Fatal(err)
	}
	begin := func(subject string) (ticket, state, code string) {
		t.Helper()
		address, ticket, err := o.Begin(ctx, redirect)
		if err != nil {
			t.Fatal(err)
		}
		code, state = authorize(t, p, address, subject)
		return ticket, state, code
	}
	bind := func(who Caller, subject string) error {
		ticket, state, code := begin(subject)
		return o.Bind(ctx, who, ticket, state, code)
	}
	if err := bind(bob, "id1"); err != nil { // by the invitation
		t.Fatal(err)
	}
	_, text, err := o.Finish(ctx, "", "", "")
	if err == nil {
		t.Fatal("without a flow")
	}
	ticket, state, code := begin("id1")
	if _, text, err = o.Finish(ctx, ticket, state, code); err != nil {
		t.Fatal(err)
	}
	password := cofferdam.EnrollRequest{Kind: Password, Password: word}
	c.now = now.Add(FreshFor)
	old, err := d.Bearer(ctx, text)
	if err != nil || !old.There() {
		t.Fatalf("%+v %v", old, err)
	}
	if _, err := d.Enroll(ctx, old, password, Presence{}, ""); cofferdam.KindOf(err) != cofferdam.Forbidden {
		t.Errorf("an old login chose a password: %v", err)
	}
	if err := bind(old, "id2"); cofferdam.KindOf(err) != cofferdam.Forbidden {
		t.Errorf("an old login bound another account: %v", err)
	}
	if have, _ := d.Factors(ctx, cofferdam.PersonID(bob.Member)); len(have) != 0 {
		t.Errorf("%+v", have)
	}
	c.now = now
	ticket, state, code = begin("id1")
	if _, text, err = o.Finish(ctx, ticket, state, code); err != nil {
		t.Fatal(err)
	}
	fresh, err := d.Bearer(ctx, text)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Enroll(ctx, fresh, password, Presence{}, ""); err != nil {
		t.Errorf("just after signing in: %v", err)
	}
	if bob.There() {
		t.Error("an invitation stands for the person")
	}
}

// TestTwoFirstFactors: of two who use an invitation at the same moment one chooses
// the password, and the other is told.
func TestTwoFirstFactors(t *testing.T) {
	d, m, _, bob := withBob(t)
	met := &meeting{Memory: m, both: make(chan struct{})}
	d.o.Store = met
	var wg sync.WaitGroup
	var mu sync.Mutex
	good, told := 0, 0
	for range 2 {
		wg.Go(func() {
			_, err := d.Enroll(context.Background(), bob, cofferdam.EnrollRequest{Kind: Password, Password: word}, Presence{}, "")
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				good++
			case cofferdam.KindOf(err) == cofferdam.Conflict:
				told++
			}
		})
	}
	wg.Wait()
	if have, _ := m.Factors(t.Context(), cofferdam.PersonID(bob.Member)); good != 1 || told != 1 || len(have) != 1 {
		t.Errorf("%d chose it, %d were told, and there are %d", good, told, len(have))
	}
}

// meeting lets nobody have a list of factors before two have asked for one.
type meeting struct {
	*Memory
	mu   sync.Mutex
	here int
	both chan struct{}
}

func (m *meeting) Factors(ctx context.Context, p cofferdam.PersonID) ([]Factor, error) {
	all, err := m.Memory.Factors(ctx, p)
	m.mu.Lock()
	if m.here++; m.here == 2 {
		close(m.both)
	}
	m.mu.Unlock()
	<-m.both
	return all, err
}

// TestFirstCode: the code by which an application was added is used by that, and a
// secret that could be guessed is none.
func TestFirstCode(t *testing.T) {
	d, m, c, bob := withBob(t)
	ctx := t.Context()
	code := func(secret string) string {
		t.Helper()
		code, err := totp.GenerateCode(secret, c.now)
		if err != nil {
			t.Fatal(err)
		}
		return code
	}
	for _, secret := range []string{"", "AA", base32.StdEncoding.EncodeToString(make([]byte, minSecret-1)), strings.Repeat("1", 40)} {
		r := cofferdam.EnrollRequest{Kind: TOTP, Secret: secret}
		if secret != strings.Repeat("1", 40) { // which is no base32
			r.Code = code(secret)
		}
		if _, err := d.Enroll(ctx, bob, r, Presence{}, ""); cofferdam.KindOf(err) != cofferdam.Invalid {
			t.Errorf("secret %q: %v", secret, err)
		}
	}
	secret := base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString([]byte("twenty bytes of this"))
	first := code(secret)
	if _, err := d.Enroll(ctx, bob, cofferdam.EnrollRequest{Kind: TOTP, Secret: secret, Code: first}, Presence{}, ""); err != nil {
		t.Fatal(err)
	}
	kept, err := m.Factors(ctx, cofferdam.PersonID(bob.Member))
	if err != nil || len(kept) != 1 || string(kept[0].Data) != string(sealed(kept[0].ID, secret)) {
		t.Errorf("it is kept as %+v, %v", kept, err)
	}
	prove := func(code string) error {
		_, err := d.Prove(ctx, cofferdam.PersonID(bob.Member), cofferdam.Proof{Kind: TOTP, Code: code}, "sha256:x")
		return err
	}
	if err := prove(first); cofferdam.KindOf(err) != cofferdam.Forbidden {
		t.Errorf("the first code counts twice: %v", err)
	}
	c.now = c.now.Add(step * time.Second)
	if err := prove(code(secret)); err != nil {
		t.Errorf("the next one: %v", err)
	}
	c.now = c.now.Add(step * time.Second)
	if err := m.ChangeFactor(ctx, kept[0].ID, sealed("f-other", secret)); err != nil {
		t.Fatal(err)
	}
	if err := prove(code(secret)); cofferdam.KindOf(err) != cofferdam.Tampered {
		t.Errorf("a secret of another row proves: %v", err)
	}
}

// TestCodesNeedAVault: where nothing seals, nobody gets an application for codes.
func TestCodesNeedAVault(t *testing.T) {
	d, _, c, bob := withBob(t)
	d.o.Sealer = nil
	secret := base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString([]byte("twenty bytes of this"))
	code, err := totp.GenerateCode(secret, c.now)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Enroll(t.Context(), bob, cofferdam.EnrollRequest{Kind: TOTP, Secret: secret, Code: code}, Presence{}, ""); cofferdam.KindOf(err) != cofferdam.Invalid || !strings.Contains(err.Error(), "vault") {
		t.Errorf("%v", err)
	}
}

// TestAPasskeyIsItsCallers: what a program that has one token of a person's had a
// browser make is not what the person enrolls, who has another.
func TestAPasskeyIsItsCallers(t *testing.T) {
	d, _, _, bob := withBob(t)
	keys, err := d.UsePasskeys("localhost", "https://localhost")
	if err != nil {
		t.Fatal(err)
	}
	eve := bob
	eve.Token = "k-other"
	begun, err := keys.Errand(t.Context(), eve, "", "x")
	if err != nil {
		t.Fatal(err)
	}
	_, ticket, _ := strings.Cut(begun.Address, "#")
	if err := keys.Answer(ticket, []byte(`{"eve":"s"}`)); err != nil {
		t.Fatal(err)
	}
	if _, ok := keys.Answered(eve, ""); !ok {
		t.Error("whoever began has no answer")
	}
	if answer, ok := keys.Answered(bob, ""); ok {
		t.Errorf("bob would enroll %s", answer)
	}
	own, err := keys.Errand(t.Context(), bob, "", "x")
	if err != nil || own.Address == begun.Address {
		t.Errorf("%s %v", own.Address, err)
	}
	if _, ok := keys.Answered(eve, "sha256:x"); ok {
		t.Error("a registration answers a question")
	}
}
