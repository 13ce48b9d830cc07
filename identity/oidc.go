package identity

import (
	"context"
	"crypto/subtle"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"cofferdam"
)

// Bounds of signing in at a provider. Source: docs/SPECIFICATION.md, "Identity".
const (
	FlowLife = 10 * time.Minute // from its begin to its end
	maxFlows = 64               // begun and not ended
	ownFlows = 8                // of those, of one source
	provider = 30 * time.Second // for each call to it
	maxSaid  = 1 << 20          // bytes of one of its answers
)

// Provider is an identity provider as an operator names it.
type Provider struct {
	Issuer string // https, or http on loopback
	Client string // our id there; of a public client, so that there is no secret to keep
}

// OIDC signs people in by a provider: the authorization code of OpenID Connect,
// with PKCE, state and nonce. All three stay here: who carries the code back has
// only a ticket, and the address that the browser is sent to has none. Safe for
// concurrent use.
type OIDC struct {
	p   Provider
	d   *Directory
	web *http.Client

	mu    sync.Mutex
	found *oidc.Provider   // guarded by mu; asked for at first use
	flows map[string]*flow // guarded by mu; by hash of the ticket
}

// flow is a sign-in under way.
type flow struct {
	state, nonce, verifier, redirect string
	source                           string  // who began it
	device                           *device // nil: a browser comes back with a code
	ends                             time.Time
}

// NewOIDC returns an OIDC for people of d.
func NewOIDC(p Provider, d *Directory) (*OIDC, error) {
	u, err := url.Parse(p.Issuer)
	if err != nil || u.Host == "" || u.RawQuery != "" || u.User != nil || u.Scheme != "https" && !(u.Scheme == "http" && loopback(u)) {
		return nil, invalid("identity.NewOIDC", "issuer of the identity provider", "it is no https address")
	}
	if p.Client == "" {
		return nil, invalid("identity.NewOIDC", "client of the identity provider", "it is empty")
	}
	return &OIDC{p: p, d: d, flows: map[string]*flow{}, web: &http.Client{Timeout: provider, Transport: bounded{}, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}, nil
}

// bounded ends an answer that does not end by itself.
type bounded struct{}

// RoundTrip implements http.RoundTripper.
func (bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := http.DefaultTransport.RoundTrip(r)
	if err == nil {
		resp.Body = http.MaxBytesReader(nil, resp.Body, maxSaid)
	}
	return resp, err
}

func loopback(u *url.URL) bool {
	a, err := netip.ParseAddr(u.Hostname())
	return err == nil && a.IsLoopback()
}

// at returns the provider, which it asks about itself once.
func (o *OIDC) at(ctx context.Context) (*oidc.Provider, context.Context, error) {
	ctx = oidc.ClientContext(ctx, o.web)
	o.mu.Lock()
	found := o.found
	o.mu.Unlock()
	if found != nil {
		return found, ctx, nil
	}
	found, err := oidc.NewProvider(context.WithoutCancel(ctx), o.p.Issuer) // its keys are asked for later as well
	if err != nil {
		return nil, nil, &cofferdam.Error{Op: "identity.OIDC", Kind: cofferdam.Unavailable, Subject: "identity provider " + o.p.Issuer, Reason: "it does not say how to sign in there", Hint: "see whether it is up, and whether issuer is its own name for itself", Err: err}
	}
	o.mu.Lock()
	o.found = found
	o.mu.Unlock()
	return found, ctx, nil
}

func (o *OIDC) config(p *oidc.Provider, redirect string) *oauth2.Config {
	return &oauth2.Config{ClientID: o.p.Client, Endpoint: p.Endpoint(), RedirectURL: redirect, Scopes: []string{oidc.ScopeOpenID}}
}

// Begin returns the address that a browser goes to, and the ticket for Finish.
// redirect is where the browser brings the code: a port of the person's machine.
func (o *OIDC) Begin(ctx context.Context, redirect string) (address, ticket string, err error) {
	const op = "identity.Begin"
	u, err := url.Parse(redirect)
	if err != nil || u.Scheme != "http" || !loopback(u) || u.Port() == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" || len(redirect) > 200 {
		return "", "", invalid(op, "redirect", "it is no http address of a port on 127.0.0.1 or [::1]")
	}
	p, _, err := o.at(ctx)
	if err != nil {
		return "", "", err
	}
	text := func() string { return base64.RawURLEncoding.EncodeToString(random(32)) }
	f := &flow{state: text(), nonce: text(), verifier: oauth2.GenerateVerifier(), redirect: redirect}
	if ticket, err = o.keep(ctx, op, f); err != nil {
		return "", "", err
	}
	return o.config(p, redirect).AuthCodeURL(f.state, oidc.Nonce(f.nonce), oauth2.S256ChallengeOption(f.verifier)), ticket, nil
}

// keep remembers a flow and returns its ticket. Where there is no room, whoever
// has most gives way: one source does not keep others from signing in.
func (o *OIDC) keep(ctx context.Context, op string, f *flow) (string, error) {
	now := o.d.o.Now()
	f.source, f.ends = sourceOf(ctx), now.Add(FlowLife)
	ticket := base64.RawURLEncoding.EncodeToString(random(32))
	o.mu.Lock()
	defer o.mu.Unlock()
	of := map[string]int{}
	for k, old := range o.flows {
		if !now.Before(old.ends) {
			delete(o.flows, k)
			continue
		}
		of[old.source]++
	}
	if of[f.source] >= ownFlows {
		return "", &cofferdam.Error{Op: op, Kind: cofferdam.Exhausted, Subject: "signing in", Reason: fmt.Sprintf("you have begun %d times and not ended", ownFlows), Hint: "end one of them, or try again in some minutes"}
	}
	if len(o.flows) >= maxFlows && !o.dropOfMost(of, of[f.source]+1) {
		return "", &cofferdam.Error{Op: op, Kind: cofferdam.Exhausted, Subject: "signing in", Reason: fmt.Sprintf("%d others are at it", maxFlows), Hint: "try again in some minutes"}
	}
	o.flows[hash(ticket)] = f
	return ticket, nil
}

