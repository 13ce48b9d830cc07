package identity

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"cofferdam"
)

// op is a provider of OpenID Connect: discovery, keys, and the authorization code
// with PKCE. It signs in whoever is named without asking.
type op struct {
	*httptest.Server
	key *rsa.PrivateKey
	now func() time.Time

	mu     sync.Mutex
	codes  map[string]url.Values // what each was asked with
	change func(*jwt.Claims, map[string]any)
}

const (
	client   = "cofferdam-test"
	redirect = "http://127.0.0.1:39999/callback"
)

func newOP(t *testing.T, now func() time.Time) *op {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	o := &op{key: key, now: now, codes: map[string]url.Values{}, change: func(*jwt.Claims, map[string]any) {}}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		o.say(w, map[string]any{
			"issuer": o.URL, "authorization_endpoint": o.URL + "/authorize", "token_endpoint": o.URL + "/token", "jwks_uri": o.URL + "/keys",
			"response_types_supported": []string{"code"}, "subject_types_supported": []string{"public"}, "id_token_signing_alg_values_supported": []string{"RS256"},
		})
	})
	mux.HandleFunc("GET /keys", func(w http.ResponseWriter, _ *http.Request) {
		o.say(w, jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: key.Public(), KeyID: "1", Algorithm: "RS256", Use: "sig"}}})
	})
	mux.HandleFunc("POST /token", o.token)
	o.Server = httptest.NewServer(mux)
	t.Cleanup(o.Close)
	return o
}

func (o *op) say(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v)
}

// authorize is the person's browser: it goes to the address as a subject and
// returns the code and state that it is sent back with.
func (o *op) authorize(t *testing.T, address, subject string) (code, state string) {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil || !strings.HasPrefix(address, o.URL+"/authorize?") {
		t.Fatalf("%s: %v", address, err)
	}
	q := u.Query()
	for name, want := range map[string]string{"client_id": client, "response_type": "code", "redirect_uri": redirect, "scope": "openid", "code_challenge_method": "S256"} {
		if q.Get(name) != want {
			t.Fatalf("%s is %q in %s", name, q.Get(name), address)
		}
	}
	if q.Get("nonce") == "" || q.Get("state") == "" || len(q.Get("code_challenge")) != 43 {
		t.Fatal(address)
	}
	q.Set("subject", subject)
	o.mu.Lock()
	defer o.mu.Unlock()
	code = cofferdam.NewID("c")
	o.codes[code] = q
	return code, q.Get("state")
}

func (o *op) token(w http.ResponseWriter, r *http.Request) {
	o.mu.Lock()
	defer o.mu.Unlock()
	q, ok := o.codes[r.PostFormValue("code")]
	delete(o.codes, r.PostFormValue("code"))
	sum := sha256.Sum256([]byte(r.PostFormValue("code_verifier")))
	if !ok || base64.RawURLEncoding.EncodeToString(sum[:]) != q.Get("code_challenge") || r.PostFormValue("redirect_uri") != q.Get("redirect_uri") {
		w.WriteHeader(http.StatusBadRequest)
		o.say(w, map[string]string{"error": "invalid_grant"})
		return
	}
	c := jwt.Claims{Issuer: o.URL, Subject: q.Get("subject"), Audience: jwt.Audience{client}, IssuedAt: jwt.NewNumericDate(o.now()), Expiry: jwt.NewNumericDate(o.now().Add(5 * time.Minute))}
	more := map[string]any{"nonce": q.Get("nonce")}
	o.change(&c, more)
	key := any(o.key)
	if k, ok := more["key"]; ok {
		key = k
		delete(more, "key")
	}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.RS256, Key: jose.JSONWebKey{Key: key, KeyID: "1"}}, nil)
	if err != nil {
		panic(err)
	}
	text, err := jwt.Signed(signer).Claims(c).Claims(more).Serialize()
	if err != nil {
		panic(err)
	}
	o.say(w, map[string]any{"access_token": "x", "token_type": "Bearer", "id_token": text})
}

// bound is ann, who has bound her account at the provider.
func bound(t *testing.T) (*OIDC, *op, *clock) {
	t.Helper()
	d, _, c, _ := bare()
	p := newOP(t, func() time.Time { return c.now })
	o, err := NewOIDC(Provider{Issuer: p.URL, Client: client}, d)
	if err != nil {
		t.Fatal(err)
	}
	ann, err := d.Local(t.Context(), acme.Organization, "ann")
	if err != nil {
		t.Fatal(err)
	}
	address, ticket, err := o.Begin(t.Context(), redirect)
	if err != nil {
		t.Fatal(err)
	}
	code, state := p.authorize(t, address, "subject-1")
	if err := o.Bind(t.Context(), ann, ticket, state, code); err != nil {
		t.Fatal(err)
	}
	return o, p, c
}

