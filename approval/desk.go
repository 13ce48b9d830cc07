// Package approval asks people. A gateway that policy tells to ask puts a
// Question before the Desk and waits; a person's Answer lets exactly the act
// pass that was shown, once.
//
// It decides nothing itself and knows no faces: who is a person, and how that
// was seen, is the caller's to say. The invariants: no answer is no; an answer
// counts for one hash and for as many uses as it gave; a question is on record
// before anybody sees it and its answer before it counts.
package approval

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"cofferdam"
)

// Bounds of questions. Source: docs/SPECIFICATION.md, "Approvals" (R56).
const (
	DefaultWait = 300 * time.Second
	MinWait     = 30 * time.Second
	MaxWait     = time.Hour
	MaxTask     = 50               // questions of one task
	MaxMinute   = 20               // and of one task in a minute
	Quiet       = 60 * time.Second // the same is not asked again for so long after a no
	MaxComment  = 4096             // bytes
	MaxOpen     = 86_400           // seconds for which an answer opens something
	MaxUses     = 100_000          // acts that it opens
	MaxBytes    = 1_000_000_000_000
	maxWaiting  = 10_000 // questions that wait at a time, of all tasks
)

// Store keeps questions. Errors are *cofferdam.Error.
type Store interface {
	// Tally counts the questions of the task of q: all of them, those since then, and
	// when the last one like q was denied: with the same hash, or a proposal to open
	// the same host.
	Tally(ctx context.Context, q cofferdam.Question, since time.Time) (all, recent int, denied time.Time, err error)
	AddQuestion(ctx context.Context, q cofferdam.Question) error
	Question(ctx context.Context, scope cofferdam.Scope, id string) (cofferdam.Question, error) // id or unique prefix
	// Answer adds a to an open question and moves it to state; a conflict if it
	// is not open, or the same person has answered it.
	Answer(ctx context.Context, id cofferdam.QuestionID, a cofferdam.Answer, state cofferdam.QuestionState) (cofferdam.Question, error)
	// UseAnswer takes the one use of an allowed question that has this hash; a conflict if
	// there is none left.
	UseAnswer(ctx context.Context, id cofferdam.QuestionID, hash cofferdam.Digest) error
	// UseOpening takes one of the acts that the answers to a question opened; a
	// conflict if there is none left.
	UseOpening(ctx context.Context, id cofferdam.QuestionID, most int) error
	// TakeBytes takes n of the bytes that the answers to a question opened, of at
	// most so many, or with n below zero gives some back; a conflict if so many are
	// not left.
	TakeBytes(ctx context.Context, id cofferdam.QuestionID, n, most int64) error
	// EndOpening ends for good what the answers to a question opened; NotFound if it
	// was ended before.
	EndOpening(ctx context.Context, id cofferdam.QuestionID, at time.Time, reason string) error
	// EndQuestion ends an open question; one that is not open stays as it is.
	EndQuestion(ctx context.Context, id cofferdam.QuestionID, state cofferdam.QuestionState, reason string) error
	// OpenQuestions returns those of all projects that wait.
	OpenQuestions(ctx context.Context) ([]cofferdam.Question, error)
}

// Options is what a Desk is made from: a Store and a Record; the rest is optional.
type Options struct {
	Store  Store
	Record cofferdam.Recorder                                                         // of the host log
	Told   func(cofferdam.Question)                                                   // a question was asked, answered or ended; returns at once
	Policy func(ctx context.Context, s cofferdam.SessionID) (cofferdam.Digest, error) // by which a session is judged now
	Now    func() time.Time
	Wait   time.Duration // 0: DefaultWait
}

// Desk is where questions wait. Safe for concurrent use.
type Desk struct {
	o Options

	mu      sync.Mutex
	waiting map[cofferdam.QuestionID]chan cofferdam.Question // guarded by mu; each takes one
	asking  map[cofferdam.TaskID]*sync.Mutex                 // one question of a task is counted and added at a time
}

// New returns a Desk.
func New(o Options) (*Desk, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Wait == 0 {
		o.Wait = DefaultWait
	}
	if o.Told == nil {
		o.Told = func(cofferdam.Question) {}
	}
	if o.Wait < MinWait || o.Wait > MaxWait {
		return nil, &cofferdam.Error{Op: "approval.New", Kind: cofferdam.Invalid, Subject: "approvals.wait", Reason: fmt.Sprintf("%s is not from %s to %s", o.Wait, MinWait, MaxWait)}
	}
	return &Desk{o: o, waiting: map[cofferdam.QuestionID]chan cofferdam.Question{}, asking: map[cofferdam.TaskID]*sync.Mutex{}}, nil
}

