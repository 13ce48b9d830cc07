package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"cofferdam"
	"cofferdam/policy"
)

// MaxActs is how many acts one session may try, refused ones included. It
// bounds the record and the work a box can cause; a clone, an install and a
// day of an agent's work need less than a tenth of it.
const MaxActs = 200_000

// maxQuery bounds what is put on record of a question to policy, in bytes; one
// that is longer cannot be asked again.
const maxQuery = 16 << 10

// outcomeTimeout bounds the recording of an outcome, which goes on when the
// request itself was cut.
const outcomeTimeout = 10 * time.Second

// Rules that refuse without being part of a policy.
const (
	RuleActs      = "act-ceiling"       // MaxActs
	RuleReserved  = "reserved-address"  // Dialer
	RuleMalformed = "malformed-request" // ServeHTTP
)

// Handle takes one act of a box through the six steps: identify, decide,
// spend, record, attach, forward; and records what came of it. It returns nil
// if forward did, a Denied error if policy refuses, an Exhausted one if the
// session has used up its acts, and an Unavailable one if the act cannot be
// recorded or the session has ended. forward is called at most once, and only
// after the decision is on record. Its context ends with the session.
func Handle(ctx context.Context, c *Caller, r Request, forward func(context.Context) (Outcome, error)) error {
	ctx, cancel, err := identify(ctx, c)
	if err != nil {
		return err
	}
	defer cancel()
	d, base, err := decide(ctx, c, r)
	if err != nil {
		return err
	}
	if err := spend(c, &d); err != nil {
		return err
	}
	decided, err := record(ctx, c, r, d)
	if err != nil {
		return err
	}
	if d.Verdict == cofferdam.Asked {
		if decided, d, err = ask(ctx, c, r, d, base); err != nil {
			return err
		}
	}
	if d.Verdict != cofferdam.Allowed {
		return Refuse(r, c.hint(r, d))
	}
	ctx, leave := c.Policy.pass(ctx, r.Query, d)
	defer leave()
	return settle(ctx, c, r, decided, func() (Outcome, error) {
		if r.Attach != nil {
			if err := r.Attach(ctx); err != nil {
				return Outcome{}, err
			}
		}
		o, err := forward(ctx)
		if errors.Is(context.Cause(ctx), errMoved) {
			o.Status, o.Reason = Cut, errMoved.Error()
		}
		return o, err
	})
}

// Reject puts a refusal on record that a gateway decides by itself, because
// the bytes of the act contradict each other, and returns it as an error. It
// counts like any other act.
func Reject(ctx context.Context, c *Caller, r Request, rule, reason, hint string) error {
	ctx, cancel, err := identify(ctx, c)
	if err != nil {
		return err
	}
	defer cancel()
	now := c.Policy.Set()
	d := cofferdam.Decision{Verdict: cofferdam.Refused, Rule: rule, Reason: reason, Hint: hint, Policy: now.Digest(), Base: now.Base()}
	if err := spend(c, &d); err != nil {
		return err
	}
	r.Query = policy.Query{} // it was not asked: what is refused here may be allowed
	if _, err := record(ctx, c, r, d); err != nil {
		return err
	}
	return Refuse(r, d)
}

// identify makes sure that the session is still there, and ties ctx to it.
func identify(ctx context.Context, c *Caller) (context.Context, context.CancelFunc, error) {
	if c.Live.Err() != nil {
		return nil, nil, &cofferdam.Error{
			Op: "gateway.Handle", Kind: cofferdam.Unavailable,
			Reason: "the session has ended", Hint: "nothing of an ended session is let through",
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(c.Live, cancel)
	return ctx, func() { stop(); cancel() }, nil
}

// spend counts the act. The first one over the ceiling goes on record as
// refused; the rest are only counted, so that the record stays bounded too.
func spend(c *Caller, d *cofferdam.Decision) error {
	n := c.Counts.Acts.Add(1)
	if n <= MaxActs {
		return nil
	}
	d.Verdict, d.Rule = cofferdam.Refused, RuleActs
	d.Reason = fmt.Sprintf("this session has used up its %d requests", int64(MaxActs))
	d.Hint = "start another task for the rest of the work"
	if n == MaxActs+1 {
		return nil
	}
	c.Counts.Refused.Add(1)
	return Refuse(Request{}, *d)
}

// record puts the decision on record.
func record(ctx context.Context, c *Caller, r Request, d cofferdam.Decision) (cofferdam.Event, error) {
	if d.Verdict == cofferdam.Refused {
		c.Counts.Refused.Add(1)
	}
	e := c.event(r)
	e.Verdict, e.Rule, e.Reason, e.Durable = d.Verdict, d.Rule, d.Reason, r.Durable
	e.Fields = with(r.Fields, cofferdam.FieldPolicy, string(d.Base))
	if d.Would != "" {
		e.Fields[cofferdam.FieldWould] = d.Would
	}
	if text, err := json.Marshal(r.Query); err == nil && r.Query.Action != "" && r.Proposes == nil && d.Rule != RuleActs && len(text) <= maxQuery {
		e.Fields[cofferdam.FieldQuery] = string(text)
	}
	e, err := c.Record.Record(ctx, e)
	if err != nil {
		return e, unrecorded(r, err)
	}
	return e, nil
}

func (c *Caller) event(r Request) cofferdam.Event {
	actor := c.Actor
	if r.Actor != (cofferdam.Principal{}) {
		actor = r.Actor
	}
	return cofferdam.Event{
		Scope: c.Scope, Task: c.Task, Session: c.Session, Actor: actor,
		Source: r.Source, Kind: r.Kind, Resource: r.Resource,
	}
}

func unrecorded(r Request, err error) error {
	return &cofferdam.Error{
		Op: "gateway.Handle", Kind: cofferdam.Unavailable, Subject: r.Resource,
		Reason: "it cannot be put on record, so it does not happen",
		Hint:   "look at the server's disk with cofferdam doctor", Err: err,
	}
}

// settle runs do and records what came of it, also if do fails, is cut or
// panics. The outcome names the decision by its place in the log.
func settle(ctx context.Context, c *Caller, r Request, decided cofferdam.Event, do func() (Outcome, error)) (err error) {
	var o Outcome
	returned := false
	defer func() {
		if o.Status == "" {
			o.Status = status(ctx, err, returned)
		}
		e := c.event(r)
		e.Of, e.Outcome, e.Reason, e.Fields, e.Durable = &decided.Seq, o.Status, o.Reason, o.Fields, r.Durable
		if why := (*cofferdam.Error)(nil); e.Reason == "" && o.Status == Failed && errors.As(err, &why) {
			e.Reason = why.Error()
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), outcomeTimeout)
		defer cancel()
		if _, rerr := c.Record.Record(ctx, e); rerr != nil {
			err = errors.Join(err, unrecorded(r, rerr))
		}
	}()
	o, err = do()
	returned = true
	return err
}

func status(ctx context.Context, err error, returned bool) string {
	switch {
	case !returned, ctx.Err() != nil:
		return Cut
	case err != nil:
		return Failed
	}
	return OK
}
