package identity

import (
	"cmp"
	"context"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/pquerna/otp"
	"github.com/pquerna/otp/totp"
	"golang.org/x/crypto/argon2"

	"cofferdam"
)

// Kinds of factor.
const (
	Password = "password"
	TOTP     = "totp"
	Passkey  = "passkey"
)

// Bounds of proofs. Source: docs/SPECIFICATION.md, "Identity".
const (
	MinPassword = 12   // bytes
	MaxPassword = 1024 // bytes
	MaxWrong    = 5    // proofs within Lock, of one source
	MaxGuesses  = 50   // proofs for one person within Lock, of all who are not known
	Lock        = 15 * time.Minute
	PresentFor  = 60 * time.Second
)

// Cost of a password's hash. Source: RFC 9106, section 4, the second
// recommendation: 64 MiB, three passes.
const (
	argonTime    = 3
	argonMemory  = 64 << 10 // KiB
	argonThreads = 4
	argonKey     = 32
)

// Factor is something by which a person proves who they are, as it is kept.
type Factor struct {
	ID      string             `json:"id"`
	Person  cofferdam.PersonID `json:"person"`
	Kind    string             `json:"kind"`
	Name    string             `json:"name"`
	Data    []byte             `json:"-"` // password: argon2id text; totp: secret, as it is typed, sealed under the id; passkey: credential
	Step    int64              `json:"-"` // of a totp that is added: the step that its first code has used
	Created time.Time          `json:"created"`
}

// Presence says that a person was there for one thing, a moment ago.
type Presence struct {
	Person cofferdam.PersonID
	How    string // the kind of factor
	About  cofferdam.Digest
	Until  time.Time
}

// Counts says whether p is good for about at the time now.
func (p Presence) Counts(person cofferdam.PersonID, about cofferdam.Digest, now time.Time) bool {
	return p.How != "" && p.Person == person && p.About == about && about != "" && now.Before(p.Until)
}

// Prove takes a proof that the person is there, for about alone; who calls is the
// person already, or a program of theirs. Wrong ones are counted: after MaxWrong
// of them none counts until Lock is over.
func (d *Directory) Prove(ctx context.Context, person cofferdam.PersonID, p cofferdam.Proof, about cofferdam.Digest) (Presence, error) {
	return d.prove(ctx, person, "", about, p)
}

// prove is Prove for proofs that have to hold all of them. They are one attempt:
// a right password must not buy another guess at the code. Who is not known yet
// has a source: what they guess wrong locks that one out and not the person.
func (d *Directory) prove(ctx context.Context, person cofferdam.PersonID, source string, about cofferdam.Digest, proofs ...cofferdam.Proof) (Presence, error) {
	now := d.o.Now().UTC()
	no := &cofferdam.Error{
		Op: "identity.Prove", Kind: cofferdam.Forbidden, Subject: "proof that you are there", Reason: "it does not hold",
		Hint: "give your password, a fresh code or your passkey; cofferdam login --enroll sets one up",
	}
	wrong, err := d.o.Store.Attempt(ctx, person, source, false, now, now.Add(-Lock)) // counted before it is looked at
	if err != nil {
		return Presence{}, err
	}
	if wrong > MaxWrong {
		no.Reason = fmt.Sprintf("%d wrong ones were given within %s", MaxWrong, Lock)
		no.Hint = "wait, and look whether somebody else tries"
		_, err := d.samePassword(ctx, nobodys, "") // the same work, so that it does not say whose account is locked
		return Presence{}, cmp.Or(err, error(no))
	}
	factors, err := d.o.Store.Factors(ctx, person)
	if err != nil {
		return Presence{}, err
	}
	for _, p := range proofs {
		held, err := d.held(ctx, factors, p, about, now)
		if err != nil {
			return Presence{}, err
		}
		if !held {
			return Presence{}, no
		}
	}
	if _, err := d.o.Store.Attempt(ctx, person, source, true, now, now); err != nil {
		return Presence{}, err
	}
	return Presence{Person: person, How: proofs[0].Kind, About: about, Until: now.Add(PresentFor)}, nil
}

// held says whether one of the factors is what p proves.
func (d *Directory) held(ctx context.Context, factors []Factor, p cofferdam.Proof, about cofferdam.Digest, now time.Time) (bool, error) {
	held, tried := false, false
	var broken error // of one of them: another may hold
	for _, f := range factors {
		if f.Kind != p.Kind {
			continue
		}
		tried = true
		ok, err := d.holds(ctx, f, p, about, now)
		held, broken = held || ok, errors.Join(broken, err)
	}
	if !held && broken != nil {
		return false, broken
	}
	if p.Kind == Password && !tried { // the same work, so that it does not say who has one
		_, err := d.samePassword(ctx, nobodys, p.Password)
		return false, err
	}
	return held, nil
}

