package identity

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"cofferdam"
)

// bound is ann, who has bound her account at the provider.
func bound(t *testing.T) (*OIDC, *op, *clock) {
	t.Helper()
	d, _, c, _ := bare()
	c.now = time.Now() // the provider has a clock of its own
	p := newOP(t)
	o, err := NewOIDC(Provider{Issuer: p.URL, Client: client}, d)
	if err != nil {
		t.Fatal(err)
	}
	ann, err := d.Local(t.Context(), acme.Organization, "ann")
	if err != nil {
		t.Fatal(err)
	}
	address, ticket, err := o.Begin(t.Context(), redirect)
	if err != nil {
		t.Fatal(err)
	}
	code, state := authorize(t, p, address, "id1")
	if err := o.Bind(t.Context(), ann, ticket, state, code); err != nil {
		t.Fatal(err)
	}
	return o, p, c
}

func TestSignInAtAProvider(t *testing.T) {
	o, p, _ := bound(t)
	ctx := t.Context()
	address, ticket, err := o.Begin(ctx, redirect)
	if err != nil || strings.Contains(address, ticket) {
		t.Fatalf("%s %v", address, err)
	}
	code, state := authorize(t, p, address, "id1")
	kept, text, err := o.Finish(ctx, ticket, state, code)
	if err != nil || !kept.Login || kept.Holder.Name != "ann" {
		t.Fatalf("%+v %v", kept, err)
	}
	if who, err := o.d.Bearer(ctx, text); err != nil || who.Principal.Name != "ann" {
		t.Errorf("%+v %v", who, err)
	}
	if _, _, err := o.Finish(ctx, ticket, state, code); err == nil {
		t.Error("a ticket counts twice")
	}
	// Whom nobody bound is nobody, and who is bound is not bound again.
	address, ticket, _ = o.Begin(ctx, redirect)
	code, state = authorize(t, p, address, "id2")
	if _, _, err := o.Finish(ctx, ticket, state, code); cofferdam.KindOf(err) != cofferdam.Unauthenticated || !strings.Contains(err.Error(), "no account here") {
		t.Errorf("another subject: %v", err)
	}
	ann, err := o.d.Local(ctx, acme.Organization, "ann")
	if err != nil {
		t.Fatal(err)
	}
	address, ticket, _ = o.Begin(ctx, redirect)
	code, state = authorize(t, p, address, "id1")
	if err := o.Bind(ctx, ann, ticket, state, code); cofferdam.KindOf(err) != cofferdam.Conflict {
		t.Errorf("bound again: %v", err)
	}
	ann.Principal.Kind = cofferdam.Service
	if err := o.Bind(ctx, ann, ticket, state, code); cofferdam.KindOf(err) != cofferdam.Forbidden {
		t.Errorf("a program binds: %v", err)
	}
}

// Each of what ties an answer to its request is checked: without any one of them
// somebody else's answer would count. The provider is a real one; what it says is
// changed on the way, and signed by whoever the case says.
func TestAnswersOfAProviderThatDoNotHold(t *testing.T) {
	other, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	set := func(name string, v any) forging {
		return func(p *op, c map[string]any) string {
			c[name] = v
			if v == nil {
				delete(c, name)
			}
			return p.Sign(c)
		}
	}
	at := func(name string, d time.Duration) forging {
		return func(p *op, c map[string]any) string { return set(name, time.Now().Add(d).Unix())(p, c) }
	}
	o, p, clock := bound(t)
	for name, c := range map[string]struct {
		forge forging
		send  func(ticket, state, code string) (string, string, string)
		wait  time.Duration
		holds bool
	}{
		"nothing is changed":    {forge: func(p *op, c map[string]any) string { return p.Sign(c) }, holds: true},
		"its clock is ahead":    {forge: at("nbf", time.Minute), holds: true},
		"azp is us":             {forge: set("azp", client), holds: true},
		"nonce of another flow": {forge: set("nonce", "x")},
		"no nonce":              {forge: set("nonce", nil)},
		"another audience":      {forge: set("aud", "other")},
		"no audience":           {forge: set("aud", nil)},
		"for us and another": {forge: func(p *op, c map[string]any) string {
			delete(c, "azp")
			return set("aud", []string{client, "other"})(p, c)
		}},
		"made for another": {forge: func(p *op, c map[string]any) string {
			c["aud"] = []string{client, "other"}
			return set("azp", "other")(p, c)
		}},
		"another issuer":      {forge: set("iss", "https://other.example.com")},
		"no issuer":           {forge: set("iss", nil)},
		"over":                {forge: at("exp", -time.Second)},
		"no end":              {forge: set("exp", nil)},
		"not yet":             {forge: at("nbf", 6*time.Minute)},
		"nobody":              {forge: set("sub", "")},
		"a long name":         {forge: set("sub", strings.Repeat("x", 256))},
		"another key":         {forge: func(_ *op, c map[string]any) string { return signed(jose.RS256, other, "1", c) }},
		"no key of that name": {forge: func(p *op, c map[string]any) string { return signed(jose.RS256, p.Store.Private, "other", c) }},
		"not signed":          {forge: func(_ *op, c map[string]any) string { return unsigned(c) }},
		"its public key as a secret": {forge: func(p *op, c map[string]any) string {
			der, err := x509.MarshalPKIXPublicKey(&p.Store.Private.PublicKey)
			if err != nil {
				panic(err)
			}
			return signed(jose.HS256, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}), p.Store.ID, c)
		}},
		"another way to sign": {forge: func(p *op, c map[string]any) string { return signed(jose.RS512, p.Store.Private, p.Store.ID, c) }},
		"two tokens in one":   {forge: func(p *op, c map[string]any) string { return p.Sign(c) + "." + p.Sign(c) }},
		"no token":            {forge: func(*op, map[string]any) string { return "" }},
		"another state":       {send: func(t, _, c string) (string, string, string) { return t, "x", c }},
		"no state":            {send: func(t, _, c string) (string, string, string) { return t, "", c }},
		"another ticket":      {send: func(_, s, c string) (string, string, string) { return "x", s, c }},
		"another code":        {send: func(t, s, _ string) (string, string, string) { return t, s, "x" }},
		"late":                {wait: FlowLife},
	} {
		t.Run(name, func(t *testing.T) {
			began := clock.now
			defer func() { clock.now = began }()
			p.Forge = nil
			address, ticket, err := o.Begin(t.Context(), redirect)
			if err != nil {
				t.Fatal(err)
			}
			code, state := authorize(t, p, address, "id1")
			p.Forge = c.forge
			clock.now = clock.now.Add(c.wait)
			if c.send != nil {
				ticket, state, code = c.send(ticket, state, code)
			}
			_, text, err := o.Finish(t.Context(), ticket, state, code)
			if c.holds && (err != nil || text == "") {
				t.Errorf("it does not hold: %v", err)
			}
			if !c.holds && (text != "" || cofferdam.KindOf(err) != cofferdam.Unauthenticated || !strings.Contains(err.Error(), "does not hold")) {
				t.Errorf("%q %v", text, err)
			}
			clear(o.flows)
		})
	}
	// The code of one flow in another: the verifier is not its own, and the provider
	// refuses it.
	p.Forge = nil
	one, _, _ := o.Begin(t.Context(), redirect)
	two, ticket, _ := o.Begin(t.Context(), redirect)
	code, _ := authorize(t, p, one, "id1")
	_, state := authorize(t, p, two, "id1")
	if _, _, err := o.Finish(t.Context(), ticket, state, code); err == nil {
		t.Error("the code of one flow counts in another")
	}
}

