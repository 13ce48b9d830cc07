package approval

import (
	"context"
	"errors"
	"fmt"

	"cofferdam"
)

// byPerson is the source of a question that nobody asked.
const byPerson = "person"

// Open takes what a person opens for a task of their own accord: a question that
// nobody asked, with its answer, so that it is counted, kept, on record and found
// again as any other. a allows and has bounds. Of q the caller fills scope, task,
// action, resource, reason and hash.
func (d *Desk) Open(ctx context.Context, q cofferdam.Question, a cofferdam.Answer) (cofferdam.Question, error) {
	q.Schema, q.ID, q.State = "cofferdam/approval/v1", cofferdam.QuestionID(cofferdam.NewID("a")), cofferdam.QuestionOpen
	q.Created, q.Needs, q.Source, q.Actor = d.o.Now().UTC(), 1, byPerson, a.By
	q.Expires = q.Created.Add(d.o.Wait)
	a.Time, a.Allow = q.Created, true
	if a.Bounds == nil {
		return q, &cofferdam.Error{Op: "approval.Open", Kind: cofferdam.Invalid, Subject: "bounds", Reason: "they are missing", Hint: "say what is opened and for how long"}
	}
	if err := d.answerable("approval.Open", q, q.Hash, a); err != nil { // before anything is kept
		return q, err
	}
	if _, err := d.add(ctx, q); err != nil {
		return q, err
	}
	defer d.forget(q.ID)
	return d.Answer(ctx, q.Scope, string(q.ID), q.Hash, a)
}

// UseOpening takes one of the acts that the answers to a question opened, of at
// most so many; a conflict if there is none left.
func (d *Desk) UseOpening(ctx context.Context, id cofferdam.QuestionID, most int) error {
	return d.o.Store.UseOpening(ctx, id, most)
}

// TakeBytes takes n of the bytes that the answers to a question opened, of at most
// so many, or with n below zero gives some back; a conflict if so many are not left.
func (d *Desk) TakeBytes(ctx context.Context, id cofferdam.QuestionID, n, most int64) error {
	return d.o.Store.TakeBytes(ctx, id, n, most)
}

// EndOpening ends what the answers to a question of a task opened, on record, once.
func (d *Desk) EndOpening(ctx context.Context, scope cofferdam.Scope, id cofferdam.QuestionID, why string) error {
	q, err := d.o.Store.Question(ctx, scope, string(id))
	if err != nil {
		return err
	}
	err = d.o.Store.EndOpening(ctx, id, d.o.Now().UTC(), why)
	if err != nil && cofferdam.KindOf(err) == cofferdam.NotFound {
		return nil
	}
	return errors.Join(err, d.record(ctx, q, cofferdam.EventApprovalEnd, platform(), map[string]string{"state": "used up", "why": why}))
}

// wider says why bounds are not within what an agent proposed; "" if they are, or
// it proposed nothing. A person who wants more opens it unasked, and says so.
func wider(p *cofferdam.Bounds, b cofferdam.Bounds) string {
	switch {
	case p == nil:
		return ""
	case b.Entry != p.Entry:
		return fmt.Sprintf("%q is not the entry that was proposed", b.Entry)
	case b.Seconds > p.Seconds:
		return fmt.Sprintf("%g seconds are more than the %g that were proposed", b.Seconds, p.Seconds)
	case b.Uses > p.Uses || b.Uses == 0:
		return fmt.Sprintf("%d requests were proposed, and this is wider", p.Uses)
	case b.Bytes > p.Bytes || b.Bytes == 0:
		return fmt.Sprintf("%d bytes were proposed, and this is wider", p.Bytes)
	}
	return ""
}
