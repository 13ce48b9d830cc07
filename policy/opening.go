package policy

import (
	"fmt"
	"slices"
	"time"

	"cofferdam"
)

// Opening is what a person's answer opens for a while. It opens what nothing
// permits, and what a rule asks about; never what a rule denies.
type Opening struct {
	Rule             // ID names the answer
	Until  time.Time // at the latest
	Uses   int       // acts that may pass by it; 0: no bound. Who lets them pass counts them
	Bytes  int64     `json:",omitempty"` // that may pass by it, both ways; 0: no bound. Who lets them pass counts them
	People int       `json:",omitempty"` // who opened it: what a rule wants more people for it does not open; 0: one
	Reason string    // for people: who, and for which approval
}

// ParseOpening reads what a person opens by an answer about an action: one entry
// of a list of its section. A preset or a splice is none: nobody could say how
// far it goes.
func ParseOpening(action, entry string) (Rule, error) {
	var r Rule
	var err error
	switch s := sectionOf(action); s {
	case "":
		err = fmt.Errorf("%q is no action", shorten(action))
	case Egress:
		r, err = parseRule(entry)
		if err == nil && r.Splice {
			err = fmt.Errorf("what passes unseen cannot be opened by an answer")
		}
	default:
		r, err = parseName(s, entry)
	}
	if err != nil {
		return Rule{}, &cofferdam.Error{
			Op: "policy.ParseOpening", Kind: cofferdam.Invalid, Subject: fmt.Sprintf("entry %q", shorten(entry)), Reason: err.Error(),
			Hint: "write it as in a list of the policy, such as api.example.com", Err: err,
		}
	}
	r.Origin, r.Effect, r.Mode = entry, Allow, Enforce
	return r, nil
}

// WhyLocked says why no answer of a person opens what a rule of one host names for a
// task, and what to do; "" if one may.
func (s *Set) WhyLocked(r Rule) (reason, hint string) {
	port := r.Port
	if port == 0 {
		port = httpsPort
	}
	q := Query{Action: HTTP, Host: cofferdam.Host(r.Pattern), Port: port, Method: "GET", Path: "/"}
	if name := s.grant.beyond(r); name != "" {
		return fmt.Sprintf("%s is beyond what the policy of the %s lets a task have", r, name), "an owner can change it with cofferdam policy propose"
	}
	if d := s.Decide(q); d.Verdict == cofferdam.Refused && d.Rule != DefaultDeny {
		return d.Reason, "what a rule denies no answer of a person opens"
	}
	if s.Locked(q) {
		return fmt.Sprintf("a rule that no answer of a person opens leaves %s out", r), "an owner can change it with cofferdam policy propose"
	}
	return "", ""
}

// Base is the digest of what was written and given at the start, whatever people
// opened since: while it stays, a question that was asked is still the same.
func (s *Set) Base() cofferdam.Digest { return s.base }

// Opening returns what a person opened, by the rule that a decision names.
func (s *Set) Opening(rule string) (Opening, bool) {
	i := slices.IndexFunc(s.grant.Openings, func(g Opening) bool { return g.ID == rule })
	if i < 0 {
		return Opening{}, false
	}
	return s.grant.Openings[i], true
}
