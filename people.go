package cofferdam

import "time"

// Proof is what a person gives to show that they are there.
type Proof struct {
	Kind      string `json:"kind"` // password, totp or passkey
	Password  string `json:"password,omitempty"`
	Code      string `json:"code,omitempty"`
	Assertion []byte `json:"assertion,omitempty"` // of a passkey over a challenge that has the digest in it
}

// NoProof is the reason of the refusal of a request without a proof that nothing but
// the proof stands in the way of.
const NoProof = "none was given"

// String hides what is in p.
func (p Proof) String() string { return p.Kind + " [redacted]" }

// GoString hides what is in p.
func (p Proof) GoString() string { return p.String() }

// EnrollRequest asks for a factor, with a proof by one that the person has.
type EnrollRequest struct {
	Kind     string `json:"kind"`
	Name     string `json:"name"`               // for the person: "phone"
	Password string `json:"password,omitempty"` // of a password
	Secret   string `json:"secret,omitempty"`   // of a TOTP
	Code     string `json:"code,omitempty"`     // of a TOTP: a first code, which shows that it arrived
	// Of a passkey: what the browser answered. Only pages of our own ask for one.
	Credential []byte `json:"credential,omitempty"`
	Proof      Proof  `json:"proof"`
}

// String hides what is in e.
func (e EnrollRequest) String() string { return e.Kind + " [redacted]" }

// GoString hides what is in e.
func (e EnrollRequest) GoString() string { return e.String() }

// Factor is something by which a person proves who they are, without what it holds.
type Factor struct {
	Schema  string    `json:"schema"` // cofferdam/factor/v1
	ID      string    `json:"id"`
	Kind    string    `json:"kind"`
	Name    string    `json:"name"`
	Created time.Time `json:"created"`
}

// AnswerRequest is what a person sends about a question that they looked at.
type AnswerRequest struct {
	Hash    Digest  `json:"hash"` // of what they saw
	Allow   bool    `json:"allow"`
	Comment string  `json:"comment,omitempty"`
	Bounds  *Bounds `json:"bounds,omitempty"`
	Proof   Proof   `json:"proof"`
}

// MemberLevel says how much of an organisation a role is for.
type MemberLevel = PolicyLevel

// Member is a person or a service account of an organisation, as it is shown.
type Member struct {
	Schema   string       `json:"schema"` // cofferdam/member/v1
	ID       PersonID     `json:"id"`
	Name     string       `json:"name"`
	Service  bool         `json:"service"` // a program's account
	Roles    []MemberRole `json:"roles"`
	Created  time.Time    `json:"created"`
	Disabled time.Time    `json:"disabled,omitzero"`
}

// MemberRole is a role of a member in a project, or with project "" in all of the
// organisation's.
type MemberRole struct {
	Project ProjectID `json:"project,omitempty"`
	Name    string    `json:"name,omitempty"` // of the project
	Role    string    `json:"role"`
}

// MemberRequest gives somebody a role in the project of the request, or in all of
// the organisation. Who is not there yet is made.
type MemberRequest struct {
	Name    string      `json:"name"`
	Service bool        `json:"service,omitempty"`
	Role    string      `json:"role"`
	Level   MemberLevel `json:"level,omitempty"`
	Proof   Proof       `json:"proof"`
}

// MemberAdded is a member and, if the account is new or open again and a person's,
// the invitation by which they choose a password. It is shown once.
type MemberAdded struct {
	Schema     string `json:"schema"` // cofferdam/member-added/v1
	Member     Member `json:"member"`
	Invitation string `json:"invitation,omitempty"`
}

// String hides the invitation.
func (m MemberAdded) String() string { return m.Member.Name + " [redacted]" }

// GoString hides the invitation.
func (m MemberAdded) GoString() string { return m.String() }

// MemberRemoval takes a role away, or with level organization the account.
type MemberRemoval struct {
	Level MemberLevel `json:"level,omitempty"`
	Proof Proof       `json:"proof"`
}

// MemberReopening opens a closed account again, with a role in the project of the
// request or in all of the organisation, and with nothing else of what it had.
type MemberReopening struct {
	Role  string      `json:"role"`
	Level MemberLevel `json:"level,omitempty"`
	Proof Proof       `json:"proof"`
}

// ProjectRequest asks for a project of the caller's organisation.
type ProjectRequest struct {
	Name string `json:"name"`
}

// Organization is one of those that a server has. Nothing of one is seen by another.
type Organization struct {
	Schema  string         `json:"schema"` // cofferdam/organization/v1
	ID      OrganizationID `json:"id"`
	Name    string         `json:"name"`
	Created time.Time      `json:"created"`
}

// OrganizationRequest asks for one with a first project, default, and a person who
// owns it.
type OrganizationRequest struct {
	Name  string `json:"name"`
	Owner string `json:"owner"`
	Proof Proof  `json:"proof"`
}

