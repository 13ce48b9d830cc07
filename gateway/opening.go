package gateway

import (
	"context"
	"slices"
	"strings"
	"time"

	"cofferdam"
	"cofferdam/policy"
)

// OpeningOf returns what the answers to a question open beyond its one act; false
// if they open nothing. Of two people both have to open the same, and the
// narrower bounds count.
func OpeningOf(q cofferdam.Question) (policy.Opening, bool, error) {
	var b cofferdam.Bounds
	var at time.Time
	n := 0
	for _, a := range q.Answers {
		if !a.Allow || a.Bounds == nil || n > 0 && a.Bounds.Entry != b.Entry {
			return policy.Opening{}, false, nil
		}
		if n == 0 {
			b = *a.Bounds
		}
		b.Seconds = min(b.Seconds, a.Bounds.Seconds)
		if a.Bounds.Uses > 0 && (b.Uses == 0 || a.Bounds.Uses < b.Uses) {
			b.Uses = a.Bounds.Uses
		}
		if a.Bounds.Bytes > 0 && (b.Bytes == 0 || a.Bounds.Bytes < b.Bytes) {
			b.Bytes = a.Bounds.Bytes
		}
		if at.Before(a.Time) {
			at = a.Time
		}
		n++
	}
	if n == 0 || q.State != cofferdam.QuestionAllowed {
		return policy.Opening{}, false, nil
	}
	r, err := policy.ParseOpening(q.Action, b.Entry)
	if err != nil {
		return policy.Opening{}, false, err
	}
	r.ID = cofferdam.RuleGiven + string(q.ID)
	return policy.Opening{
		Rule: r, Until: at.Add(time.Duration(b.Seconds * float64(time.Second))), Uses: b.Uses, Bytes: b.Bytes, People: n, Reason: people(q) + " by " + string(q.ID),
	}, true, nil
}

// decide asks policy and returns the answer, and what of the policy a question
// is bound to. An act that passes by what a person opened for a number of acts
// takes one of them, and of a number of bytes those that are known; if there are
// not enough, that opening is over, and the act is judged without it.
func decide(ctx context.Context, c *Caller, r Request) (cofferdam.Decision, cofferdam.Digest, error) {
	for {
		set := c.Policy.Set()
		d := set.Decide(r.Query)
		if r.Proposes != nil {
			return proposed(set, d, r.Proposes), set.Base(), nil
		}
		g, opened := set.Opening(d.Rule)
		if d.Verdict != cofferdam.Allowed || !opened || !counts(r.Query) {
			return d, set.Base(), nil
		}
		why, err := draw(ctx, c, r, g)
		if err != nil {
			return d, "", err
		}
		if why == "" {
			return d, set.Base(), nil
		}
		if err := c.end(ctx, g.ID, why); err != nil {
			return d, "", err
		}
	}
}

// draw takes from an opening what an act needs of it; why it cannot otherwise.
func draw(ctx context.Context, c *Caller, r Request, g policy.Opening) (why string, err error) {
	if g.Uses == 0 && g.Bytes == 0 {
		return "", nil
	}
	if c.Ask == nil || g.Bytes > 0 && r.Carries == nil {
		return "nobody counts what it opened", nil
	}
	if g.Bytes > 0 {
		if err := r.Carries.draw(ctx, c, g); err != nil {
			return conflicting(err)
		}
	}
	if g.Uses == 0 {
		return "", nil
	}
	err = c.Ask.UseOpening(ctx, questionOf(g.ID), g.Uses)
	if err != nil && r.Carries != nil {
		r.Carries.Settle(0)
	}
	return conflicting(err)
}

// conflicting returns why something is used up, or that it is another error.
func conflicting(err error) (string, error) {
	if cofferdam.KindOf(err) == cofferdam.Conflict {
		why, _ := Explain(err)
		return why, nil
	}
	return "", err
}

// questionOf is the question whose answer opened what has this id.
func questionOf(opening string) cofferdam.QuestionID {
	return cofferdam.QuestionID(strings.TrimPrefix(opening, cofferdam.RuleGiven))
}

// end takes away what a person opened, for good and on record.
func (c *Caller) end(ctx context.Context, id, why string) error {
	c.Policy.end(id)
	if c.Ask == nil {
		return nil
	}
	return c.Ask.EndOpening(context.WithoutCancel(ctx), c.Scope, questionOf(id), why)
}

// counts says whether an act is one of those that an opening has a number of. To
// know a name and to connect come before a request that counts.
func counts(q policy.Query) bool {
	return !slices.Contains([]string{policy.Resolve, policy.Connect}, q.Action) || q.Splice
}