func TestSignInAtAProvider(t *testing.T) {
	o, p, _ := bound(t)
	ctx := t.Context()
	address, ticket, err := o.Begin(ctx, redirect)
	if err != nil || strings.Contains(address, ticket) {
		t.Fatalf("%s %v", address, err)
	}
	code, state := p.authorize(t, address, "subject-1")
	kept, text, err := o.Finish(ctx, ticket, state, code)
	if err != nil || !kept.Login || kept.Holder.Name != "ann" {
		t.Fatalf("%+v %v", kept, err)
	}
	if who, err := o.d.Bearer(ctx, text); err != nil || who.Principal.Name != "ann" {
		t.Errorf("%+v %v", who, err)
	}
	if _, _, err := o.Finish(ctx, ticket, state, code); err == nil {
		t.Error("a ticket counts twice")
	}
	// Whom nobody bound is nobody, and who is bound is not bound again.
	address, ticket, _ = o.Begin(ctx, redirect)
	code, state = p.authorize(t, address, "subject-2")
	if _, _, err := o.Finish(ctx, ticket, state, code); cofferdam.KindOf(err) != cofferdam.Unauthenticated || !strings.Contains(err.Error(), "no account here") {
		t.Errorf("another subject: %v", err)
	}
	ann, err := o.d.Local(ctx, acme.Organization, "ann")
	if err != nil {
		t.Fatal(err)
	}
	address, ticket, _ = o.Begin(ctx, redirect)
	code, state = p.authorize(t, address, "subject-1")
	if err := o.Bind(ctx, ann, ticket, state, code); cofferdam.KindOf(err) != cofferdam.Conflict {
		t.Errorf("bound again: %v", err)
	}
	ann.Principal.Kind = cofferdam.Service
	if err := o.Bind(ctx, ann, ticket, state, code); cofferdam.KindOf(err) != cofferdam.Forbidden {
		t.Errorf("a program binds: %v", err)
	}
}

// Each of what ties an answer to its request is checked: without any one of them
// somebody else's answer would count.
func TestAnswersOfAProviderThatDoNotHold(t *testing.T) {
	other, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	plain := func(*jwt.Claims, map[string]any) {}
	for name, c := range map[string]struct {
		change func(*jwt.Claims, map[string]any)
		send   func(ticket, state, code string) (string, string, string)
		wait   time.Duration
	}{
		"nonce of another flow": {change: func(_ *jwt.Claims, m map[string]any) { m["nonce"] = "x" }},
		"no nonce":              {change: func(_ *jwt.Claims, m map[string]any) { delete(m, "nonce") }},
		"another audience":      {change: func(c *jwt.Claims, _ map[string]any) { c.Audience = jwt.Audience{"other"} }},
		"another issuer":        {change: func(c *jwt.Claims, _ map[string]any) { c.Issuer = "https://other.example.com" }},
		"over":                  {change: func(c *jwt.Claims, _ map[string]any) { c.Expiry = jwt.NewNumericDate(time.Unix(1, 0)) }},
		"another key":           {change: func(_ *jwt.Claims, m map[string]any) { m["key"] = other }},
		"nobody":                {change: func(c *jwt.Claims, _ map[string]any) { c.Subject = "" }},
		"another state":         {change: plain, send: func(t, _, c string) (string, string, string) { return t, "x", c }},
		"no state":              {change: plain, send: func(t, _, c string) (string, string, string) { return t, "", c }},
		"another ticket":        {change: plain, send: func(_, s, c string) (string, string, string) { return "x", s, c }},
		"another code":          {change: plain, send: func(t, s, _ string) (string, string, string) { return t, s, "x" }},
		"late":                  {change: plain, wait: FlowLife},
	} {
		t.Run(name, func(t *testing.T) {
			o, p, clock := bound(t)
			p.change = c.change
			address, ticket, err := o.Begin(t.Context(), redirect)
			if err != nil {
				t.Fatal(err)
			}
			code, state := p.authorize(t, address, "subject-1")
			clock.now = clock.now.Add(c.wait)
			if c.send != nil {
				ticket, state, code = c.send(ticket, state, code)
			}
			if _, text, err := o.Finish(t.Context(), ticket, state, code); text != "" || cofferdam.KindOf(err) != cofferdam.Unauthenticated || !strings.Contains(err.Error(), "does not hold") {
				t.Errorf("%q %v", text, err)
			}
		})
	}
	// The code of one flow in another: the verifier is not its own.
	o, p, _ := bound(t)
	one, _, _ := o.Begin(t.Context(), redirect)
	two, ticket, _ := o.Begin(t.Context(), redirect)
	code, _ := p.authorize(t, one, "subject-1")
	_, state := p.authorize(t, two, "subject-1")
	if _, _, err := o.Finish(t.Context(), ticket, state, code); err == nil {
		t.Error("the code of one flow counts in another")
	}
}

func TestProvidersAndRedirects(t *testing.T) {
	d, _, _, _ := bare()
	for _, p := range []Provider{{}, {Issuer: "https://id.example.com"}, {Issuer: "http://id.example.com", Client: "x"}, {Issuer: "id.example.com", Client: "x"}, {Issuer: "https://u:p@id.example.com", Client: "x"}} {
		if _, err := NewOIDC(p, d); err == nil {
			t.Errorf("%+v was taken", p)
		}
	}
	o, _, _ := bound(t)
	for _, r := range []string{"", "x", "https://127.0.0.1:1/", "http://127.0.0.1/", "http://localhost:1/", "http://10.0.0.1:1/", "http://evil.example.com:80/", "http://127.0.0.1:1/?a=b", "http://127.0.0.1:1/#x", "http://a@127.0.0.1:1/"} {
		if _, _, err := o.Begin(t.Context(), r); cofferdam.KindOf(err) != cofferdam.Invalid {
			t.Errorf("%q: %v", r, err)
		}
	}
}
