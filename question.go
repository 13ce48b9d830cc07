package cofferdam

import "time"

// QuestionID names a question to a person: a-…
type QuestionID string

// QuestionState is where a question stands.
type QuestionState string

// The states of a question. Only an open one can be answered; only an allowed
// one can be used, once for each use that its answer gave.
const (
	QuestionOpen    QuestionState = "open"
	QuestionAllowed QuestionState = "allowed"
	QuestionDenied  QuestionState = "denied"
	QuestionExpired QuestionState = "expired" // nobody answered in time
	QuestionVoid    QuestionState = "void"    // what was asked about is no longer so; Reason says why
)

// Question is what a person is asked before an act of a box happens.
type Question struct {
	Schema string     `json:"schema"` // cofferdam/approval/v1
	ID     QuestionID `json:"id"`
	Scope
	Task     TaskID        `json:"task"`
	Session  SessionID     `json:"session"`
	Actor    Principal     `json:"actor"`
	Source   string        `json:"source"` // the gateway: egress, git, model, tools
	Action   string        `json:"action"`
	Resource string        `json:"resource"`         // hostile text
	Bytes    []byte        `json:"bytes,omitempty"`  // exactly what would be sent: its first part if it is longer than MaxQuestionBytes
	Size     int64         `json:"size"`             // of all of it; -1: not known before it is sent
	Target   string        `json:"target,omitempty"` // version of what is acted on, such as the commit a ref is at
	Hash     Digest        `json:"hash"`             // of action, resource, all bytes, target and policy
	Policy   Digest        `json:"policy"`           // by which it was asked
	Rule     string        `json:"rule"`
	Reason   string        `json:"reason"` // why policy asks; of an end, why
	Story    string        `json:"story,omitempty"`
	Needs    int           `json:"needs"`              // people who have to allow it: 1 or 2
	Proposed *Bounds       `json:"proposed,omitempty"` // what an agent asks to have opened, and Bytes are its words why; an answer stays within it
	State    QuestionState `json:"state"`
	Answers  []Answer      `json:"answers,omitempty"`
	Used     int           `json:"used"`
	Created  time.Time     `json:"created"`
	Expires  time.Time     `json:"expires"`
}

// MaxQuestionBytes bounds what is shown of an act; its hash is over all of it.
const MaxQuestionBytes = 64 << 10

// Answer is what one person said.
type Answer struct {
	By      Principal `json:"by"`
	Allow   bool      `json:"allow"`
	Proof   string    `json:"proof"` // how it was seen that this is a person: password, totp, passkey
	Comment string    `json:"comment,omitempty"`
	Bounds  *Bounds   `json:"bounds,omitempty"` // what is opened beyond this one act; nil: nothing
	Time    time.Time `json:"time"`
}

// Bounds say what an answer opens for the rest of a task, and for how long.
type Bounds struct {
	Entry   string  `json:"entry"`           // as in a list of the policy's section, such as api.example.com
	Seconds float64 `json:"seconds"`         // 1 to 86,400
	Uses    int     `json:"uses,omitempty"`  // acts; 0: as many as fit in the time
	Bytes   int64   `json:"bytes,omitempty"` // sent by the box and received, together; 0: as the task's budget has it. Of hosts alone
}

// WebhookAnswer is a person's word about a question, as a system outside brings it
// that the operator has registered, in a message that it signed. Code is the
// person's own proof, of their application for codes; it may be missing where the
// operator trusts the system to know that the person is there.
type WebhookAnswer struct {
	System   string     `json:"system"`
	Person   string     `json:"person"` // what the system calls them; see WebhookBinding
	Question QuestionID `json:"question"`
	Hash     Digest     `json:"hash"` // of what they saw
	Allow    bool       `json:"allow"`
	Comment  string     `json:"comment,omitempty"`
	Bounds   *Bounds    `json:"bounds,omitempty"`
	Code     string     `json:"code,omitempty"`
}

// String hides the code.
func (a WebhookAnswer) String() string { return a.System + " about " + string(a.Question) }

// GoString hides the code.
func (a WebhookAnswer) GoString() string { return a.String() }

// WebhookBinding says what a system outside calls the caller.
type WebhookBinding struct {
	System string `json:"system"`
	Person string `json:"person"`
	Proof  Proof  `json:"proof"`
}

// WebhookSecret is what notices of questions are signed with from now on. It is
// told once.
type WebhookSecret struct {
	Schema string `json:"schema"` // cofferdam/webhook-secret/v1
	Secret string `json:"secret"` // whsec_ and 32 bytes in base64
}

// String hides the secret.
func (WebhookSecret) String() string { return "[redacted]" }

// GoString hides the secret.
func (WebhookSecret) GoString() string { return "[redacted]" }

// SignedMessage is a message of a system outside as it came in, with the headers of
// the Standard Webhooks specification.
type SignedMessage struct {
	System    string // that it says it is of
	ID        string // webhook-id
	Timestamp string // webhook-timestamp: seconds since 1970
	Signature string // webhook-signature: v1a,BASE64, one or more with a blank between
	Body      []byte
}