// OrganizationAdded is an organisation and the invitation by which its owner
// chooses a password. It is shown once.
type OrganizationAdded struct {
	Schema       string       `json:"schema"` // cofferdam/organization-added/v1
	Organization Organization `json:"organization"`
	Owner        string       `json:"owner"`
	Invitation   string       `json:"invitation"`
}

// String hides the invitation.
func (o OrganizationAdded) String() string { return o.Organization.Name + " [redacted]" }

// GoString hides the invitation.
func (o OrganizationAdded) GoString() string { return o.String() }

// Token is a bearer token without its text.
type Token struct {
	Schema  string    `json:"schema"` // cofferdam/token/v1
	ID      TokenID   `json:"id"`
	Holder  string    `json:"holder"`            // as a principal: person:ann
	Project ProjectID `json:"project,omitempty"` // good there alone; "": wherever its holder is
	Role    string    `json:"role"`              // at most
	Verbs   []string  `json:"verbs,omitempty"`   // none: all that the role may
	Login   bool      `json:"login"`             // of a person who signed in
	By      string    `json:"by"`
	Created time.Time `json:"created"`
	Expires time.Time `json:"expires"`
	Revoked time.Time `json:"revoked,omitzero"`
	Used    time.Time `json:"used,omitzero"`    // to the minute
	Closed  bool      `json:"closed,omitempty"` // its holder's account is: it does not count
}

// TokenRequest asks for a token of the caller's, or of a service account.
type TokenRequest struct {
	Holder  string      `json:"holder,omitempty"` // a service account; "": the caller
	Role    string      `json:"role"`
	Level   MemberLevel `json:"level,omitempty"` // project: good in that of the request alone
	Verbs   []string    `json:"verbs,omitempty"`
	Seconds float64     `json:"seconds,omitempty"` // how long it is good for; 0: 30 days
	Proof   Proof       `json:"proof"`
}

// LoginBegin asks for the address at an identity provider by which a browser
// signs in and comes back to redirect, a port of the person's own machine.
type LoginBegin struct {
	Redirect string `json:"redirect"`
}

// LoginFlow is a sign-in at an identity provider that has begun.
type LoginFlow struct {
	Schema  string `json:"schema"` // cofferdam/login-flow/v1
	Address string `json:"address"`
	Ticket  string `json:"ticket"`
}

// String hides the ticket.
func (f LoginFlow) String() string { return f.Address }

// GoString hides the ticket.
func (f LoginFlow) GoString() string { return f.String() }

// LoginDevice is a sign-in that a person ends in a browser of any machine (RFC 8628).
type LoginDevice struct {
	Schema   string    `json:"schema"` // cofferdam/login-device/v1
	Ticket   string    `json:"ticket"`
	Code     string    `json:"code"`               // that the person gives
	Address  string    `json:"address"`            // where they give it
	Complete string    `json:"complete,omitempty"` // the address with the code in it
	Seconds  float64   `json:"seconds"`            // between two looks whether they have
	Expires  time.Time `json:"expires"`
}

// String hides the ticket.
func (d LoginDevice) String() string { return d.Address }

// GoString hides the ticket.
func (d LoginDevice) GoString() string { return d.String() }

// LoginTicket is that of a sign-in under way.
type LoginTicket struct {
	Ticket string `json:"ticket"`
}

// String hides the ticket.
func (t LoginTicket) String() string { return "[redacted]" }

// GoString hides the ticket.
func (t LoginTicket) GoString() string { return t.String() }

// LoginFinish is what a browser came back with. Proof is for binding an account
// that has something to prove by.
type LoginFinish struct {
	Ticket string `json:"ticket"`
	State  string `json:"state"`
	Code   string `json:"code"`
	Proof  Proof  `json:"proof"`
}

// String hides what is in f.
func (f LoginFinish) String() string { return "[redacted]" }

// GoString hides what is in f.
func (f LoginFinish) GoString() string { return f.String() }

// Login is a token with its text, which is told once.
type Login struct {
	Schema string `json:"schema"` // cofferdam/login/v1
	Token  Token  `json:"token"`
	Text   string `json:"text"`
}

// String hides the token.
func (l Login) String() string { return string(l.Token.ID) + " [redacted]" }

// GoString hides the token.
func (l Login) GoString() string { return l.String() }

// LoginRequest is how a person signs in: with a password, and a code of their
// application if they have one.
type LoginRequest struct {
	Organization string `json:"organization,omitempty"` // by name; "": the server's own
	Name         string `json:"name"`
	Password     string `json:"password"`
	Code         string `json:"code,omitempty"`
}

// String hides what is in r.
func (r LoginRequest) String() string { return r.Name + " [redacted]" }

// GoString hides what is in r.
func (r LoginRequest) GoString() string { return r.String() }
