package proof

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"golang.org/x/mod/sumdb/note"

	"cofferdam"
)

// Signer signs heads, receipts and exports with one Ed25519 key. The zero
// Signer signs nothing. It prints as its public half in every form.
type Signer struct {
	note   note.Signer
	public string
}

// NewKey makes a key pair. The name must not be empty and may hold neither
// spaces nor plus signs (NewSigner refuses such a key). private is a secret;
// public is what Verify wants.
func NewKey(name string) (private, public string) {
	private, public, err := note.GenerateKey(rand.Reader, name)
	if err != nil {
		panic(err) // reading randomness cannot fail since Go 1.24
	}
	return private, public
}

// NewSigner returns the Signer for a private key made by NewKey.
func NewSigner(private string) (Signer, error) {
	private = strings.TrimSpace(private)
	s, err := note.NewSigner(private)
	if err != nil {
		return Signer{}, &cofferdam.Error{
			Op: "proof.NewSigner", Kind: cofferdam.Invalid, Subject: "read signing key",
			Reason: "it is not a private key of this program", Err: err,
		}
	}
	// note.NewSigner has checked the shape: PRIVATE+KEY+name+hash+base64(1 seed).
	seed, err := base64.StdEncoding.DecodeString(strings.SplitN(private, "+", 5)[4])
	if err != nil || len(seed) != 1+ed25519.SeedSize {
		return Signer{}, fmt.Errorf("read signing key: %d bytes of seed", len(seed))
	}
	key := ed25519.NewKeyFromSeed(seed[1:])
	public, err := note.NewEd25519VerifierKey(s.Name(), key.Public().(ed25519.PublicKey))
	if err != nil {
		return Signer{}, fmt.Errorf("read signing key: %w", err)
	}
	return Signer{note: s, public: public}, nil
}

// Name returns the key's name; heads of the host's log have it as their origin.
func (s Signer) Name() string {
	if s.note == nil {
		return ""
	}
	return s.note.Name()
}

// Public returns the key by which others check what s signed.
func (s Signer) Public() string { return s.public }

// String returns the public key.
func (s Signer) String() string { return s.public }

// GoString returns the public key.
func (s Signer) GoString() string { return "proof.Signer(" + s.public + ")" }

// Format writes the public key, whatever the verb.
func (s Signer) Format(f fmt.State, _ rune) { fmt.Fprint(f, s.public) }

// MarshalText returns the public key.
func (s Signer) MarshalText() ([]byte, error) { return []byte(s.public), nil }

// LogValue returns the public key.
func (s Signer) LogValue() slog.Value { return slog.StringValue(s.public) }

// sign returns text as a note with one signature. text ends in a newline.
func (s Signer) sign(text string) ([]byte, error) {
	if s.note == nil {
		return nil, &cofferdam.Error{Op: "proof.Sign", Kind: cofferdam.Invalid, Subject: "sign", Reason: "there is no key"}
	}
	b, err := note.Sign(&note.Note{Text: text}, s.note)
	if err != nil {
		return nil, fmt.Errorf("sign: %w", err)
	}
	return b, nil
}

// open returns the text of a note that carries exactly one signature, that of
// v, in its one canonical spelling (base64 has others, which note accepts).
func open(msg []byte, v note.Verifier) (string, error) {
	n, err := note.Open(msg, note.VerifierList(v))
	var stranger *note.UnverifiedNoteError
	var forged *note.InvalidSignatureError
	switch {
	case errors.As(err, &stranger):
		s := stranger.Note.UnverifiedSigs[0] // Open refuses notes without any
		return "", fmt.Errorf("it was signed by the key %.80s+%08x, and the key given is %s+%08x", s.Name, s.Hash, v.Name(), v.KeyHash())
	case errors.As(err, &forged):
		return "", fmt.Errorf("the signature does not fit the text: one of them was changed")
	case err != nil:
		return "", err
	}
	if len(n.Sigs) != 1 || len(n.UnverifiedSigs) != 0 {
		return "", fmt.Errorf("note has other signatures besides that of %s", v.Name())
	}
	raw, err := base64.StdEncoding.Strict().DecodeString(n.Sigs[0].Base64)
	if err != nil {
		return "", fmt.Errorf("signature of %s: %w", v.Name(), err)
	}
	want := n.Text + "\n— " + v.Name() + " " + base64.StdEncoding.EncodeToString(raw) + "\n"
	if string(msg) != want {
		return "", fmt.Errorf("note of %s is not in canonical form", v.Name())
	}
	return n.Text, nil
}

// verifier parses a public key, with an error for people.
func verifier(public string) (note.Verifier, error) {
	v, err := note.NewVerifier(strings.TrimSpace(public))
	if err != nil {
		return nil, &cofferdam.Error{
			Op: "proof.Verify", Kind: cofferdam.Invalid, Subject: "read public key",
			Reason: "it is not a public key of this program",
			Hint:   "give the line that cofferdam proof view --key prints: NAME+HASH+KEY", Err: err,
		}
	}
	return v, nil
}
