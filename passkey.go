package cofferdam

import (
	"encoding/json"
	"time"
)

// Errand is what a person is asked to do with a browser: to have their passkey
// sign for a request, or to make one. Until then the request, sent again as it
// was, is answered by the same errand.
type Errand struct {
	Address string    `json:"address"` // of the page that asks for the passkey; it is a secret of the person's
	Expires time.Time `json:"expires"`
	// Options are those of WebAuthn, for who has a page of their own at that origin.
	Options json.RawMessage `json:"options"`
}

// Error makes an errand the cause of an error that waits for a person.
func (e *Errand) Error() string { return "a browser has to ask for a passkey" }

// String hides the address.
func (e *Errand) String() string { return "errand [redacted]" }

// GoString hides the address.
func (e *Errand) GoString() string { return e.String() }

// PasskeyTicket is what the page has that asks for a passkey.
type PasskeyTicket struct {
	Ticket string `json:"ticket"`
}

// String hides the ticket.
func (t PasskeyTicket) String() string { return "[redacted]" }

// GoString hides the ticket.
func (t PasskeyTicket) GoString() string { return t.String() }

// PasskeyPage is what the page shows, and gives to the browser.
type PasskeyPage struct {
	Schema  string          `json:"schema"` // cofferdam/passkey-page/v1
	Kind    string          `json:"kind"`   // create or get
	What    string          `json:"what"`   // the request that the passkey signs for, as the server has it
	Options json.RawMessage `json:"options"`
}

// PasskeyAnswer is what the browser gave back: the credential as JSON.
type PasskeyAnswer struct {
	Ticket string `json:"ticket"`
	Answer []byte `json:"answer"`
}

// String hides the ticket.
func (a PasskeyAnswer) String() string { return "[redacted]" }

// GoString hides the ticket.
func (a PasskeyAnswer) GoString() string { return a.String() }
