package identity

import (
	"cmp"
	"context"

	"cofferdam"
)

// aboutLogin is what proofs of a person who signs in are about.
const aboutLogin cofferdam.Digest = "sha256:login"

// SignIn takes a person's password, and the code of their application if they
// have one, and returns a token of 12 hours. Whatever does not hold is the same
// error, after the same work.
func (d *Directory) SignIn(ctx context.Context, r cofferdam.LoginRequest, first cofferdam.OrganizationID) (Token, string, error) {
	none := &cofferdam.Error{
		Op: "identity.SignIn", Kind: cofferdam.Unauthenticated, Subject: "signing in", Reason: "name, password or code is not right, or too many wrong ones were given",
		Hint: "try again, after 15 minutes if you were wrong five times, and with --organization NAME if it is not the server's own; " +
			"an owner closes and reopens an account whose password is lost",
	}
	o := first
	if r.Organization != "" {
		var err error
		if o, err = d.o.Store.Organization(ctx, r.Organization); err != nil && cofferdam.KindOf(err) != cofferdam.NotFound {
			return Token{}, "", err
		} else if err != nil {
			o = "o-none"
		}
	}
	p, err := d.o.Store.Person(ctx, o, r.Name)
	if err != nil && cofferdam.KindOf(err) != cofferdam.NotFound {
		return Token{}, "", err
	}
	if err != nil || p.Name != r.Name || p.Service || !p.Disabled.IsZero() {
		p = Person{ID: nobody} // all the same is done for them, so that it does not say who is here
	}
	proofs := []cofferdam.Proof{{Kind: Password, Password: r.Password}}
	factors, err := d.o.Store.Factors(ctx, p.ID)
	if err != nil {
		return Token{}, "", err
	}
	for _, f := range factors {
		if f.Kind == TOTP {
			proofs = append(proofs, cofferdam.Proof{Kind: TOTP, Code: r.Code})
			break
		}
	}
	if _, err := d.prove(ctx, p.ID, cmp.Or(sourceOf(ctx), "somewhere"), aboutLogin, proofs...); err != nil {
		if k := cofferdam.KindOf(err); k != cofferdam.Forbidden {
			return Token{}, "", err
		}
		return Token{}, "", none
	}
	return d.login(ctx, p, Password)
}

// login makes the token of a person who has signed in.
func (d *Directory) login(ctx context.Context, p Person, how string) (Token, string, error) {
	who := cofferdam.Principal{Kind: cofferdam.Person, Name: p.Name}
	if err := d.record(ctx, Caller{Principal: who, Organization: p.Organization}, cofferdam.EventLogin, map[string]string{"how": how}); err != nil {
		return Token{}, "", err
	}
	return d.Issue(ctx, Token{Organization: p.Organization, Holder: who, Member: string(p.ID), Most: Owner, Login: true, By: who}, LoginLife)
}

// nobody is a person who is not here, and holds nothing.
const nobody cofferdam.PersonID = "u-nobody"

// nobodys is the text of a password that nobody has: checking one against it is
// the work of checking one against a real one.
var nobodys = []byte("$argon2id$v=19$m=65536,t=3,p=4$AAAAAAAAAAAAAAAAAAAAAA$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA")
