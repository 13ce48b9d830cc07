package api

import (
	_ "embed"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"cofferdam"
	"cofferdam/identity"
)

// The one page that the API serves: it asks the browser for a passkey, and knows
// nothing but the ticket in its address.
var (
	//go:embed passkey.html
	passkeyHTML string
	//go:embed passkey.js
	passkeyScript string
)

// pagePolicy is what the page may do: run its own script, call its own server. No
// other page may show it within itself.
const pagePolicy = "default-src 'none'; script-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// passkeyRoutes are those of passkeys: what a caller asks, and what our own page
// asks, whose ticket says for whom.
func passkeyRoutes() []Route {
	asset := func(kind, text string) func(c *call) (any, error) {
		return func(c *call) (any, error) {
			for name, value := range map[string]string{
				"Content-Security-Policy": pagePolicy, "Referrer-Policy": "no-referrer", "Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Resource-Policy": "same-origin",
			} {
				c.w.Header().Set(name, value)
			}
			_, err := lazyWriter{c, kind}.Write([]byte(text))
			return nil, err
		}
	}
	const html, script = "text/html; charset=utf-8", "text/javascript; charset=utf-8"
	return []Route{
		{Method: "POST", Path: "/v1/passkeys/register", ID: "registerPasskey", Doc: "have a browser make a passkey of the caller: an errand until it has, then nothing; /v1/factors keeps it", call: func(c *call) (any, error) { return nil, c.svc.RegisterPasskey(c.ctx) }},
		{Method: "GET", Path: identity.PagePath, ID: "passkeyPage", Doc: "the page that asks a browser for a passkey", Raw: html, Open: true, Page: true, call: asset(html, passkeyHTML)},
		{Method: "GET", Path: identity.PagePath + ".js", ID: "passkeyScript", Doc: "its script", Raw: script, Open: true, Page: true, call: asset(script, passkeyScript)},
		{Method: "POST", Path: identity.PagePath, ID: "viewPasskey", Doc: "what the page shows and gives to the browser, for its ticket", Body: cofferdam.PasskeyTicket{}, Reply: cofferdam.PasskeyPage{}, Open: true, Page: true, call: func(c *call) (any, error) {
			return c.svc.PasskeyPage(c.ctx, c.body.(*cofferdam.PasskeyTicket).Ticket)
		}},
		{Method: "POST", Path: identity.PagePath + "/answer", ID: "answerPasskey", Doc: "what the browser gave back, once", Body: cofferdam.PasskeyAnswer{}, Open: true, Page: true, call: func(c *call) (any, error) {
			return nil, c.svc.AnswerPasskey(c.ctx, *c.body.(*cofferdam.PasskeyAnswer))
		}},
	}
}

// fromPage admits the browser that shows our own page, and nobody else's page:
// what changes something has to come from the page's own origin.
func (s *Server) fromPage(r *http.Request) error {
	u, err := url.Parse(s.o.PageOrigin)
	if err != nil || s.o.PageOrigin == "" {
		return &cofferdam.Error{Op: "api.Page", Kind: cofferdam.NotFound, Subject: "passkeys", Reason: "this server has none", Hint: "who runs the server may set passkey_origin in its file"}
	}
	if strings.EqualFold(r.Host, u.Host) && (r.Method == http.MethodGet || r.Header.Get("Origin") == s.o.PageOrigin) {
		if site := r.Header.Get("Sec-Fetch-Site"); r.Method == http.MethodGet || site == "" || site == "same-origin" {
			return nil
		}
	}
	return fromBrowser(r)
}

// secrets are the fields of bodies that prove something; nobody is shown them.
var secrets = []string{"proof", "password", "secret", "code", "credential", "key", "ticket", "state"}

// asked is a request in words, for the person who has to prove that they mean it:
// what it does, to what, and the whole of its body but what proves something.
func asked(r Route, name string, body any) string {
	text := r.Doc + "\n" + r.Method + " " + strings.ReplaceAll(r.Path, "{name}", visible(name))
	if body == nil {
		return text
	}
	fields := map[string]json.RawMessage{}
	data, err := json.Marshal(body)
	if err != nil || json.Unmarshal(data, &fields) != nil {
		return text
	}
	for _, k := range secrets {
		delete(fields, k)
	}
	data, err = json.MarshalIndent(fields, "", "  ")
	if err != nil {
		return text
	}
	var b strings.Builder
	b.WriteString(text + "\n")
	for _, r := range string(data) { // what is not ASCII may not look like what it is
		if r > '~' {
			b.WriteString(strings.Trim(strconv.QuoteRuneToASCII(r), "'"))
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}
