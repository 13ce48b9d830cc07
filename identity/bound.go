package identity

import (
	"context"

	"cofferdam"
)

// Bind binds what a system outside calls somebody to the caller, who says so with a
// fresh proof that the face has seen: from then on answers that the system brings
// in that name are theirs. A Conflict if the name is bound.
func (d *Directory) Bind(ctx context.Context, who Caller, issuer, subject string) error {
	return d.bind(ctx, who, "webhook", issuer, subject)
}

// bind puts on record that a subject is the caller, of which kind it is, and keeps it.
func (d *Directory) bind(ctx context.Context, who Caller, kind, issuer, subject string) error {
	if err := d.record(ctx, who, cofferdam.EventFactorAdd, map[string]string{"kind": kind, "issuer": issuer, "subject": subject}); err != nil {
		return err
	}
	return d.o.Store.BindSubject(ctx, issuer, subject, cofferdam.PersonID(who.Member), d.o.Now().UTC())
}

// Bound returns whom a name of a system outside is bound to, with their roles as
// they are now; NotFound if it is nobody, or the account is closed.
func (d *Directory) Bound(ctx context.Context, issuer, subject string) (Caller, error) {
	p, err := d.o.Store.PersonBySubject(ctx, issuer, subject)
	if err != nil {
		return Caller{}, err
	}
	return d.member(ctx, p.Organization, cofferdam.Principal{Kind: cofferdam.Person, Name: p.Name}, string(p.ID))
}
