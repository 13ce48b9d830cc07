package identity

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"

	"cofferdam"
	"cofferdam/identity/identitytest"
)

const (
	site   = "console.example.com"
	origin = "https://console.example.com"
)

// authenticator is a device with one passkey.
type authenticator = identitytest.Authenticator

func newAuthenticator(t *testing.T) *authenticator {
	t.Helper()
	return identitytest.NewAuthenticator(t, site, origin)
}

var b64 = base64.RawURLEncoding

const about cofferdam.Digest = "sha256:the question and its answer"

// keyed is ann with a passkey.
func keyed(t *testing.T) (*Passkeys, *authenticator, Caller, *clock) {
	t.Helper()
	d, _, c, _ := bare()
	p, err := d.UsePasskeys(site, origin)
	if err != nil {
		t.Fatal(err)
	}
	ann, err := d.Local(t.Context(), acme.Organization, "ann")
	if err != nil {
		t.Fatal(err)
	}
	options, err := p.Register(t.Context(), ann)
	if err != nil {
		t.Fatal(err)
	}
	a := newAuthenticator(t)
	f, err := d.Enroll(t.Context(), ann, cofferdam.EnrollRequest{Kind: Passkey, Name: "key", Credential: a.Register(t, options)}, Presence{}, "")
	if err != nil || f.Kind != Passkey {
		t.Fatalf("%+v %v", f, err)
	}
	return p, a, ann, c
}

func (p *Passkeys) prove(t *testing.T, who Caller, answer []byte, about cofferdam.Digest) (Presence, error) {
	t.Helper()
	return p.d.Prove(t.Context(), cofferdam.PersonID(who.Member), cofferdam.Proof{Kind: Passkey, Assertion: answer}, about)
}

func (p *Passkeys) ask(t *testing.T, who Caller, about cofferdam.Digest) []byte {
	t.Helper()
	options, err := p.Ask(t.Context(), cofferdam.PersonID(who.Member), about)
	if err != nil {
		t.Fatal(err)
	}
	return options
}

// A passkey signs a challenge that has in it what is approved, and that alone is
// what the presence counts for.
func TestPasskey(t *testing.T) {
	p, a, ann, c := keyed(t)
	options := p.ask(t, ann, about)
	var o struct {
		PublicKey struct{ Challenge, UserVerification string } `json:"publicKey"`
	}
	sum := sha256.Sum256([]byte(about))
	if err := json.Unmarshal(options, &o); err != nil || o.PublicKey.UserVerification != "required" {
		t.Fatalf("%s %v", options, err)
	}
	if raw, err := b64.DecodeString(o.PublicKey.Challenge); err != nil || len(raw) != 64 || string(raw[32:]) != string(sum[:]) {
		t.Errorf("the challenge is not about what is approved: %s", o.PublicKey.Challenge)
	}
	answer := a.Sign(t, options)
	seen, err := p.prove(t, ann, answer, about)
	if err != nil || !seen.Counts(cofferdam.PersonID(ann.Member), about, c.now) || seen.Counts(cofferdam.PersonID(ann.Member), "sha256:other", c.now) {
		t.Fatalf("%+v %v", seen, err)
	}
	if _, err := p.prove(t, ann, answer, about); err == nil {
		t.Error("an assertion counts twice")
	}
	if _, err := p.prove(t, ann, a.Sign(t, p.ask(t, ann, about)), about); err != nil {
		t.Errorf("the next one: %v", err)
	}
}

func TestPasskeysThatDoNotHold(t *testing.T) {
	for name, c := range map[string]struct {
		change func(a *authenticator)
		about  cofferdam.Digest // that the proof is given for
		late   bool
		cut    bool
	}{
		"about something else": {about: "sha256:other"},
		"of a page elsewhere":  {change: func(a *authenticator) { a.Origin = "https://evil.example.com" }},
		"of another site":      {change: func(a *authenticator) { a.Host = "evil.example.com" }},
		"nobody was verified":  {change: func(a *authenticator) { a.Flags = 0x01 }},
		"nobody was there":     {change: func(a *authenticator) { a.Flags = 0x04 }},
		"another key":          {change: func(a *authenticator) { a.Key, _ = ecdsa.GenerateKey(elliptic.P256(), rand.Reader) }},
		"another id":           {change: func(a *authenticator) { a.ID = random(16) }},
		"a copy that is old":   {change: func(a *authenticator) { a.Count = 0 }},
		"late":                 {late: true},
		"cut":                  {cut: true},
	} {
		t.Run(name, func(t *testing.T) {
			p, a, ann, clock := keyed(t)
			if _, err := p.prove(t, ann, a.Sign(t, p.ask(t, ann, about)), about); err != nil { // so that the counter is not the first
				t.Fatal(err)
			}
			options := p.ask(t, ann, about)
			if c.change != nil {
				c.change(a)
			}
			answer := a.Sign(t, options)
			if c.cut {
				answer = answer[:len(answer)/2]
			}
			if c.late {
				clock.now = clock.now.Add(PasskeyLife)
			}
			given := about
			if c.about != "" {
				given = c.about
			}
			if seen, err := p.prove(t, ann, answer, given); cofferdam.KindOf(err) != cofferdam.Forbidden || seen.How != "" {
				t.Errorf("%+v %v", seen, err)
			}
		})
	}
	p, a, ann, _ := keyed(t)
	if _, err := p.prove(t, ann, a.Sign(t, p.ask(t, ann, about)), ""); err == nil {
		t.Error("about nothing")
	}
	// An answer to a registration that nobody began, and one that is used again.
	options, err := p.Register(t.Context(), ann)
	if err != nil {
		t.Fatal(err)
	}
	two := newAuthenticator(t)
	answer := two.Register(t, options)
	seen := Presence{Person: cofferdam.PersonID(ann.Member), How: Passkey, About: about, Until: p.d.o.Now().Add(PresentFor)}
	if _, err := p.d.Enroll(t.Context(), ann, cofferdam.EnrollRequest{Kind: Passkey, Credential: answer}, Presence{}, about); cofferdam.KindOf(err) != cofferdam.Forbidden {
		t.Errorf("a second one without a proof: %v", err)
	}
	if _, err := p.d.Enroll(t.Context(), ann, cofferdam.EnrollRequest{Kind: Passkey, Credential: answer}, seen, about); err != nil {
		t.Error(err)
	}
	if _, err := p.d.Enroll(t.Context(), ann, cofferdam.EnrollRequest{Kind: Passkey, Credential: answer}, seen, about); err == nil || !strings.Contains(err.Error(), "begin again") {
		t.Errorf("registered twice: %v", err)
	}
	if _, err := p.prove(t, ann, two.Sign(t, p.ask(t, ann, about)), about); err != nil {
		t.Errorf("the second key: %v", err)
	}
	ann.Principal.Kind = cofferdam.Service
	if _, err := p.Register(t.Context(), ann); cofferdam.KindOf(err) != cofferdam.Forbidden {
		t.Errorf("a program registers: %v", err)
	}
}
