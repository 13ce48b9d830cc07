package proof

import (
	"fmt"

	"cofferdam"
)

// judge takes in by what the session under way is judged from an event on.
func (c *checker) judge(e event) error {
	if e.Kind != cofferdam.EventSessionState || e.On != cofferdam.StepPolicy {
		return nil
	}
	j, ok := cofferdam.JudgedBy(cofferdam.Event{Seq: e.Seq, Session: e.Session, Kind: e.Kind, Resource: e.On, Fields: e.fields()})
	if !ok { // of a version before
		return nil
	}
	if len(c.judged) >= maxPolicies {
		return c.fail("sessions are judged by more than %d policies", maxPolicies)
	}
	c.judged[j] = true
	return nil
}

// policy checks a document: that it is the one of its signed change.
func (c *checker) policy(l line) error {
	body, err := open([]byte(l.Note), c.key)
	if err != nil {
		return c.fail("policy: %w", err)
	}
	change, err := parsePolicy(body)
	if err != nil {
		return c.fail("%w", err)
	}
	if have := DigestOf([]byte(l.Text)); have != change.Digest {
		return c.fail("the text of version %d of the policy is not the one that was signed: it gives %s, and %s was signed", change.Version, have, change.Digest)
	}
	if len(c.report.Policies) >= maxPolicies {
		return c.fail("more than %d policies", maxPolicies)
	}
	c.texts[change.Digest] = true
	c.report.Policies = append(c.report.Policies, change)
	return nil
}

// terms checks what a receipt says of policies against the traces that it rests on.
func (c *checker) terms(r Receipt) error {
	if r.Terms == nil {
		return nil
	}
	for _, j := range r.Terms.Judged {
		if !c.judged[j] {
			return c.fail("receipt %s says that session %.80q was judged by %.80q from event %d on, and its trace does not", r.ID, j.Session, j.Policy, j.From)
		}
	}
	return nil
}

// documents makes sure that every document by which a session was judged is here.
func (c *checker) documents() error {
	if c.schema == exportBefore {
		return nil
	}
	for j := range c.judged {
		for _, d := range j.Documents() {
			if !c.texts[d] {
				return tampered("check export", fmt.Errorf("session %s was judged by the document %.80q, whose signed version is not here", j.Session, d))
			}
		}
	}
	return nil
}
