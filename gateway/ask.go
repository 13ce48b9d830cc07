package gateway

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"

	"cofferdam"
	"cofferdam/budget"
	"cofferdam/policy"
)

// Rules by which an act is refused that a person would have to allow.
const (
	RuleNobody  = "nobody-to-ask"  // there is no desk to ask at
	RuleAnswer  = "not-allowed"    // a person said no, nobody answered, or too much was asked
	RuleMoved   = "policy-changed" // between question and act
	RuleUnshown = "cannot-be-shown"

	fieldUnopened = "not_opened" // why an answer opens nothing beyond its act
	FieldUnasked  = "not_asked"  // of a refusal: nobody was asked, for the budget has no question left
)

// Asker puts questions to people; package approval offers it.
type Asker interface {
	// Ask returns once people have allowed it, or with a Denied error.
	Ask(ctx context.Context, q cofferdam.Question) (cofferdam.Question, error)
	// Use takes the one act that an answer lets pass; a Conflict if there is none.
	Use(ctx context.Context, id cofferdam.QuestionID, hash cofferdam.Digest) error
	// UseOpening takes one of the acts that an answer opened, of at most so many;
	// a Conflict if there is none left.
	UseOpening(ctx context.Context, id cofferdam.QuestionID, most int) error
	// TakeBytes takes n of the bytes that an answer opened, of at most so many, or
	// gives back with n below zero; a Conflict if so many are not left.
	TakeBytes(ctx context.Context, id cofferdam.QuestionID, n, most int64) error
	// EndOpening ends what an answer opened for good, and says why on record.
	EndOpening(ctx context.Context, scope cofferdam.Scope, id cofferdam.QuestionID, why string) error
}

// Shown is what a person sees of an act: its exact bytes.
type Shown struct {
	Bytes  []byte // all of it, or the first part
	Size   int64
	Digest cofferdam.Digest // of all of it
	Target string           // version of what is acted on
}

// Show returns b as what is shown.
func Show(b []byte, target string) Shown {
	return Shown{Bytes: b, Size: int64(len(b)), Digest: digest(b), Target: target}
}

func digest(b []byte) cofferdam.Digest {
	return cofferdam.DigestOfSum(sha256.Sum256(b))
}

// asking is an act that waits for people.
type asking struct {
	caller  *Caller
	request Request
	asked   cofferdam.Decision // that a person has to answer
	base    cofferdam.Digest   // of the policy that asked
}

// ask puts an act before a person and decides anew when there is an answer: what
// counts is the policy of that moment, which has to be the one that asked: base.
// The answer is used up by it, and what it opens beyond this act is open then.
func ask(ctx context.Context, c *Caller, r Request, d cofferdam.Decision, base cofferdam.Digest) (cofferdam.Event, cofferdam.Decision, error) {
	a := asking{c, r, d, base}
	if c.Ask == nil {
		return a.refuse(ctx, RuleNobody, "a person would have to allow it, and there is nobody to ask here", "run it as a task of a server")
	}
	shown := Show(nil, "")
	if r.Show != nil {
		var err error
		if shown, err = r.Show(ctx); err != nil {
			reason, hint := Explain(err)
			return a.refuse(ctx, RuleUnshown, "a person would have to see it whole: "+reason, hint)
		}
	}
	if _, err := c.Budget.Reserve(budget.Amount{Approvals: 1}); err != nil {
		reason, hint := Explain(err)
		a.request.Fields = with(r.Fields, FieldUnasked, "true")
		return a.refuse(ctx, cofferdam.RuleBudget, reason, hint)
	}
	q, err := c.Ask.Ask(ctx, question(c, r, d, shown))
	if cofferdam.KindOf(err) == cofferdam.Denied {
		reason, hint := Explain(err)
		return a.refuse(ctx, RuleAnswer, reason, hint)
	}
	if err != nil {
		return cofferdam.Event{}, d, err
	}
	opening, opens, err := OpeningOf(q)
	if err == nil && opens {
		err = c.Policy.Give(opening)
	}
	switch {
	case r.Proposes != nil && (err != nil || !opens):
		return a.refuse(ctx, RuleAnswer, "people allowed it, and opened nothing", "ask again")
	case r.Proposes != nil:
		a.request.propose(opening)
	case err != nil: // the one act may pass all the same
		a.request.Fields = with(r.Fields, fieldUnopened, err.Error())
	}
	return a.answered(ctx, q)
}

