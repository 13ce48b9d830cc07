package identity

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"regexp"
	"slices"
	"time"

	"cofferdam"
)

// Bounds of tokens. Source: docs/SPECIFICATION.md, "Identity".
const (
	DefaultLife = 30 * 24 * time.Hour
	MaxLife     = 365 * 24 * time.Hour
	LoginLife   = 12 * time.Hour
	maxVerbs    = 64
)

// tokenPrefix lets a scanner of secrets know a token of ours.
const tokenPrefix = "cft_"

// tokenText is a token as it is handed out: 32 bytes of chance.
var tokenText = regexp.MustCompile(`^cft_[A-Za-z0-9_-]{43}$`)

// Token is a bearer token as it is kept: without the token.
type Token struct {
	Schema       string                   `json:"schema"` // cofferdam/token/v1
	ID           cofferdam.TokenID        `json:"id"`
	Hash         string                   `json:"-"` // hexadecimal SHA-256 of the text
	Organization cofferdam.OrganizationID `json:"organization"`
	Project      cofferdam.ProjectID      `json:"project,omitempty"` // good for this one alone; "": all that its holder is in
	Holder       cofferdam.Principal      `json:"holder"`
	Member       string                   `json:"member"` // id of the holder
	Most         Role                     `json:"role"`   // at most; the holder's own role counts at each use
	Verbs        []string                 `json:"verbs,omitempty"`
	Login        bool                     `json:"login"` // of a person who signed in
	By           cofferdam.Principal      `json:"by"`
	Created      time.Time                `json:"created"`
	Expires      time.Time                `json:"expires"`
	Revoked      time.Time                `json:"revoked,omitzero"`
	Used         time.Time                `json:"used,omitzero"` // to the minute
}

// Issue makes a token as t describes it and keeps it. The text is returned once
// and kept nowhere.
func (d *Directory) Issue(ctx context.Context, t Token, life time.Duration) (Token, string, error) {
	t, text, err := d.token(t, life)
	if err != nil {
		return t, "", err
	}
	return t, text, d.o.Store.AddToken(ctx, t)
}

// token makes one as t describes it, which counts once it is kept.
func (d *Directory) token(t Token, life time.Duration) (Token, string, error) {
	const op = "identity.Issue"
	switch {
	case life == 0:
		life = DefaultLife
	case life < time.Minute || life > MaxLife:
		return t, "", invalid(op, "token", fmt.Sprintf("a token is good for a minute to a year, not for %s", life))
	}
	switch {
	case !t.Most.Known():
		return t, "", invalid(op, "token", fmt.Sprintf("%.40q is no role", t.Most))
	case len(t.Verbs) > maxVerbs:
		return t, "", invalid(op, "token", fmt.Sprintf("it names more than %d verbs", maxVerbs))
	}
	text := tokenPrefix + base64.RawURLEncoding.EncodeToString(random(32))
	t.Schema, t.ID, t.Hash = "cofferdam/token/v1", cofferdam.TokenID(cofferdam.NewID("k")), hash(text)
	t.Created = d.o.Now().UTC()
	t.Expires = t.Created.Add(life)
	return t, text, nil
}

// Bearer returns who holds the token text. It is the same Unauthenticated error
// for one that never was, has expired, was revoked, or whose holder is disabled.
func (d *Directory) Bearer(ctx context.Context, text string) (Caller, error) {
	none := &cofferdam.Error{
		Op: "identity.Bearer", Kind: cofferdam.Unauthenticated, Subject: "token", Reason: "it is not one that counts here",
		Hint: "sign in with cofferdam login, or ask an owner for a token",
	}
	if !tokenText.MatchString(text) {
		return Caller{}, none
	}
	t, err := d.o.Store.TokenByHash(ctx, hash(text)) // the look-up is by hash: its time says nothing of the text
	if err != nil && cofferdam.KindOf(err) != cofferdam.NotFound {
		return Caller{}, err
	}
	now := d.o.Now().UTC()
	if err != nil || !t.Revoked.IsZero() || !now.Before(t.Expires) {
		return Caller{}, none
	}
	c, err := d.member(ctx, t.Organization, t.Holder, t.Member)
	if err != nil {
		if cofferdam.KindOf(err) == cofferdam.NotFound {
			return Caller{}, none
		}
		return Caller{}, err
	}
	c.Most, c.Fixed, c.Verbs, c.Token = t.Most, t.Project, slices.Clone(t.Verbs), t.ID
	if t.Login {
		c.Signed = t.Created
	}
	if now.Truncate(time.Minute).After(t.Used) {
		err = d.o.Store.UsedToken(ctx, t.ID, now.Truncate(time.Minute))
	}
	return c, err
}

// NewToken makes a token as the caller may: of themselves, or of a service account.
func (d *Directory) NewToken(ctx context.Context, who Caller, t Token, life time.Duration) (Token, string, error) {
	t.Organization, t.By = who.Organization, who.Principal
	if err := d.record(ctx, who, cofferdam.EventTokenIssue, map[string]string{"holder": t.Holder.String(), "role": string(t.Most), "project": string(t.Project)}); err != nil {
		return t, "", err
	}
	return d.Issue(ctx, t, life)
}

// Tokens lists those of an organisation, the newest first.
func (d *Directory) Tokens(ctx context.Context, o cofferdam.OrganizationID) ([]Token, error) {
	return d.o.Store.Tokens(ctx, o)
}

// Token finds one of an organisation by its whole id.
func (d *Directory) Token(ctx context.Context, o cofferdam.OrganizationID, id cofferdam.TokenID) (Token, error) {
	return d.o.Store.Token(ctx, o, id)
}

// Revoke ends a token.
func (d *Directory) Revoke(ctx context.Context, who Caller, id cofferdam.TokenID) error {
	if err := d.record(ctx, who, cofferdam.EventTokenRevoke, map[string]string{"token": string(id)}); err != nil {
		return err
	}
	return d.o.Store.RevokeToken(ctx, who.Organization, id, d.o.Now().UTC())
}

func hash(text string) string {
	h := sha256.Sum256([]byte(text))
	return hex.EncodeToString(h[:])
}

func random(n int) []byte {
	b := make([]byte, n)
	rand.Read(b) // never fails since Go 1.24
	return b
}

func invalid(op, subject, reason string) error {
	return &cofferdam.Error{Op: op, Kind: cofferdam.Invalid, Subject: subject, Reason: reason}
}