func (d *Directory) holds(ctx context.Context, f Factor, p cofferdam.Proof, about cofferdam.Digest, now time.Time) (bool, error) {
	switch f.Kind {
	case Password:
		return d.samePassword(ctx, f.Data, p.Password)
	case TOTP:
		return d.sameCode(ctx, f, p.Code, now)
	}
	if f.Kind == Passkey && d.passkeys != nil {
		return d.passkeys.holds(ctx, f, p.Assertion, about)
	}
	return false, nil
}

// HashPassword returns the text by which a password is kept.
func (d *Directory) HashPassword(ctx context.Context, password string) ([]byte, error) {
	if len(password) < MinPassword || len(password) > MaxPassword {
		return nil, invalid("identity.HashPassword", "password", fmt.Sprintf("it has %d to %d bytes", MinPassword, MaxPassword))
	}
	salt := random(16)
	key, err := d.argon(ctx, password, salt)
	if err != nil {
		return nil, err
	}
	enc := base64.RawStdEncoding
	return []byte(fmt.Sprintf("$argon2id$v=%d$m=%d,t=%d,p=%d$%s$%s", argon2.Version, argonMemory, argonTime, argonThreads, enc.EncodeToString(salt), enc.EncodeToString(key))), nil
}

// argon hashes, a few at a time: each takes its memory. Who waits is served in
// turn with the others.
func (d *Directory) argon(ctx context.Context, password string, salt []byte) ([]byte, error) {
	if err := d.hashing.enter(ctx); err != nil {
		return nil, err
	}
	defer d.hashing.leave()
	return argon2.IDKey([]byte(password), salt, argonTime, argonMemory, argonThreads, argonKey), nil
}

func (d *Directory) samePassword(ctx context.Context, kept []byte, password string) (bool, error) {
	parts := strings.Split(string(kept), "$")
	if len(parts) != 6 || parts[1] != "argon2id" || len(password) > MaxPassword {
		return false, nil
	}
	salt, err := base64.RawStdEncoding.DecodeString(parts[4])
	if err != nil {
		return false, nil
	}
	want, err := base64.RawStdEncoding.DecodeString(parts[5])
	if err != nil || len(want) != argonKey {
		return false, nil
	}
	got, err := d.argon(ctx, password, salt)
	return err == nil && subtle.ConstantTimeCompare(got, want) == 1, err
}

// plainSecret is a secret for codes as it is typed. What is sealed is none.
var plainSecret = regexp.MustCompile(`^[A-Z2-7\r\n]+[=\r\n]*$`)

// SealCodes seals the secrets for codes that an earlier server kept as they were
// typed. A server calls it before it serves, and what a kill has cut off is done then.
func SealCodes(ctx context.Context, in Store, by Sealer) error {
	all, err := in.CodeFactors(ctx)
	if err != nil {
		return err
	}
	for _, f := range all {
		if !plainSecret.Match(f.Data) {
			continue
		}
		sealed, err := by.Seal(f.ID, f.Data)
		if err != nil {
			return err
		}
		if err := in.SealFactor(ctx, f.ID, sealed); err != nil {
			return err
		}
	}
	return in.Forget(ctx)
}

// step is how long a code is good for. Source: RFC 6238, section 5.2.
const step = 30

// sameCode takes a code of this step or of the one before or after it, once.
func (d *Directory) sameCode(ctx context.Context, f Factor, code string, now time.Time) (bool, error) {
	if d.o.Sealer == nil {
		return false, nil
	}
	secret, err := d.o.Sealer.Unseal(f.ID, f.Data)
	if err != nil {
		return false, err
	}
	n, ok, err := codeAt(string(secret), code, now)
	if err != nil || !ok {
		return false, err
	}
	err = d.o.Store.SpendStep(ctx, f.ID, n)
	if cofferdam.KindOf(err) == cofferdam.Conflict && err != nil {
		return false, nil // seen before
	}
	return err == nil, err
}

// codeAt says of which step a code is: this one, the one before or the one after it.
func codeAt(secret, code string, now time.Time) (n int64, ok bool, err error) {
	o := totp.ValidateOpts{Period: step, Digits: otp.DigitsSix, Algorithm: otp.AlgorithmSHA1}
	for _, at := range []int64{0, -1, 1} {
		n := now.Unix()/step + at
		want, err := totp.GenerateCodeCustom(secret, time.Unix(n*step, 0), o)
		if err != nil {
			return 0, false, err
		}
		if subtle.ConstantTimeCompare([]byte(want), []byte(code)) == 1 {
			return n, true, nil
		}
	}
	return 0, false, nil
}
