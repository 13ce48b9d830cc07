// Package identitytest is what tests of signing in need beside the code under test: a
// real provider of OpenID Connect, zitadel's, with two people and their browser, and an
// authenticator with a passkey. It checks nothing of ours.
package identitytest

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"github.com/zitadel/oidc/v3/example/server/exampleop"
	"github.com/zitadel/oidc/v3/example/server/storage"
	"github.com/zitadel/oidc/v3/pkg/oidc"
	zitadel "github.com/zitadel/oidc/v3/pkg/op"
)

// Client is our client at the provider, a public one, and Redirect is where it may come
// back to, at any port.
const (
	Client   = "cofferdam-test"
	Redirect = "http://127.0.0.1:39999/callback"
)

// T is what fails where something of a test's own goes wrong.
type T interface {
	Fatalf(format string, args ...any)
}

// Provider is a real provider of OpenID Connect, zitadel's, with two people, id1 and id2.
// What it says of somebody may be changed on the way, by Forge.
type Provider struct {
	*httptest.Server
	Store *Keys
	Forge Forging                          // nil: what the provider says
	Token func(w http.ResponseWriter) bool // in the place of its token; nil, or false: it answers itself
}

// Forging makes another id token of the claims of one.
type Forging func(p *Provider, claims map[string]any) string

// Keys is its store, whose keys change.
type Keys struct {
	*storage.Storage
	Private *rsa.PrivateKey
	ID      string
	n       int
}

// Rotate makes a new key.
func (k *Keys) Rotate(t T) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatalf("%v", err)
	}
	k.n++
	k.Private, k.ID = key, "key-"+strconv.Itoa(k.n)
}

// pair is a key as the provider has one: by its private half, or by its public one.
type pair struct {
	k      *Keys
	public bool
}

func (p pair) ID() string                                  { return p.k.ID }
func (p pair) SignatureAlgorithm() jose.SignatureAlgorithm { return jose.RS256 }
func (p pair) Algorithm() jose.SignatureAlgorithm          { return jose.RS256 }
func (p pair) Use() string                                 { return "sig" }
func (p pair) Key() any {
	if p.public {
		return &p.k.Private.PublicKey
	}
	return p.k.Private
}

func (k *Keys) SigningKey(context.Context) (zitadel.SigningKey, error) { return pair{k, false}, nil }

func (k *Keys) KeySet(context.Context) ([]zitadel.Key, error) {
	return []zitadel.Key{pair{k, true}}, nil
}

func (k *Keys) SignatureAlgorithms(context.Context) ([]jose.SignatureAlgorithm, error) {
	return []jose.SignatureAlgorithm{jose.RS256}, nil
}

// devices is our client there, which may ask for device codes too.
type devices struct{ zitadel.Client }

func (d devices) GrantTypes() []oidc.GrantType {
	return append(d.Client.GrantTypes(), oidc.GrantTypeDeviceCode)
}

func (k *Keys) GetClientByClientID(ctx context.Context, id string) (zitadel.Client, error) {
	c, err := k.Storage.GetClientByClientID(ctx, id)
	return devices{c}, err
}

// NewProvider starts one on loopback; who starts it closes it.
func NewProvider(t T) *Provider {
	o := &Provider{Server: httptest.NewUnstartedServer(nil)}
	issuer := "http://" + o.Listener.Addr().String()
	o.Store = &Keys{Storage: storage.NewStorageWithClients(storage.NewUserStore(issuer), map[string]*storage.Client{Client: storage.NativeClient(Client, Redirect)})}
	o.Store.Rotate(t)
	provider := exampleop.SetupServer(issuer, o.Store, slog.New(slog.DiscardHandler), false)
	o.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost || r.URL.Path != "/oauth/token" {
			provider.ServeHTTP(w, r)
			return
		}
		if o.Token != nil && o.Token(w) {
			return
		}
		said := httptest.NewRecorder()
		provider.ServeHTTP(said, r)
		o.say(w, said)
	})
	o.Start()
	return o
}

// say passes an answer on, with the id token that forge makes of its claims.
func (o *Provider) say(w http.ResponseWriter, said *httptest.ResponseRecorder) {
	body := said.Body.Bytes()
	var answer map[string]any
	if o.Forge != nil && said.Code == http.StatusOK && json.Unmarshal(body, &answer) == nil {
		raw, _ := answer["id_token"].(string)
		answer["id_token"] = o.Forge(o, claimsOf(raw))
		body, _ = json.Marshal(answer)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(said.Code)
	_, _ = w.Write(body)
}

func claimsOf(raw string) map[string]any {
	parts, claims := strings.Split(raw, "."), map[string]any{}
	if len(parts) == 3 {
		text, _ := base64.RawURLEncoding.DecodeString(parts[1])
		_ = json.Unmarshal(text, &claims)
	}
	return claims
}

// Sign makes an id token as the provider does.
func (o *Provider) Sign(claims map[string]any) string {
	return Signed(jose.RS256, o.Store.Private, o.Store.ID, claims)
}

// Signed makes one by any key.
func Signed(alg jose.SignatureAlgorithm, key any, id string, claims map[string]any) string {
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: alg, Key: jose.JSONWebKey{Key: key, KeyID: id}}, nil)
	if err != nil {
		panic(err)
	}
	text, err := jwt.Signed(signer).Claims(claims).Serialize()
	if err != nil {
		panic(err)
	}
	return text
}

// Unsigned makes a token whose header says that it has no signature (RFC 7519, 6).
func Unsigned(claims map[string]any) string {
	body, err := json.Marshal(claims)
	if err != nil {
		panic(err)
	}
	enc := base64.RawURLEncoding
	return enc.EncodeToString([]byte(`{"alg":"none"}`)) + "." + enc.EncodeToString(body) + "."
}

// Authorize is the person's browser: it goes to the address, signs in at the
// provider as one of its people, and returns where it is sent
// back to, with a code and the state.
func (o *Provider) Authorize(t T, address, subject string) *url.URL {
	if u, err := url.Parse(address); err != nil || u.Query().Get("code_challenge_method") != "S256" || len(u.Query().Get("code_challenge")) != 43 || u.Query().Get("nonce") == "" || u.Query().Get("scope") != "openid" {
		t.Fatalf("%s %v", address, err)
	}
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatalf("%v", err)
	}
	web := &http.Client{Jar: jar, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	to := func(resp *http.Response, err error) string {
		if err != nil {
			t.Fatalf("%v", err)
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusFound {
			text, _ := io.ReadAll(io.LimitReader(resp.Body, 4096))
			t.Fatalf("%s: %s", resp.Status, text)
		}
		u, err := resp.Location()
		if err != nil {
			t.Fatalf("%v", err)
		}
		return u.String()
	}
	page := to(web.Get(address))
	u, err := url.Parse(page)
	if err != nil || u.Query().Get("authRequestID") == "" {
		t.Fatalf("%s %v", page, err)
	}
	name := map[string]string{"id1": "test-user@127.0.0.1", "id2": "test-user2"}[subject]
	page = to(web.PostForm(o.URL+"/login/username", url.Values{"username": {name}, "password": {"verysecure"}, "id": {u.Query().Get("authRequestID")}}))
	page = to(web.Get(page))
	if u, err = url.Parse(page); err != nil || u.Hostname() != "127.0.0.1" || u.Query().Get("code") == "" {
		t.Fatalf("%s %v", page, err)
	}
	return u
}
