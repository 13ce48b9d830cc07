package identity

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"cofferdam"
)

// WorkloadLife is how long a session's token is good for.
// Source: docs/SPECIFICATION.md, "Identity".
const WorkloadLife = 5 * time.Minute

// Workload says who a session is, to whoever trusts this installation's keys:
// a JWT that is bound to the session and to the wire it asked on.
type Workload struct {
	Scope   cofferdam.Scope
	Task    cofferdam.TaskID
	Session cofferdam.SessionID
	Wire    string // random id of the wire; a token is worth nothing on another one
}

// claims are those of the token; the names are RFC 7519's and ours.
type claims struct {
	jwt.Claims
	Organization cofferdam.OrganizationID `json:"organization"`
	Project      cofferdam.ProjectID      `json:"project"`
	Task         cofferdam.TaskID         `json:"task"`
	Wire         string                   `json:"wire"`
}

// Issuer signs and checks the tokens of sessions. Safe for concurrent use.
type Issuer struct {
	name   string // iss
	key    ed25519.PrivateKey
	id     string
	signer jose.Signer
	now    func() time.Time
}

// NewIssuer returns an Issuer of this name, an address or an id of the
// installation, with its key.
func NewIssuer(name string, key ed25519.PrivateKey, now func() time.Time) (*Issuer, error) {
	sum := sha256.Sum256(key.Public().(ed25519.PublicKey))
	i := &Issuer{name: name, key: key, id: base64.RawURLEncoding.EncodeToString(sum[:12]), now: now}
	if i.now == nil {
		i.now = time.Now
	}
	var err error
	i.signer, err = jose.NewSigner(jose.SigningKey{Algorithm: jose.EdDSA, Key: jose.JSONWebKey{Key: key, KeyID: i.id}}, (&jose.SignerOptions{}).WithType("JWT"))
	return i, err
}

// Sign returns a token of w for the audience.
func (i *Issuer) Sign(w Workload, audience string) (string, time.Time, error) {
	now := i.now().UTC()
	ends := now.Add(WorkloadLife)
	text, err := jwt.Signed(i.signer).Claims(claims{
		Claims: jwt.Claims{
			Issuer: i.name, Subject: string(w.Session), Audience: jwt.Audience{audience}, ID: cofferdam.NewID("j"),
			IssuedAt: jwt.NewNumericDate(now), NotBefore: jwt.NewNumericDate(now), Expiry: jwt.NewNumericDate(ends),
		},
		Organization: w.Scope.Organization, Project: w.Scope.Project, Task: w.Task, Wire: w.Wire,
	}).Serialize()
	return text, ends, err
}

// Check says whose token text is, when it comes in on wire. It is an
// Unauthenticated error without more for whatever does not hold.
func (i *Issuer) Check(text, audience, wire string) (Workload, error) {
	none := &cofferdam.Error{Op: "identity.Check", Kind: cofferdam.Unauthenticated, Subject: "session's token", Reason: "it is not one that counts here", Hint: "ask for a new one on this wire"}
	if len(text) > 8<<10 || wire == "" {
		return Workload{}, none
	}
	token, err := jwt.ParseSigned(text, []jose.SignatureAlgorithm{jose.EdDSA})
	if err != nil {
		return Workload{}, none
	}
	var c claims
	if err := token.Claims(i.key.Public(), &c); err != nil {
		return Workload{}, none
	}
	err = c.ValidateWithLeeway(jwt.Expected{Issuer: i.name, AnyAudience: jwt.Audience{audience}, Time: i.now()}, 0)
	if err != nil || c.Wire != wire || c.Subject == "" || c.Expiry == nil {
		return Workload{}, none
	}
	return Workload{
		Scope: cofferdam.Scope{Organization: c.Organization, Project: c.Project}, Task: c.Task, Session: cofferdam.SessionID(c.Subject), Wire: c.Wire,
	}, nil
}

// Keys returns the public keys as a JWKS document, for whoever checks a token.
func (i *Issuer) Keys() []byte {
	b, err := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: i.key.Public(), KeyID: i.id, Algorithm: string(jose.EdDSA), Use: "sig"}}})
	if err != nil {
		panic("identity: a public key always marshals")
	}
	return b
}
