package cofferdam

import "time"

// PolicyState is what became of a version of a policy.
type PolicyState string

// The states of a version. The highest that is taken counts.
const (
	PolicyProposed PolicyState = "proposed"
	PolicyTaken    PolicyState = "taken"
	PolicyRejected PolicyState = "rejected"
)

// PolicyLevel is whose a document is.
type PolicyLevel string

// The levels. The organisation's document bounds those of its projects.
const (
	OfProject      PolicyLevel = "project"
	OfOrganization PolicyLevel = "organization"
)

// PolicyVersion is one version of the document of a project, or with no project
// of an organisation.
type PolicyVersion struct {
	Schema string `json:"schema"` // cofferdam/policy/v1
	Scope
	Version    int64       `json:"version"`
	Text       string      `json:"text"`
	Digest     Digest      `json:"digest"` // of the text
	Why        string      `json:"why,omitempty"`
	State      PolicyState `json:"state"`
	ProposedBy string      `json:"proposed_by"`
	Proposed   time.Time   `json:"proposed"`
	DecidedBy  string      `json:"decided_by,omitempty"`
	Decided    time.Time   `json:"decided,omitzero"`
	Signature  string      `json:"signature,omitempty"` // note over scope, version, digest and both people
	Left       bool        `json:"left,omitempty"`      // who proposed it has no account there any more, so that nobody can agree
}

// PolicyProposal is a version as a person has to see it before they decide.
type PolicyProposal struct {
	PolicyVersion
	Level     PolicyLevel `json:"level"`
	Counts    bool        `json:"counts"` // it is the one by which sessions are judged
	Before    int64       `json:"before"` // version that counts now, which it is compared with; 0: none
	Hash      Digest      `json:"hash"`   // of what is decided about: this text in the place of that version
	Opens     []string    `json:"opens"`  // what newly becomes possible
	Closes    []string    `json:"closes"` // what no longer is
	Asks      []string    `json:"asks"`   // what a person newly has to answer
	Unbounded []string    `json:"unbounded"`
	Findings  []string    `json:"findings"` // what its author should know
	Second    bool        `json:"second_person"`
}

// PolicyRequest proposes a document.
type PolicyRequest struct {
	Level PolicyLevel `json:"level,omitempty"` // "": OfProject
	Text  string      `json:"text"`
	Why   string      `json:"why,omitempty"` // for who decides
}

// PolicyDecision is a person's word about a proposal that they looked at.
type PolicyDecision struct {
	Level PolicyLevel `json:"level,omitempty"`
	Hash  Digest      `json:"hash"` // of what they saw
	Take  bool        `json:"take"`
	Proof Proof       `json:"proof"`
}

// PolicyQuestion asks why something is allowed or not.
type PolicyQuestion struct {
	URL    string `json:"url,omitempty"`    // of a request
	Method string `json:"method,omitempty"` // of it; "": GET
	Action string `json:"action,omitempty"` // instead of a URL: invoke, use and so on
	On     string `json:"on,omitempty"`     // what that action is asked of
	Of     string `json:"of,omitempty"`     // task or session whose grant counts; "": what every task of the project has
}

// OpenRequest opens one entry for the rest of a task, by a person's word.
type OpenRequest struct {
	Action  string `json:"action,omitempty"` // in whose section the entry is; "": request, which is a host
	Bounds  Bounds `json:"bounds"`
	Comment string `json:"comment,omitempty"`
	Proof   Proof  `json:"proof"`
}

// PolicyTrial judges old events by a document that nobody has taken yet.
type PolicyTrial struct {
	Level PolicyLevel `json:"level,omitempty"`
	Text  string      `json:"text"`
	Of    string      `json:"of"` // task or session
}

// PolicySuggestion is a document made of what was observed.
type PolicySuggestion struct {
	Schema string `json:"schema"` // cofferdam/policy-suggestion/v1
	Text   string `json:"text"`
	Events int    `json:"events"` // that were read
}
