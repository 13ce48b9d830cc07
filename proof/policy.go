package proof

import (
	"fmt"
	"strings"
	"time"

	"cofferdam"
)

// PolicySchema is the schema of the statements that SignPolicy writes.
const PolicySchema = "cofferdam/policy-change/v1"

const policyTitle = "cofferdam policy change v1"

// PolicyChange says that a version of a policy counts from a moment on, and by
// whose word. Its digests are of the texts.
type PolicyChange struct {
	Schema          string           `json:"schema"` // set by SignPolicy
	cofferdam.Scope                  // no project: of the organisation
	Version         int64            `json:"version"`
	Digest          cofferdam.Digest `json:"digest"`
	Before          int64            `json:"before"` // the version that counted until then; 0: none
	ProposedBy      string           `json:"proposed_by"`
	DecidedBy       string           `json:"decided_by"`
	Time            time.Time        `json:"time"`
}

// SignedPolicy is a document of policy with the note by which it came to count.
type SignedPolicy struct {
	Note []byte
	Text string
}

// SignPolicy returns c as a signed note.
func (s Signer) SignPolicy(c PolicyChange) ([]byte, error) {
	c.Schema, c.Time = PolicySchema, c.Time.UTC()
	if c.Organization == "" || c.Version < 1 || c.Digest == "" || c.ProposedBy == "" || c.DecidedBy == "" {
		return nil, &cofferdam.Error{
			Op: "proof.SignPolicy", Kind: cofferdam.Invalid, Subject: "sign change of policy",
			Reason: "it names its organisation, version, digest and both people",
		}
	}
	line, err := encode(c)
	if err != nil {
		return nil, fmt.Errorf("sign change of policy: %w", err)
	}
	return s.sign(policyTitle + "\n" + string(line) + "\n")
}

// OpenPolicy checks a signed change of policy against a public key.
func OpenPolicy(msg []byte, public string) (PolicyChange, error) {
	v, err := verifier(public)
	if err != nil {
		return PolicyChange{}, err
	}
	text, err := open(msg, v)
	if err != nil {
		return PolicyChange{}, tampered("check change of policy", err)
	}
	c, err := parsePolicy(text)
	if err != nil {
		return PolicyChange{}, tampered("check change of policy", err)
	}
	return c, nil
}

func parsePolicy(text string) (c PolicyChange, err error) {
	body, ok := strings.CutPrefix(text, policyTitle+"\n")
	if !ok || strings.Count(body, "\n") != 1 {
		return c, fmt.Errorf("signed text is no change of policy")
	}
	if err := decode([]byte(strings.TrimSuffix(body, "\n")), &c); err != nil {
		return c, fmt.Errorf("change of policy: %w", err)
	}
	if c.Schema != PolicySchema {
		return c, fmt.Errorf("change of policy has the schema %.80q, want %s", c.Schema, PolicySchema)
	}
	return c, nil
}
