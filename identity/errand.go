package identity

import (
	"context"
	"crypto/subtle"
	"encoding/base64"
	"encoding/json"

	"cofferdam"
)

// errand is what our own page knows of a challenge: the ticket in its address, what
// it shows, what it gives to the browser, and the browser's answer.
type errand struct {
	ticket, what string
	options      json.RawMessage
	answer       []byte
}

// PagePath is where that page is, below the origin of passkeys.
const PagePath = "/v1/passkeys/page"

// Errand has a browser ask for the caller's passkey about what is asked of the
// server, which what says in the server's own words; with about "" it makes a new
// one. It is the same errand until it is over or its answer has been used.
func (p *Passkeys) Errand(ctx context.Context, who Caller, about cofferdam.Digest, what string) (cofferdam.Errand, error) {
	of := purposeOf(who, about)
	if e, ok := p.errand(of); ok {
		return e, nil
	}
	var options []byte
	var err error
	if about == "" {
		options, err = p.Register(ctx, who)
	} else {
		options, err = p.Ask(ctx, of.person, about)
	}
	if err != nil {
		return cofferdam.Errand{}, err
	}
	p.mu.Lock()
	if c := p.open[of]; c != nil { // somebody may have ended it already
		c.errand = errand{ticket: base64.RawURLEncoding.EncodeToString(random(32)), what: what, options: options}
	}
	p.mu.Unlock()
	e, ok := p.errand(of)
	if !ok {
		return e, &cofferdam.Error{Op: "identity.Errand", Kind: cofferdam.Conflict, Subject: "passkey", Reason: "it is asked for more often than it can be given", Hint: "try again"}
	}
	return e, nil
}

func (p *Passkeys) errand(of purpose) (cofferdam.Errand, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.open[of]
	if c == nil || c.ticket == "" || c.answer != nil || !p.d.o.Now().Before(c.ends) {
		return cofferdam.Errand{}, false
	}
	return cofferdam.Errand{Address: p.origin + PagePath + "#" + c.ticket, Expires: c.ends.UTC(), Options: c.options}, true
}

// Answered returns what a browser answered to an errand of a person.
func (p *Passkeys) Answered(who Caller, about cofferdam.Digest) ([]byte, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.open[purposeOf(who, about)]
	if c == nil || c.answer == nil || !p.d.o.Now().Before(c.ends) {
		return nil, false
	}
	return c.answer, true
}

// byTicket finds the errand that a page was opened for. The caller holds mu.
func (p *Passkeys) byTicket(ticket string) (purpose, *challenge, error) {
	now := p.d.o.Now()
	for of, c := range p.open {
		if c.ticket != "" && subtle.ConstantTimeCompare([]byte(c.ticket), []byte(ticket)) == 1 && now.Before(c.ends) && c.answer == nil {
			return of, c, nil
		}
	}
	return purpose{}, nil, &cofferdam.Error{Op: "identity.Page", Kind: cofferdam.NotFound, Subject: "passkey", Reason: "nobody asks for one here, or it was given", Hint: "begin again at the terminal"}
}

// Page returns what the page of a ticket shows.
func (p *Passkeys) Page(ticket string) (cofferdam.PasskeyPage, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	of, c, err := p.byTicket(ticket)
	if err != nil {
		return cofferdam.PasskeyPage{}, err
	}
	kind := "get"
	if of.about == "" {
		kind = "create"
	}
	return cofferdam.PasskeyPage{Schema: "cofferdam/passkey-page/v1", Kind: kind, What: c.what, Options: c.options}, nil
}

// Answer takes what the browser gave back, once. Whether it holds is found out
// when it is used.
func (p *Passkeys) Answer(ticket string, answer []byte) error {
	if len(answer) == 0 || len(answer) > maxAnswer || !json.Valid(answer) {
		return invalid("identity.Answer", "passkey", "the browser's answer is no credential as JSON, or is longer than 64 KiB")
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	_, c, err := p.byTicket(ticket)
	if err == nil {
		c.answer = answer
	}
	return err
}