// A provider changes its keys: the new one counts at once, and the old one no more.
func TestProviderChangesItsKeys(t *testing.T) {
	o, p, _ := bound(t)
	finish := func() error {
		t.Helper()
		address, ticket, err := o.Begin(t.Context(), redirect)
		if err != nil {
			t.Fatal(err)
		}
		code, state := authorize(t, p, address, "id1")
		_, _, err = o.Finish(t.Context(), ticket, state, code)
		return err
	}
	old, oldID := p.Store.Private, p.Store.ID
	p.Store.Rotate(t)
	if err := finish(); err != nil {
		t.Errorf("a new key: %v", err)
	}
	p.Forge = func(_ *op, c map[string]any) string { return signed(jose.RS256, old, oldID, c) }
	if err := finish(); cofferdam.KindOf(err) != cofferdam.Unauthenticated {
		t.Errorf("the old key counts: %v", err)
	}
}

// One account of the provider's is one person's here. One person may have two.
func TestSubjectIsBoundToOnePerson(t *testing.T) {
	o, p, _ := bound(t)
	bind := func(name, subject string) error {
		t.Helper()
		who, err := o.d.Local(t.Context(), acme.Organization, name)
		if err != nil {
			t.Fatal(err)
		}
		address, ticket, err := o.Begin(t.Context(), redirect)
		if err != nil {
			t.Fatal(err)
		}
		code, state := authorize(t, p, address, subject)
		return o.Bind(t.Context(), who, ticket, state, code)
	}
	if err := bind("bob", "id1"); cofferdam.KindOf(err) != cofferdam.Conflict {
		t.Errorf("ann's account is bound to bob: %v", err)
	}
	if err := bind("ann", "id2"); err != nil {
		t.Errorf("a second one of ann's: %v", err)
	}
	address, ticket, _ := o.Begin(t.Context(), redirect)
	code, state := authorize(t, p, address, "id2")
	if kept, _, err := o.Finish(t.Context(), ticket, state, code); err != nil || kept.Holder.Name != "ann" {
		t.Errorf("%+v %v", kept, err)
	}
}

func TestProvidersAndRedirects(t *testing.T) {
	d, _, _, _ := bare()
	for _, p := range []Provider{{}, {Issuer: "https://id.example.com"}, {Issuer: "http://id.example.com", Client: "x"}, {Issuer: "id.example.com", Client: "x"}, {Issuer: "https://u:p@id.example.com", Client: "x"}} {
		if _, err := NewOIDC(p, d); err == nil {
			t.Errorf("%+v was taken", p)
		}
	}
	o, _, _ := bound(t)
	for _, r := range []string{"", "x", "https://127.0.0.1:1/", "http://127.0.0.1/", "http://localhost:1/", "http://10.0.0.1:1/", "http://evil.example.com:80/", "http://127.0.0.1:1/?a=b", "http://127.0.0.1:1/#x", "http://a@127.0.0.1:1/"} {
		if _, _, err := o.Begin(t.Context(), r); cofferdam.KindOf(err) != cofferdam.Invalid {
			t.Errorf("%q: %v", r, err)
		}
	}
}
