package identity

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"sync"
	"time"

	"github.com/go-webauthn/webauthn/protocol"
	"github.com/go-webauthn/webauthn/webauthn"

	"cofferdam"
)

// Bounds of passkeys. Source: docs/SPECIFICATION.md, "Identity".
const (
	PasskeyLife  = 5 * time.Minute // of a challenge
	maxChallenge = 1024            // of all people together
	ownChallenge = 4               // of one person
	maxAnswer    = 64 << 10        // bytes of a browser's answer
)

// Passkeys registers passkeys and takes assertions of them. A challenge is chance
// followed by the SHA-256 of what it is about, so that the key signs that and
// nothing else; it counts once. Safe for concurrent use.
type Passkeys struct {
	w      *webauthn.WebAuthn
	d      *Directory
	origin string // where the page is that asks for them

	mu   sync.Mutex
	open map[purpose]*challenge // guarded by mu
}

// purpose is what a challenge is for.
type purpose struct {
	person cofferdam.PersonID
	about  cofferdam.Digest  // "" for a registration
	by     cofferdam.TokenID // of a registration: what one token had a browser make, no other enrolls
}

// purposeOf is that of a caller.
func purposeOf(who Caller, about cofferdam.Digest) purpose {
	of := purpose{person: cofferdam.PersonID(who.Member), about: about}
	if about == "" {
		of.by = who.Token
	}
	return of
}

type challenge struct {
	session webauthn.SessionData
	ends    time.Time
	errand  // of our own page
}

// UsePasskeys lets people of d have passkeys for a site: host is its name, origins
// the addresses that its pages come from. It is called before d is used.
func (d *Directory) UsePasskeys(host string, origins ...string) (*Passkeys, error) {
	if len(origins) == 0 {
		return nil, invalid("identity.UsePasskeys", "site of passkeys", "it has no origin")
	}
	w, err := webauthn.New(&webauthn.Config{
		RPID: host, RPDisplayName: "Cofferdam", RPOrigins: origins, AttestationPreference: protocol.PreferNoAttestation,
		AuthenticatorSelection: protocol.AuthenticatorSelection{ResidentKey: protocol.ResidentKeyRequirementPreferred, UserVerification: protocol.VerificationRequired},
	})
	if err != nil {
		return nil, &cofferdam.Error{Op: "identity.UsePasskeys", Kind: cofferdam.Invalid, Subject: "site of passkeys", Reason: "host or origins are none", Hint: "give the host's name and whole origins", Err: err}
	}
	d.passkeys = &Passkeys{w: w, d: d, origin: origins[0], open: map[purpose]*challenge{}}
	return d.passkeys, nil
}

// holder is a person as package webauthn has one.
type holder struct {
	id   cofferdam.PersonID
	name string
	keys []webauthn.Credential
}

func (h holder) WebAuthnID() []byte                         { return []byte(h.id) }
func (h holder) WebAuthnName() string                       { return h.name }
func (h holder) WebAuthnDisplayName() string                { return h.name }
func (h holder) WebAuthnCredentials() []webauthn.Credential { return h.keys }

// holder reads the passkeys of a person.
func (p *Passkeys) holder(ctx context.Context, id cofferdam.PersonID, name string) (holder, error) {
	h := holder{id: id, name: name}
	factors, err := p.d.o.Store.Factors(ctx, id)
	for _, f := range factors {
		var key webauthn.Credential
		if f.Kind == Passkey && json.Unmarshal(f.Data, &key) == nil {
			h.keys = append(h.keys, key)
		}
	}
	return h, err
}

// keep remembers a challenge. Of one person the oldest gives way.
func (p *Passkeys) keep(of purpose, c *challenge) error {
	now := p.d.o.Now()
	c.ends = now.Add(PasskeyLife)
	p.mu.Lock()
	defer p.mu.Unlock()
	own, oldest := 0, of
	for k, old := range p.open {
		switch {
		case !now.Before(old.ends):
			delete(p.open, k)
		case k.person == of.person && k != of:
			if own++; oldest == of || old.ends.Before(p.open[oldest].ends) {
				oldest = k
			}
		}
	}
	if own >= ownChallenge {
		delete(p.open, oldest)
	}
	if _, again := p.open[of]; !again && len(p.open) >= maxChallenge {
		return &cofferdam.Error{Op: "identity.Passkeys", Kind: cofferdam.Exhausted, Subject: "passkeys", Reason: "too many people are at it", Hint: "try again in some minutes"}
	}
	p.open[of] = c
	return nil
}