// propose turns a proposal that people agreed to into the question whether the
// host is open now: to ask that takes no act of the opening.
func (r *Request) propose(opening policy.Opening) {
	r.Proposes.Opened = opening
	r.Proposes, r.Query.Action = nil, policy.Connect
}

// answered decides anew about an act that people allowed, and uses their answer up.
func (a asking) answered(ctx context.Context, q cofferdam.Question) (cofferdam.Event, cofferdam.Decision, error) {
	d, now, err := decide(ctx, a.caller, a.request)
	switch {
	case err != nil:
		return cofferdam.Event{}, a.asked, err
	case d.Verdict == cofferdam.Refused:
		return a.refuse(ctx, d.Rule, d.Reason, d.Hint)
	case now != a.base && d.Verdict == cofferdam.Asked:
		return a.refuse(ctx, RuleMoved, "the policy was changed while a person was asked", "try again: it is asked anew")
	}
	if err := a.caller.Ask.Use(ctx, q.ID, q.Hash); err != nil {
		reason, hint := Explain(err)
		a.asked = d
		return a.refuse(ctx, RuleAnswer, reason, hint)
	}
	d.Verdict = cofferdam.Allowed
	r := a.request
	r.Fields = with(r.Fields, cofferdam.FieldAnswer, string(q.ID), cofferdam.FieldAnswers, people(q))
	r.Durable, r.Query = true, policy.Query{} // policy's own answer is on record: that it asked
	e, err := record(ctx, a.caller, r, d)
	return e, d, err
}

// refuse puts on record that the act does not happen, by the policy of now.
func (a asking) refuse(ctx context.Context, rule, reason, hint string) (cofferdam.Event, cofferdam.Decision, error) {
	now, d, r := a.caller.Policy.Set(), a.asked, a.request
	d.Verdict, d.Rule, d.Reason, d.Hint, d.Policy, d.Base = cofferdam.Refused, rule, reason, hint, now.Digest(), now.Base()
	r.Query = policy.Query{}
	e, err := record(ctx, a.caller, r, d)
	return e, d, err
}

// question is what a person sees. Its hash binds an answer to this act under
// this policy.
func question(c *Caller, r Request, d cofferdam.Decision, s Shown) cofferdam.Question {
	var opens *cofferdam.Bounds
	if r.Proposes != nil {
		opens = &r.Proposes.Bounds
	}
	all, err := json.Marshal([]any{r.Source, r.Kind, r.Resource, r.Query, s.Digest, s.Size, s.Target, d.Policy, c.Session, opens})
	if err != nil {
		panic(fmt.Sprintf("gateway: a question always marshals: %v", err)) // texts and numbers; arguments are JSON already
	}
	return cofferdam.Question{
		Scope: c.Scope, Task: c.Task, Session: c.Session, Actor: c.event(r).Actor, Source: r.Source, Action: r.Query.Action, Resource: r.Resource,
		Bytes: s.Bytes, Size: s.Size, Target: s.Target, Hash: digest(all), Policy: d.Policy, Rule: d.Rule, Reason: d.Reason, Needs: max(d.People, 1), Proposed: opens,
	}
}

func people(q cofferdam.Question) string {
	var s string
	for i, a := range q.Answers {
		if i > 0 {
			s += " "
		}
		s += a.By.String()
	}
	return s
}

// with returns a copy of m with more in it.
func with(m map[string]string, pairs ...string) map[string]string {
	out := make(map[string]string, len(m)+len(pairs)/2)
	for k, v := range m {
		out[k] = v
	}
	for i := 0; i+1 < len(pairs); i += 2 {
		out[pairs[i]] = pairs[i+1]
	}
	return out
}
