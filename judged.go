package cofferdam

// Judged says by what a session was judged from one event of its log on.
type Judged struct {
	Session SessionID `json:"session"`
	From    uint64    `json:"from"`   // number of that event
	Policy  Digest    `json:"policy"` // of the whole, as its decisions name it in FieldPolicy
	// Organization and Project are the digests of the texts of the documents that
	// are part of it; empty: there was none.
	Organization Digest `json:"organization,omitempty"`
	Project      Digest `json:"project,omitempty"`
}

// Documents are the digests of the documents of j.
func (j Judged) Documents() []Digest {
	var all []Digest
	for _, d := range []Digest{j.Organization, j.Project} {
		if d != "" {
			all = append(all, d)
		}
	}
	return all
}

// StepPolicy is the resource of the session.state event from which on a session is
// judged by another policy.
const StepPolicy = "policy"

// Fields of that event. FieldPolicy is one of decisions as well.
const (
	FieldPolicy           = "policy_base"  // digest of the policy, without what people opened since: see FieldAnswer
	FieldOrganizationText = "organisation" // digest of the organisation's document
	FieldProjectText      = "project"      // and of the project's
)

// JudgedBy reads such an event; false if e is another.
func JudgedBy(e Event) (Judged, bool) {
	f := e.Fields
	if e.Kind != EventSessionState || e.Resource != StepPolicy || f[FieldPolicy] == "" {
		return Judged{}, false
	}
	return Judged{e.Session, e.Seq, Digest(f[FieldPolicy]), Digest(f[FieldOrganizationText]), Digest(f[FieldProjectText])}, true
}

// Fields of a decision that people had a part in.
const (
	FieldAnswer  = "approval"   // id of the question whose answer let it pass
	FieldAnswers = "allowed_by" // who gave it
)

// RuleGiven begins the rule of what an answer opened; the question's id follows.
const RuleGiven = "given."

// Passed says which answer of people let acts of a session pass.
type Passed struct {
	Session  SessionID  `json:"session"`
	Question QuestionID `json:"question"`     // its answer is in the host's log
	By       string     `json:"by,omitempty"` // who gave it, where it was asked for; the host's log has it of all
	Opened   bool       `json:"opened"`       // it opened more than the act that was asked about
	Acts     int64      `json:"acts"`         // that passed by it
	First    string     `json:"first"`        // of those, its kind and resource
}

// What is on record of a task's scope.
const (
	RuleScope   = "beyond-scope" // an act was refused because the task's scope does not have it
	FieldBeyond = "beyond_scope" // of a push: the first of its files that go beyond, as one line; of a call the tool
)

// Strays is what went beyond the scope of a task.
type Strays struct {
	Refused int64    `json:"refused"`          // acts
	Marked  []string `json:"marked,omitempty"` // files that were pushed all the same, one line for each push, and tools that were called
}