// take ends the challenge of a person for one thing, whatever comes of it.
func (p *Passkeys) take(of purpose) (webauthn.SessionData, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.open[of]
	delete(p.open, of)
	if c == nil || !p.d.o.Now().Before(c.ends) {
		return webauthn.SessionData{}, false
	}
	return c.session, true
}

// Register returns what a browser is given to make a passkey of the caller. What
// it answers goes to Enroll, as the credential of the request.
func (p *Passkeys) Register(ctx context.Context, who Caller) ([]byte, error) {
	id := cofferdam.PersonID(who.Member)
	if !who.Principal.IsPerson() {
		return nil, &cofferdam.Error{Op: "identity.Register", Kind: cofferdam.Forbidden, Subject: who.Principal.String(), Reason: "only people have passkeys", Hint: "give the program a token"}
	}
	h, err := p.holder(ctx, id, who.Principal.Name)
	if err != nil {
		return nil, err
	}
	options, session, err := p.w.BeginRegistration(h, webauthn.WithExclusions(webauthn.Credentials(h.keys).CredentialDescriptors()))
	if err != nil {
		return nil, err
	}
	if err := p.keep(purposeOf(who, ""), &challenge{session: *session}); err != nil {
		return nil, err
	}
	return json.Marshal(options)
}

// made checks what a browser answered to Register and returns what is kept of it.
func (p *Passkeys) made(ctx context.Context, who Caller, answer []byte) ([]byte, error) {
	no := invalid("identity.Enroll", "passkey", "the browser's answer does not hold; begin again")
	id := cofferdam.PersonID(who.Member)
	session, ok := p.take(purposeOf(who, ""))
	if !ok {
		return nil, no
	}
	parsed, err := protocol.ParseCredentialCreationResponseBytes(answer)
	if err != nil {
		return nil, no
	}
	h, err := p.holder(ctx, id, who.Principal.Name)
	if err != nil {
		return nil, err
	}
	key, err := p.w.CreateCredential(h, session, parsed)
	if err != nil {
		return nil, no
	}
	return json.Marshal(key)
}

// Ask returns what a browser is given to have a person's passkey sign for about.
// What it answers is the assertion of a Proof.
func (p *Passkeys) Ask(ctx context.Context, person cofferdam.PersonID, about cofferdam.Digest) ([]byte, error) {
	h, err := p.holder(ctx, person, "")
	if err != nil {
		return nil, err
	}
	if len(h.keys) == 0 || about == "" {
		return nil, &cofferdam.Error{Op: "identity.Ask", Kind: cofferdam.NotFound, Subject: "passkey", Reason: "you have none", Hint: "give your password or a code"}
	}
	sum := sha256.Sum256([]byte(about))
	options, session, err := p.w.BeginLogin(h, webauthn.WithChallenge(append(random(32), sum[:]...)))
	if err != nil {
		return nil, err
	}
	if err := p.keep(purpose{person: person, about: about}, &challenge{session: *session}); err != nil {
		return nil, err
	}
	return json.Marshal(options)
}

// holds says whether an assertion is one of factor f about what it was asked for.
func (p *Passkeys) holds(ctx context.Context, f Factor, answer []byte, about cofferdam.Digest) (bool, error) {
	session, ok := p.take(purpose{person: f.Person, about: about})
	if !ok {
		return false, nil
	}
	if about == "" { // a registration proves nothing
		return false, nil
	}
	sum := sha256.Sum256([]byte(about))
	raw, err := base64.RawURLEncoding.DecodeString(session.Challenge)
	if err != nil || len(raw) != 64 || string(raw[32:]) != string(sum[:]) {
		return false, nil
	}
	parsed, err := protocol.ParseCredentialRequestResponseBytes(answer)
	if err != nil {
		return false, nil
	}
	h, err := p.holder(ctx, f.Person, "")
	if err != nil {
		return false, err
	}
	key, err := p.w.ValidateLogin(h, session, parsed)
	if err != nil || key.Authenticator.CloneWarning { // it counts backwards: somebody has a copy
		return false, nil
	}
	factors, err := p.d.o.Store.Factors(ctx, f.Person)
	if err != nil {
		return false, err
	}
	for _, f := range factors {
		var old webauthn.Credential
		if f.Kind != Passkey || json.Unmarshal(f.Data, &old) != nil || string(old.ID) != string(key.ID) {
			continue
		}
		data, err := json.Marshal(key)
		if err != nil {
			return false, err
		}
		return true, p.d.o.Store.ChangeFactor(ctx, f.ID, data)
	}
	return false, nil
}