// Sweep ends what waited when the process before this one ended: whoever asked
// is gone.
func (d *Desk) Sweep(ctx context.Context) error {
	open, err := d.o.Store.OpenQuestions(ctx)
	for _, q := range open {
		err = errors.Join(err, d.end(ctx, q, cofferdam.QuestionVoid, "the server ended while it waited"))
	}
	return err
}

// Ask puts q before people and waits for their answer: nil if they allow it. It
// is a Denied error if they do not, if nobody answers in time, if what was asked
// about is gone, or if the task has asked too much; and an Unavailable one if
// the question cannot be put on record. The caller then decides anew and calls
// Use before the act.
//
// Of q the caller fills everything but Schema, ID, State, Created and Expires.
func (d *Desk) Ask(ctx context.Context, q cofferdam.Question) (cofferdam.Question, error) {
	q.Schema, q.ID, q.State = "cofferdam/approval/v1", cofferdam.QuestionID(cofferdam.NewID("a")), cofferdam.QuestionOpen
	q.Created = d.o.Now().UTC()
	q.Expires = q.Created.Add(d.o.Wait)
	q.Needs = max(q.Needs, 1)
	if len(q.Bytes) > cofferdam.MaxQuestionBytes {
		q.Bytes = q.Bytes[:cofferdam.MaxQuestionBytes]
	}
	answered, err := d.add(ctx, q)
	if err != nil {
		return q, err
	}
	defer d.forget(q.ID)
	timer := time.NewTimer(d.o.Wait)
	defer timer.Stop()
	select {
	case q = <-answered:
	case <-timer.C:
		q, err = d.over(ctx, q, cofferdam.QuestionExpired, fmt.Sprintf("nobody answered within %s", d.o.Wait))
	case <-ctx.Done():
		q, err = d.over(ctx, q, cofferdam.QuestionVoid, "whoever asked is gone")
	}
	switch {
	case err != nil:
		return q, err
	case q.State == cofferdam.QuestionAllowed:
		return q, nil
	}
	return q, refused(q, q.Reason, "what was not allowed can be asked again after a while; a person can change the policy")
}

// over ends a question for which nobody waits any longer. An answer that came
// at the same moment counts.
func (d *Desk) over(ctx context.Context, q cofferdam.Question, state cofferdam.QuestionState, why string) (cofferdam.Question, error) {
	ctx = context.WithoutCancel(ctx)
	if err := d.end(ctx, q, state, why); err != nil {
		return q, err
	}
	return d.o.Store.Question(ctx, q.Scope, string(q.ID))
}

// add counts, records and keeps a question.
func (d *Desk) add(ctx context.Context, q cofferdam.Question) (chan cofferdam.Question, error) {
	defer d.lock(q.Task)()
	all, recent, denied, err := d.o.Store.Tally(ctx, q, q.Created.Add(-time.Minute))
	most, minute := MaxTask, MaxMinute
	if q.Source == byPerson { // as many again: an agent that asks too much takes nobody's word away
		most, minute = 2*MaxTask, 2*MaxMinute
	}
	switch {
	case err != nil:
		return nil, err
	case all >= most:
		return nil, refused(q, fmt.Sprintf("the task has asked its %d questions", most), "a person can allow it in the policy")
	case recent >= minute:
		return nil, refused(q, fmt.Sprintf("the task has asked %d questions within a minute", minute), "wait a minute")
	case !denied.IsZero() && q.Created.Sub(denied) < Quiet:
		return nil, refused(q, fmt.Sprintf("a person said no to the same less than %s ago", Quiet), "do something else")
	}
	if err := d.record(ctx, q, cofferdam.EventApprovalAsk, q.Actor, nil); err != nil {
		return nil, err
	}
	answered := make(chan cofferdam.Question, 1)
	d.mu.Lock()
	full := len(d.waiting) >= maxWaiting
	if !full {
		d.waiting[q.ID] = answered
	}
	d.mu.Unlock()
	if full {
		return nil, refused(q, fmt.Sprintf("%d questions wait already", maxWaiting), "wait until some are answered")
	}
	if err := d.o.Store.AddQuestion(ctx, q); err != nil {
		d.forget(q.ID)
		return nil, err
	}
	d.o.Told(q)
	return answered, nil
}

