package approval

import (
	"context"

	"cofferdam"
)

// Open takes what a person opens for a task of their own accord: a question that
// nobody asked, with its answer, so that it is counted, kept, on record and found
// again as any other. a allows and has bounds. Of q the caller fills scope, task,
// action, resource, reason and hash.
func (d *Desk) Open(ctx context.Context, q cofferdam.Question, a cofferdam.Answer) (cofferdam.Question, error) {
	q.Schema, q.ID, q.State = "cofferdam/approval/v1", cofferdam.QuestionID(cofferdam.NewID("a")), cofferdam.QuestionOpen
	q.Created, q.Needs, q.Source, q.Actor = d.o.Now().UTC(), 1, "person", a.By
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
