package gateway

import (
	"fmt"
	"strings"

	"cofferdam"
	"cofferdam/policy"
)

// RuleProposal is by what an agent's proposal is put before a person.
const RuleProposal = "proposal"

// Proposal is what an agent asks a person to open for its task. It passes by the
// answer to it alone.
type Proposal struct {
	Rule   policy.Rule      // of an entry that names one host
	Bounds cofferdam.Bounds // all of them
	Opened policy.Opening   // what the answer opened; set when it has passed
}

// proposed turns the answer of policy about a host into that about opening it:
// what is denied or limited is refused as it is, all else a person answers.
func proposed(s *policy.Set, d cofferdam.Decision, p *Proposal) cofferdam.Decision {
	if reason, hint := s.WhyLocked(p.Rule); reason != "" {
		if d.Verdict != cofferdam.Refused || d.Rule == policy.DefaultDeny {
			d.Rule = RuleProposal
		}
		d.Verdict, d.Reason, d.Hint = cofferdam.Refused, reason, hint
		return d
	}
	by, _, written := s.Rule(d.Rule)
	_, opened := s.Opening(d.Rule)
	switch {
	case d.Verdict == cofferdam.Allowed && (opened || !written || len(by.Methods)+len(by.Paths) == 0):
		d.Verdict, d.Rule, d.Reason, d.Hint = cofferdam.Refused, RuleProposal, fmt.Sprintf("there is nothing to ask: %s is allowed already", p.Rule), "send the request"
	case d.Verdict != cofferdam.Refused || d.Rule == policy.DefaultDeny:
		d.Verdict, d.Rule, d.Reason = cofferdam.Asked, RuleProposal, "an agent asks for it"
	}
	return d
}

// hint adds to a refusal, where a person could open what was refused, how an agent
// asks for that: in one line, because agents read it.
func (c *Caller) hint(r Request, d cofferdam.Decision) cofferdam.Decision {
	q := r.Query
	if c.Ask == nil || c.Phase != Work || r.Proposes != nil || d.Rule != policy.DefaultDeny || q.Host == "" || q.Action == policy.Resolve {
		return d
	}
	entry := string(q.Host)
	if q.Port != 0 && !policy.WebPort(q.Port) {
		entry = Target{q.Host, q.Port}.String()
	}
	if q.Credential {
		entry = policy.CredentialsPrefix + entry
	}
	rule, err := policy.ParseOpening(policy.HTTP, entry)
	if err != nil || strings.HasPrefix(rule.Pattern, "*") {
		return d
	}
	if reason, _ := c.Policy.Set().WhyLocked(rule); reason == "" {
		d.Hint += fmt.Sprintf(`; if the work needs it, ask a person and wait: curl -d '{"entry":"%s","why":"..."}' http://%s/`, entry, PolicyHost)
	}
	return d
}