// lock lets one question of a task be added at a time.
func (d *Desk) lock(t cofferdam.TaskID) (unlock func()) {
	d.mu.Lock()
	m := d.asking[t]
	if m == nil {
		m = &sync.Mutex{}
		d.asking[t] = m
	}
	d.mu.Unlock()
	m.Lock()
	return m.Unlock
}

func (d *Desk) forget(id cofferdam.QuestionID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.waiting, id)
}

// Forget drops what is kept for a task that has ended.
func (d *Desk) Forget(t cofferdam.TaskID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.asking, t)
}

// Answer takes a person's word. With Needs of two the first that allows leaves
// the question open; any no ends it. The caller has seen a fresh proof that this
// is the person.
func (d *Desk) Answer(ctx context.Context, scope cofferdam.Scope, id string, seen cofferdam.Digest, a cofferdam.Answer) (cofferdam.Question, error) {
	const op = "approval.Answer"
	q, err := d.o.Store.Question(ctx, scope, id)
	if err != nil {
		return q, err
	}
	a.Time = d.o.Now().UTC()
	if q.Proposed != nil && a.Allow && a.Bounds == nil {
		a.Bounds = q.Proposed // as it was shown
	}
	if err := d.acceptable(ctx, op, q, seen, a); err != nil {
		return q, err
	}
	state, allowed := cofferdam.QuestionDenied, 1
	for _, o := range q.Answers {
		if o.Allow {
			allowed++
		}
	}
	switch {
	case a.Allow && allowed >= q.Needs:
		state = cofferdam.QuestionAllowed
	case a.Allow:
		state = cofferdam.QuestionOpen
	}
	fields := map[string]string{"allow": fmt.Sprint(a.Allow), "proof": a.Proof, "hash": string(q.Hash), "state": string(state)}
	if b := a.Bounds; b != nil {
		fields["entry"], fields["seconds"], fields["uses"], fields["bytes"] = b.Entry, fmt.Sprint(b.Seconds), fmt.Sprint(b.Uses), fmt.Sprint(b.Bytes)
	}
	if err := d.record(ctx, q, cofferdam.EventApprovalAnswer, a.By, fields); err != nil {
		return q, err
	}
	if q, err = d.o.Store.Answer(ctx, q.ID, a, state); err != nil {
		return q, err
	}
	d.tell(q)
	return q, nil
}

// acceptable says whether a may be an answer to q now.
func (d *Desk) acceptable(ctx context.Context, op string, q cofferdam.Question, seen cofferdam.Digest, a cofferdam.Answer) error {
	if err := d.answerable(op, q, seen, a); err != nil || d.o.Policy == nil || q.Session == "" {
		return err // without a look at the policy the gateway looks when the act is about to happen
	}
	now, err := d.o.Policy(ctx, q.Session)
	switch {
	case err != nil:
		return err
	case now != q.Policy:
		return errors.Join(
			&cofferdam.Error{Op: op, Kind: cofferdam.Conflict, Subject: "question " + string(q.ID), Reason: "the policy is another one than the one that asked", Hint: "the agent may ask again"},
			d.end(ctx, q, cofferdam.QuestionVoid, "the policy was changed while it waited"))
	}
	return nil
}

// answerable says whether a may be an answer to q, whatever the policy is now.
func (d *Desk) answerable(op string, q cofferdam.Question, seen cofferdam.Digest, a cofferdam.Answer) error {
	conflict := func(why, hint string) error {
		return &cofferdam.Error{Op: op, Kind: cofferdam.Conflict, Subject: "question " + string(q.ID), Reason: why, Hint: hint}
	}
	switch {
	case !a.By.IsPerson() || a.By.Name == "":
		return &cofferdam.Error{Op: op, Kind: cofferdam.Forbidden, Subject: "question " + string(q.ID), Reason: "only a person may answer, and this is " + a.By.String(), Hint: "a person runs cofferdam approval allow at a terminal"}
	case a.Proof == "":
		return &cofferdam.Error{Op: op, Kind: cofferdam.Forbidden, Subject: "question " + string(q.ID), Reason: "nothing shows that a person answers", Hint: "give a password, a code or a passkey"}
	case len(a.Comment) > MaxComment:
		return &cofferdam.Error{Op: op, Kind: cofferdam.Invalid, Subject: "comment", Reason: fmt.Sprintf("is longer than %d bytes", MaxComment)}
	case q.State != cofferdam.QuestionOpen:
		return conflict(fmt.Sprintf("it is %s: %s", q.State, q.Reason), "cofferdam approval list shows what waits")
	case seen != q.Hash:
		return conflict("what was looked at is not what is asked", "look at it again with cofferdam approval view "+string(q.ID))
	case !a.Time.Before(q.Expires):
		return conflict("its time is over", "the agent may ask again")
	}
	if b := a.Bounds; b != nil {
		why := outOfBounds(*b, a.Allow, q.Action)
		if why == "" {
			why = wider(q.Proposed, *b)
		}
		if why != "" {
			return &cofferdam.Error{Op: op, Kind: cofferdam.Invalid, Subject: "bounds", Reason: why, Hint: "allow the one act alone, or say what is opened and for how long"}
		}
	}
	return nil
}

