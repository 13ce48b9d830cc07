package identity

import (
	"context"
	"time"

	"cofferdam"
)

// Options is what a Directory is made from.
type Options struct {
	Store  Store
	Record cofferdam.Recorder // of the host log
	Now    func() time.Time   // nil: time.Now
	Sealer Sealer             // of secrets for codes; nil: nobody has one
}

// Sealer keeps a secret worth nothing to who reads the store alone. What is sealed
// under one name cannot be opened under another.
type Sealer interface {
	Seal(name string, p []byte) ([]byte, error)
	Unseal(name string, sealed []byte) ([]byte, error)
}

// Directory knows people and what they hold. Safe for concurrent use.
type Directory struct {
	o        Options
	passkeys *Passkeys // nil: nobody has one
	hashing  *turns    // one password is hashed at a time for each place in it
}

// hashers bounds the passwords that are hashed at a time: each takes 64 MiB.
const hashers = 2

// New returns a Directory.
func New(o Options) *Directory {
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Directory{o: o, hashing: &turns{free: hashers}}
}

// newPerson is a new account, which is there once it is kept.
func newPerson(o cofferdam.OrganizationID, name string, at time.Time) Person {
	return Person{Schema: "cofferdam/person/v1", ID: cofferdam.PersonID(cofferdam.NewID("u")), Organization: o, Name: name, Created: at.UTC()}
}

// member returns somebody with their roles; NotFound if a person is disabled.
func (d *Directory) member(ctx context.Context, o cofferdam.OrganizationID, who cofferdam.Principal, id string) (Caller, error) {
	p, err := d.o.Store.Person(ctx, o, id)
	if err != nil {
		return Caller{}, err
	}
	if !p.Disabled.IsZero() || p.Service != (who.Kind == cofferdam.Service) {
		return Caller{}, &cofferdam.Error{Op: "identity.Person", Kind: cofferdam.NotFound, Subject: "person " + p.Name, Reason: "is disabled"}
	}
	roles, err := d.o.Store.Memberships(ctx, id)
	return Caller{Principal: who, Member: id, Organization: o, Memberships: roles}, err
}

// Local returns the caller whom the kernel names by a user id: a person of the
// organisation, made at first use as its owner.
func (d *Directory) Local(ctx context.Context, o cofferdam.OrganizationID, name string) (Caller, error) {
	p, err := d.o.Store.Person(ctx, o, name)
	if cofferdam.KindOf(err) == cofferdam.NotFound && err != nil {
		p = newPerson(o, name, d.o.Now())
		err = d.o.Store.AddPerson(ctx, p, Membership{Member: string(p.ID), Role: Owner}, nil)
		if err != nil && cofferdam.KindOf(err) == cofferdam.Conflict { // another call of theirs was first
			p, err = d.o.Store.Person(ctx, o, name)
		}
	}
	if err != nil {
		return Caller{}, err
	}
	return d.member(ctx, o, cofferdam.Principal{Kind: cofferdam.Person, Name: name}, string(p.ID))
}

// record puts on record what somebody did with accounts, before it counts.
func (d *Directory) record(ctx context.Context, who Caller, kind string, fields map[string]string) error {
	_, err := d.o.Record.Record(ctx, cofferdam.Event{
		Scope: cofferdam.Scope{Organization: who.Organization}, Actor: who.Principal, Source: "identity", Kind: kind, Resource: who.Principal.String(), Fields: fields, Durable: true,
	})
	return err
}
