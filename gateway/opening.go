package gateway

import (
	"context"
	"slices"
	"strings"
	"time"

	"cofferdam"
	"cofferdam/policy"
)

// givenPrefix begins the rule of what an answer opened; the question's id follows.
const givenPrefix = "given."

// Opening returns what the answers to a question open beyond its one act; false
// if they open nothing. Of two people both have to open the same, and the
// narrower bounds count.
func Opening(q cofferdam.Question) (policy.Given, bool, error) {
	var b cofferdam.Bounds
	var at time.Time
	n := 0
	for _, a := range q.Answers {
		if !a.Allow || a.Bounds == nil || n > 0 && a.Bounds.Entry != b.Entry {
			return policy.Given{}, false, nil
		}
		if n == 0 {
			b = *a.Bounds
		}
		b.Seconds = min(b.Seconds, a.Bounds.Seconds)
		if a.Bounds.Uses > 0 && (b.Uses == 0 || a.Bounds.Uses < b.Uses) {
			b.Uses = a.Bounds.Uses
		}
		if at.Before(a.Time) {
			at = a.Time
		}
		n++
	}
	if n == 0 || q.State != cofferdam.QuestionAllowed {
		return policy.Given{}, false, nil
	}
	r, err := policy.ParseOpening(q.Action, b.Entry)
	if err != nil {
		return policy.Given{}, false, err
	}
	r.ID = givenPrefix + string(q.ID)
	return policy.Given{
		Rule: r, Until: at.Add(time.Duration(b.Seconds * float64(time.Second))), Uses: b.Uses, Reason: people(q) + " by " + string(q.ID),
	}, true, nil
}

// decide asks policy and returns the answer, and what of the policy a question
// is bound to. An act that passes by what a person opened for a number of acts
// takes one of them; if none is left, it is judged without that.
func decide(ctx context.Context, c *Caller, r Request) (cofferdam.Decision, cofferdam.Digest, error) {
	for {
		set := c.Policy.Set()
		d := set.Decide(r.Query)
		g, given := set.Given(d.Rule)
		if d.Verdict != cofferdam.Allowed || !given || g.Uses == 0 || !counts(r.Query) {
			return d, set.Base(), nil
		}
		err := error(&cofferdam.Error{Op: "gateway.Handle", Kind: cofferdam.Conflict, Reason: "nobody counts it"})
		if c.Ask != nil {
			err = c.Ask.UseOpening(ctx, cofferdam.QuestionID(strings.TrimPrefix(g.ID, givenPrefix)), g.Uses)
		}
		if err == nil {
			return d, set.Base(), nil
		}
		if cofferdam.KindOf(err) != cofferdam.Conflict {
			return d, "", err
		}
		c.Policy.end(g.ID)
	}
}

// counts says whether an act is one of those that an opening has a number of. To
// know a name and to connect come before a request that counts.
func counts(q policy.Query) bool {
	return !slices.Contains([]string{policy.Resolve, policy.Connect}, q.Action) || q.Splice
}