func outOfBounds(b cofferdam.Bounds, allow bool, action string) string {
	switch {
	case !allow:
		return "a no opens nothing"
	case b.Entry == "":
		return "they name no entry"
	case !(b.Seconds >= 1 && b.Seconds <= MaxOpen):
		return fmt.Sprintf("%g is not from 1 to %d seconds", b.Seconds, MaxOpen)
	case b.Uses < 0 || b.Uses > MaxUses:
		return fmt.Sprintf("%d is not from 1 to %d acts; 0: no bound", b.Uses, MaxUses)
	case b.Bytes < 0 || b.Bytes > MaxBytes:
		return fmt.Sprintf("%d is not from 1 to %d bytes; 0: no bound", b.Bytes, int64(MaxBytes))
	case b.Bytes > 0 && action != "request" && action != "connect":
		return "the bytes of hosts alone are counted"
	}
	return ""
}

// Use takes the one act that the answer to id lets pass: hash is that of what is
// about to happen. It is a conflict if it was used, or is about something else.
func (d *Desk) Use(ctx context.Context, id cofferdam.QuestionID, hash cofferdam.Digest) error {
	return d.o.Store.UseAnswer(ctx, id, hash)
}

// Void ends every question of a session that waits under another policy.
func (d *Desk) Void(ctx context.Context, s cofferdam.SessionID, policy cofferdam.Digest) error {
	open, err := d.o.Store.OpenQuestions(ctx)
	for _, q := range open {
		if q.Session == s && q.Policy != policy {
			err = errors.Join(err, d.end(ctx, q, cofferdam.QuestionVoid, "the policy was changed while it waited"))
		}
	}
	return err
}

// platform is who acts where no person does.
func platform() cofferdam.Principal {
	return cofferdam.Principal{Kind: cofferdam.Platform, Name: "approval"}
}

// end ends an open question, on record first.
func (d *Desk) end(ctx context.Context, q cofferdam.Question, state cofferdam.QuestionState, why string) error {
	if err := d.record(ctx, q, cofferdam.EventApprovalEnd, platform(), map[string]string{"state": string(state), "why": why}); err != nil {
		return err
	}
	if err := d.o.Store.EndQuestion(ctx, q.ID, state, why); err != nil {
		return err
	}
	q, err := d.o.Store.Question(ctx, q.Scope, string(q.ID))
	if err == nil {
		d.tell(q)
	}
	return err
}

// tell wakes who waits for q once it is no longer open.
func (d *Desk) tell(q cofferdam.Question) {
	d.o.Told(q)
	if q.State == cofferdam.QuestionOpen {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if c := d.waiting[q.ID]; c != nil {
		delete(d.waiting, q.ID)
		c <- q // takes one, and only this sends
	}
}

func (d *Desk) record(ctx context.Context, q cofferdam.Question, kind string, by cofferdam.Principal, more map[string]string) error {
	fields := map[string]string{"question": string(q.ID), "action": q.Action, "rule": q.Rule, "policy": string(q.Policy), "hash": string(q.Hash)}
	maps.Copy(fields, more)
	_, err := d.o.Record.Record(ctx, cofferdam.Event{
		Scope: q.Scope, Task: q.Task, Session: q.Session, Actor: by, Source: "approval", Kind: kind, Resource: q.Resource, Fields: fields, Durable: true,
	})
	return err
}

func refused(q cofferdam.Question, why, hint string) error {
	return &cofferdam.Error{Op: "approval.Ask", Kind: cofferdam.Denied, Subject: q.Resource, Reason: why, Hint: hint}
}
