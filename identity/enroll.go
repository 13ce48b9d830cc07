package identity

import (
	"context"
	"encoding/base32"
	"fmt"
	"strings"
	"time"

	"github.com/pquerna/otp"
	"github.com/pquerna/otp/totp"

	"cofferdam"
)

// maxFactors bounds the factors of one person.
const maxFactors = 16

// NewSecret returns a fresh secret for codes, and the otpauth address by which an
// application takes it.
func NewSecret(issuer, account string) (secret, address string, err error) {
	key, err := totp.Generate(totp.GenerateOpts{Issuer: issuer, AccountName: account, Period: step, Digits: otp.DigitsSix, SecretSize: 20})
	if err != nil {
		return "", "", err
	}
	return key.Secret(), key.URL(), nil
}

// FreshFor is how long after signing in at a provider somebody who has nothing to
// prove by may set up the first thing. Source: docs/SPECIFICATION.md, "Identity".
const FreshFor = 5 * time.Minute

// fresh refuses a login that is not of just now to somebody who has nothing to prove
// by. Whoever came by the login would else make themselves what proves them.
func fresh(op string, who Caller, now time.Time) error {
	if who.Signed.IsZero() || now.Sub(who.Signed) < FreshFor {
		return nil
	}
	return &cofferdam.Error{
		Op: op, Kind: cofferdam.Forbidden, Subject: "first factor", Reason: fmt.Sprintf("it needs a login of the last %s", FreshFor), Hint: "sign in again with cofferdam login --oidc, and add it at once",
	}
}

// Enroll gives a person a factor. The first one needs no proof but that the
// caller is the person, and has just signed in if they did; each later one needs a
// proof by one they have, for the digest about. It is on record before it counts.
func (d *Directory) Enroll(ctx context.Context, who Caller, e cofferdam.EnrollRequest, p Presence, about cofferdam.Digest) (Factor, error) {
	const op = "identity.Enroll"
	person := cofferdam.PersonID(who.Member)
	have, err := d.o.Store.Factors(ctx, person)
	if err != nil {
		return Factor{}, err
	}
	now := d.o.Now().UTC()
	switch {
	case !who.Principal.IsPerson():
		return Factor{}, &cofferdam.Error{Op: op, Kind: cofferdam.Forbidden, Subject: who.Principal.String(), Reason: "only people prove that they are there"}
	case len(have) >= maxFactors:
		return Factor{}, &cofferdam.Error{Op: op, Kind: cofferdam.Exhausted, Subject: "factors", Reason: fmt.Sprintf("you have %d already", maxFactors), Hint: "remove one first"}
	case len(have) > 0 && !p.Counts(person, about, now):
		return Factor{}, &cofferdam.Error{Op: op, Kind: cofferdam.Forbidden, Subject: "another factor", Reason: "it needs a proof by one that you have", Hint: "give your password, a fresh code or your passkey"}
	case len(e.Name) > 64:
		return Factor{}, invalid(op, "name", "is longer than 64 bytes")
	}
	if len(have) == 0 {
		if err := fresh(op, who, d.o.Now()); err != nil {
			return Factor{}, err
		}
	}
	f := Factor{ID: cofferdam.NewID("f"), Person: person, Kind: e.Kind, Name: e.Name, Created: now}
	if f.Data, f.Step, err = d.material(ctx, who, e, f.ID, now); err != nil {
		return Factor{}, err
	}
	if err := d.record(ctx, who, cofferdam.EventFactorAdd, map[string]string{"kind": f.Kind, "factor": f.ID}); err != nil {
		return Factor{}, err
	}
	return f, d.o.Store.AddFactor(ctx, f, len(have)) // two at the same moment are not both the first
}

// minSecret is the least that a secret for codes has, in bytes. Source: RFC 4226,
// section 4, R6.
const minSecret = 16

// material is what is kept of an enrollment under an id, and which step the first code was of:
// it has been used by that.
func (d *Directory) material(ctx context.Context, who Caller, e cofferdam.EnrollRequest, id string, now time.Time) (data []byte, spent int64, err error) {
	const op = "identity.Enroll"
	switch e.Kind {
	case Password:
		data, err = d.HashPassword(ctx, e.Password)
		return data, 0, err
	case TOTP:
		if d.o.Sealer == nil {
			return nil, 0, invalid(op, "factor", "this server has no vault, in which the secret of a totp would be kept")
		}
		secret, err := base32.StdEncoding.WithPadding(base32.NoPadding).DecodeString(strings.TrimRight(e.Secret, "="))
		if err != nil || len(secret) < minSecret {
			return nil, 0, invalid(op, "secret", fmt.Sprintf("it is not base32 of %d bytes or more", minSecret))
		}
		at, ok, err := codeAt(e.Secret, e.Code, now)
		if err != nil || !ok {
			return nil, 0, invalid(op, "code", "it is not the one of this secret now; look at the clocks of both devices")
		}
		data, err = d.o.Sealer.Seal(id, []byte(e.Secret))
		return data, at, err
	}
	if e.Kind == Passkey && d.passkeys != nil {
		if len(e.Credential) == 0 { // our own page has it
			e.Credential, _ = d.passkeys.Answered(who, "")
		}
		data, err = d.passkeys.made(ctx, who, e.Credential)
		return data, 0, err
	}
	return nil, 0, invalid(op, "factor", fmt.Sprintf("%.40q is no password, no totp, and no passkey of a server that has them", e.Kind))
}

// Unenroll takes a factor away, with a proof by one that the person has. The last
// one stays: without it nobody could tell the person from a program of theirs.
func (d *Directory) Unenroll(ctx context.Context, who Caller, id string, p Presence, about cofferdam.Digest) error {
	const op = "identity.Unenroll"
	person := cofferdam.PersonID(who.Member)
	have, err := d.o.Store.Factors(ctx, person)
	switch {
	case err != nil:
		return err
	case !p.Counts(person, about, d.o.Now().UTC()):
		return &cofferdam.Error{Op: op, Kind: cofferdam.Forbidden, Subject: "factor", Reason: "taking one away needs a proof", Hint: "give your password, a fresh code or your passkey"}
	case len(have) < 2:
		return &cofferdam.Error{Op: op, Kind: cofferdam.Conflict, Subject: "factor", Reason: "it is the last one", Hint: "add another first"}
	}
	if err := d.record(ctx, who, cofferdam.EventFactorRemove, map[string]string{"factor": id}); err != nil {
		return err
	}
	return d.o.Store.RemoveFactor(ctx, person, id)
}

// Factors lists those of a person, without what they hold.
func (d *Directory) Factors(ctx context.Context, person cofferdam.PersonID) ([]Factor, error) {
	return d.o.Store.Factors(ctx, person)
}
