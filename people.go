package cofferdam

import "time"

// Proof is what a person gives to show that they are there.
type Proof struct {
	Kind      string `json:"kind"` // password, totp or passkey
	Password  string `json:"password,omitempty"`
	Code      string `json:"code,omitempty"`
	Assertion []byte `json:"assertion,omitempty"` // of a passkey over a challenge that has the digest in it
}

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
	Proof    Proof  `json:"proof"`
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
