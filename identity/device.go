package identity

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"golang.org/x/oauth2"

	"cofferdam"
)

// Bounds of signing in without a browser on the same machine. Source: RFC 8628,
// sections 3.2 and 3.5, and docs/SPECIFICATION.md, "Identity".
const (
	pollEvery = 5 * time.Second // where the provider does not say, and more after each "slow down"
	pollLeast = time.Second
	pollMost  = 60 * time.Second
)

const deviceGrant = "urn:ietf:params:oauth:grant-type:device_code"

// device is what a flow without a browser of its own has besides.
type device struct {
	code  string // the provider's; it stays here
	every time.Duration
	next  time.Time // before it the provider is not asked
}

// BeginDevice begins a sign-in that a person ends in a browser of any machine: they
// go to the address and give the code.
func (o *OIDC) BeginDevice(ctx context.Context) (cofferdam.LoginDevice, error) {
	const op = "identity.BeginDevice"
	none := cofferdam.LoginDevice{}
	p, ctx, err := o.at(ctx)
	if err != nil {
		return none, err
	}
	if p.Endpoint().DeviceAuthURL == "" {
		return none, &cofferdam.Error{
			Op: op, Kind: cofferdam.NotFound, Subject: "device code", Reason: "the identity provider " + o.p.Issuer + " offers none",
			Hint: "sign in with cofferdam login --oidc on a machine with a browser, or with your password",
		}
	}
	f := &flow{}
	ticket, err := o.keep(ctx, op, f) // first: who begins too often is not the provider's to bear
	if err != nil {
		return none, err
	}
	got, err := o.config(p, "").DeviceAuth(ctx)
	if err != nil || !fit(got) {
		o.drop(ticket)
		return none, &cofferdam.Error{Op: op, Kind: cofferdam.Unavailable, Subject: "identity provider " + o.p.Issuer, Reason: "it gave no device code that could be used", Hint: "try again, or sign in with your password", Err: err}
	}
	now := o.d.o.Now()
	o.mu.Lock()
	defer o.mu.Unlock()
	if ends := now.Add(time.Until(got.Expiry)); !got.Expiry.IsZero() && ends.Before(f.ends) {
		f.ends = ends
	}
	f.device = &device{code: got.DeviceCode, every: pollEvery}
	if got.Interval > 0 {
		f.device.every = min(max(time.Duration(min(got.Interval, 3600))*time.Second, pollLeast), pollMost)
	}
	f.device.next = now.Add(f.device.every)
	return cofferdam.LoginDevice{
		Schema: "cofferdam/login-device/v1", Ticket: ticket, Code: got.UserCode, Address: got.VerificationURI, Complete: got.VerificationURIComplete,
		Seconds: f.device.every.Seconds(), Expires: f.ends.UTC(),
	}, nil
}

// fit says whether what a provider answered can be shown to a person.
func fit(a *oauth2.DeviceAuthResponse) bool {
	plain := func(s string, most int) bool {
		return len(s) <= most && !strings.ContainsFunc(s, func(c rune) bool { return c < ' ' || c > '~' })
	}
	web := func(s string) bool {
		u, err := url.Parse(s)
		return err == nil && plain(s, 1024) && u.User == nil && u.Host != "" && (u.Scheme == "https" || u.Scheme == "http" && loopback(u))
	}
	return a.DeviceCode != "" && len(a.DeviceCode) <= 4096 && a.UserCode != "" && plain(a.UserCode, 64) && web(a.VerificationURI) && (a.VerificationURIComplete == "" || web(a.VerificationURIComplete))
}

func (o *OIDC) drop(ticket string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.flows, hash(ticket))
}

// FinishDevice signs in whoever has given the code of a ticket. While nobody has,
// the error says that it awaits a person, and when asking again makes sense.
func (o *OIDC) FinishDevice(ctx context.Context, ticket string) (Token, string, error) {
	f, after, err := o.turn(ticket)
	if err != nil {
		return Token{}, "", err
	}
	if after > 0 {
		return Token{}, "", awaitsCode(after)
	}
	p, ctx, err := o.at(ctx)
	if err != nil {
		return Token{}, "", err
	}
	raw, problem, err := o.askToken(ctx, p.Endpoint().TokenURL, f.device.code)
	switch {
	case err != nil:
		return Token{}, "", err
	case problem == "authorization_pending", problem == "slow_down":
		o.mu.Lock()
		defer o.mu.Unlock()
		if problem == "slow_down" {
			f.device.every = min(f.device.every+pollEvery, pollMost)
		}
		f.device.next = o.d.o.Now().Add(f.device.every)
		return Token{}, "", awaitsCode(f.device.every)
	}
	o.drop(ticket)
	if problem != "" {
		return Token{}, "", &cofferdam.Error{Op: "identity.Finish", Kind: cofferdam.Unauthenticated, Subject: "signing in", Reason: "the identity provider says no, or the code is over", Hint: "begin again with cofferdam login --oidc --device"}
	}
	// There is no nonce in this flow: what makes the answer this flow's is that it
	// came over our own request with the code, which nobody else has.
	subject, err := o.named(ctx, p, raw, "")
	if err != nil {
		return Token{}, "", err
	}
	return o.signedIn(ctx, subject)
}

func awaitsCode(after time.Duration) error {
	return &cofferdam.Error{Op: "identity.Finish", Kind: cofferdam.AwaitsPerson, Subject: "signing in", Reason: "nobody has given the code yet", Hint: "give it in a browser, and ask again", After: after}
}

// turn returns the flow of a ticket and in how long the provider may be asked; one
// caller at a time has 0.
func (o *OIDC) turn(ticket string) (*flow, time.Duration, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	f, now := o.flows[hash(ticket)], o.d.o.Now()
	if f == nil || f.device == nil || !now.Before(f.ends) {
		delete(o.flows, hash(ticket))
		return nil, 0, unheld()
	}
	if after := f.device.next.Sub(now); after > 0 {
		return f, after, nil
	}
	f.device.next = now.Add(f.device.every)
	return f, 0, nil
}

// askToken asks the provider once for the id token of a device code. problem is
// what it says instead.
func (o *OIDC) askToken(ctx context.Context, address, code string) (raw, problem string, err error) {
	gone := &cofferdam.Error{Op: "identity.Finish", Kind: cofferdam.Unavailable, Subject: "identity provider " + o.p.Issuer, Reason: "it does not answer as it should", Hint: "ask again in a moment"}
	form := url.Values{"grant_type": {deviceGrant}, "device_code": {code}, "client_id": {o.p.Client}}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, address, strings.NewReader(form.Encode()))
	if err != nil {
		return "", "", gone
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	resp, err := o.web.Do(req)
	if err != nil {
		return "", "", gone
	}
	defer resp.Body.Close()
	var answer struct {
		Token   string `json:"id_token"`
		Problem string `json:"error"`
	}
	text, err := io.ReadAll(resp.Body) // bounded by the transport
	if err != nil || json.Unmarshal(text, &answer) != nil || resp.StatusCode != http.StatusOK && answer.Problem == "" {
		return "", "", gone
	}
	if resp.StatusCode == http.StatusOK && answer.Token == "" {
		return "", "no id token", nil
	}
	return answer.Token, answer.Problem, nil
}
