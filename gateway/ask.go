package gateway

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
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
	h := sha256.Sum256(b)
	return cofferdam.Digest("sha256:" + hex.EncodeToString(h[:]))
}

// ask puts an act before a person and decides anew when there is an answer: what
// counts is the policy of that moment, which has to be the one that asked: base.
// The answer is used up by it, and what it opens beyond this act is open then.
func ask(ctx context.Context, c *Caller, r Request, d cofferdam.Decision, base cofferdam.Digest) (cofferdam.Event, cofferdam.Decision, error) {
	refuse := func(rule, reason, hint string) (cofferdam.Event, cofferdam.Decision, error) {
		now := c.Policy.Set()
		d.Verdict, d.Rule, d.Reason, d.Hint, d.Policy, d.Base = cofferdam.Refused, rule, reason, hint, now.Digest(), now.Base()
		r.Query = policy.Query{}
		e, err := record(ctx, c, r, d)
		return e, d, err
	}
	if c.Ask == nil {
		return refuse(RuleNobody, "a person would have to allow it, and there is nobody to ask here", "run it as a task of a server")
	}
	shown := Show(nil, "")
	if r.Show != nil {
		var err error
		if shown, err = r.Show(ctx); err != nil {
			reason, hint := Explain(err)
			return refuse(RuleUnshown, "a person would have to see it whole: "+reason, hint)
		}
	}
	if _, err := c.Budget.Reserve(budget.Amount{Approvals: 1}); err != nil {
		reason, hint := Explain(err)
		return refuse(cofferdam.RuleBudget, reason, hint)
	}
	q := question(c, r, d, shown)
	q, err := c.Ask.Ask(ctx, q)
	if cofferdam.KindOf(err) == cofferdam.Denied && err != nil {
		reason, hint := Explain(err)
		return refuse(RuleAnswer, reason, hint)
	}
	if err != nil {
		return cofferdam.Event{}, d, err
	}
	g, opens, err := Opening(q)
	if err == nil && opens {
		err = c.Policy.Give(g)
	}
	if r.Proposes != nil && (err != nil || !opens) {
		return refuse(RuleAnswer, "people allowed it, and opened nothing", "ask again")
	}
	if r.Proposes != nil { // what counts is whether the host is open now; to say so takes no act of the opening
		r.Proposes.Opened, r.Proposes, r.Query.Action = g, nil, policy.Connect
	}
	if err != nil { // the one act may pass all the same
		r.Fields = with(r.Fields, fieldUnopened, err.Error())
	}
	again, now, err := decide(ctx, c, r)
	switch {
	case err != nil:
		return cofferdam.Event{}, d, err
	case again.Verdict == cofferdam.Refused:
		return refuse(again.Rule, again.Reason, again.Hint)
	case now != base && again.Verdict == cofferdam.Asked:
		return refuse(RuleMoved, "the policy was changed while a person was asked", "try again: it is asked anew")
	default:
		d = again
	}
	if err := c.Ask.Use(ctx, q.ID, q.Hash); err != nil {
		reason, hint := Explain(err)
		return refuse(RuleAnswer, reason, hint)
	}
	d.Verdict = cofferdam.Allowed
	r.Fields = with(r.Fields, cofferdam.FieldAnswer, string(q.ID), cofferdam.FieldAnswers, people(q))
	r.Durable, r.Query = true, policy.Query{} // policy's own answer is on record: that it asked
	e, err := record(ctx, c, r, d)
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