// dropOfMost forgets the oldest flow of whoever has most of them, if that is more
// than so many. The caller holds mu.
func (o *OIDC) dropOfMost(of map[string]int, than int) bool {
	most := ""
	for source, n := range of {
		if n > of[most] || n == of[most] && source > most {
			most = source
		}
	}
	if of[most] <= than {
		return false
	}
	oldest := ""
	for k, f := range o.flows {
		if f.source == most && (oldest == "" || f.ends.Before(o.flows[oldest].ends)) {
			oldest = k
		}
	}
	delete(o.flows, oldest)
	return true
}

// take ends a flow: it counts once, whatever comes of it.
func (o *OIDC) take(ticket, state string) (*flow, bool) {
	o.mu.Lock()
	f := o.flows[hash(ticket)]
	delete(o.flows, hash(ticket))
	o.mu.Unlock()
	return f, f != nil && f.device == nil && f.state != "" && o.d.o.Now().Before(f.ends) && subtle.ConstantTimeCompare([]byte(f.state), []byte(state)) == 1
}

// unheld is the error for whatever does not hold, without more.
func unheld() error {
	return &cofferdam.Error{Op: "identity.Finish", Kind: cofferdam.Unauthenticated, Subject: "signing in", Reason: "what came back from the identity provider does not hold", Hint: "begin again with cofferdam login --oidc"}
}

// subject exchanges a code and returns whom the provider names by it.
func (o *OIDC) subject(ctx context.Context, ticket, state, code string) (string, error) {
	f, ok := o.take(ticket, state)
	if !ok {
		return "", unheld()
	}
	p, ctx, err := o.at(ctx)
	if err != nil {
		return "", err
	}
	got, err := o.config(p, f.redirect).Exchange(ctx, code, oauth2.VerifierOption(f.verifier))
	if err != nil {
		return "", unheld()
	}
	raw, _ := got.Extra("id_token").(string)
	return o.named(ctx, p, raw, f.nonce)
}

// named checks an id token: issuer, audience, time and signature, by keys and with
// the algorithms that the provider publishes; the nonce, which makes it this
// flow's; and that it was made for us, and not for another who shows it to us.
func (o *OIDC) named(ctx context.Context, p *oidc.Provider, raw, nonce string) (string, error) {
	id, err := p.Verifier(&oidc.Config{ClientID: o.p.Client, Now: o.d.o.Now}).Verify(ctx, raw)
	if err != nil || subtle.ConstantTimeCompare([]byte(id.Nonce), []byte(nonce)) != 1 || id.Subject == "" || len(id.Subject) > 255 {
		return "", unheld()
	}
	var to struct {
		Party *string `json:"azp"` // OpenID Connect Core, 3.1.3.7, steps 4 and 5
	}
	if err := id.Claims(&to); err != nil || len(id.Audience) > 1 && to.Party == nil || to.Party != nil && *to.Party != o.p.Client {
		return "", unheld()
	}
	return id.Subject, nil
}

// Finish signs in whoever is bound to whom the provider names.
func (o *OIDC) Finish(ctx context.Context, ticket, state, code string) (Token, string, error) {
	subject, err := o.subject(ctx, ticket, state, code)
	if err != nil {
		return Token{}, "", err
	}
	return o.signedIn(ctx, subject)
}

// signedIn makes the token of the person that a subject is bound to.
func (o *OIDC) signedIn(ctx context.Context, subject string) (Token, string, error) {
	p, err := o.d.o.Store.PersonBySubject(ctx, o.p.Issuer, subject)
	if err != nil && cofferdam.KindOf(err) != cofferdam.NotFound {
		return Token{}, "", err
	}
	if err != nil || !p.Disabled.IsZero() {
		return Token{}, "", &cofferdam.Error{
			Op: "identity.Finish", Kind: cofferdam.Unauthenticated, Subject: "signing in", Reason: "no account here is bound to yours at the identity provider",
			Hint: "with your invitation or your password, bind it by cofferdam login --enroll oidc",
		}
	}
	return o.d.login(ctx, p, "oidc")
}

// Bind makes whom the provider names be the caller from now on.
func (o *OIDC) Bind(ctx context.Context, who Caller, ticket, state, code string) error {
	if !who.Principal.IsPerson() {
		return &cofferdam.Error{Op: "identity.Bind", Kind: cofferdam.Forbidden, Subject: who.Principal.String(), Reason: "only people sign in", Hint: "give the program a token"}
	}
	have, err := o.d.o.Store.Factors(ctx, cofferdam.PersonID(who.Member))
	if err == nil && len(have) == 0 {
		err = fresh("identity.Bind", who, o.d.o.Now())
	}
	if err != nil {
		return err
	}
	subject, err := o.subject(ctx, ticket, state, code)
	if err != nil {
		return err
	}
	return o.d.bind(ctx, who, "oidc", o.p.Issuer, subject)
}
