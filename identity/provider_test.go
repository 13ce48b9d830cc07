package identity

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
	"testing"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"github.com/zitadel/oidc/v3/example/server/exampleop"
	"github.com/zitadel/oidc/v3/example/server/storage"
	"github.com/zitadel/oidc/v3/pkg/oidc"
	zitadel "github.com/zitadel/oidc/v3/pkg/op"
)

const (
	client   = "cofferdam-test"
	redirect = "http://127.0.0.1:39999/callback"
)

// op is a real provider of OpenID Connect, zitadel's, with two people, id1 and id2.
// What it says of somebody may be changed on the way, by forge.
type op struct {
	*httptest.Server
	store *keys
	forge forging                          // nil: what the provider says
	token func(w http.ResponseWriter) bool // in the place of its token; nil, or false: it answers itself
}

// forging makes another id token of the claims of one.
type forging func(p *op, claims map[string]any) string

// keys is its store, whose keys change.
type keys struct {
	*storage.Storage
	key *rsa.PrivateKey
	id  string
	n   int
}

func (k *keys) rotate(t *testing.T) {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	k.n++
	k.key, k.id = key, "key-"+strconv.Itoa(k.n)
}

// pair is a key as the provider has one: by its private half, or by its public one.
type pair struct {
	k      *keys
	public bool
}

func (p pair) ID() string                                  { return p.k.id }
func (p pair) SignatureAlgorithm() jose.SignatureAlgorithm { return jose.RS256 }
func (p pair) Algorithm() jose.SignatureAlgorithm          { return jose.RS256 }
func (p pair) Use() string                                 { return "sig" }
func (p pair) Key() any {
	if p.public {
		return &p.k.key.PublicKey
	}
	return p.k.key
}

func (k *keys) SigningKey(context.Context) (zitadel.SigningKey, error) { return pair{k, false}, nil }

func (k *keys) KeySet(context.Context) ([]zitadel.Key, error) {
	return []zitadel.Key{pair{k, true}}, nil
}

func (k *keys) SignatureAlgorithms(context.Context) ([]jose.SignatureAlgorithm, error) {
	return []jose.SignatureAlgorithm{jose.RS256}, nil
}

// devices is our client there, which may ask for device codes too.
type devices struct{ zitadel.Client }

func (d devices) GrantTypes() []oidc.GrantType {
	return append(d.Client.GrantTypes(), oidc.GrantTypeDeviceCode)
}

func (k *keys) GetClientByClientID(ctx context.Context, id string) (zitadel.Client, error) {
	c, err := k.Storage.GetClientByClientID(ctx, id)
	return devices{c}, err
}

func newOP(t *testing.T) *op {
	t.Helper()
	o := &op{Server: httptest.NewUnstartedServer(nil)}
	issuer := "http://" + o.Listener.Addr().String()
	o.store = &keys{Storage: storage.NewStorageWithClients(storage.NewUserStore(issuer), map[string]*storage.Client{client: storage.NativeClient(client, redirect)})}
	o.store.rotate(t)
	provider := exampleop.SetupServer(issuer, o.store, slog.New(slog.DiscardHandler), false)
	o.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost || r.URL.Path != "/oauth/token" {
			provider.ServeHTTP(w, r)
			return
		}
		if o.token != nil && o.token(w) {
			return
		}
		said := httptest.NewRecorder()
		provider.ServeHTTP(said, r)
		o.say(w, said)
	})
	o.Start()
	t.Cleanup(o.Close)
	return o
}

// say passes an answer on, with the id token that forge makes of its claims.
func (o *op) say(w http.ResponseWriter, said *httptest.ResponseRecorder) {
	body := said.Body.Bytes()
	var answer map[string]any
	if o.forge != nil && said.Code == http.StatusOK && json.Unmarshal(body, &answer) == nil {
		raw, _ := answer["id_token"].(string)
		answer["id_token"] = o.forge(o, claimsOf(raw))
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

// sign makes an id token as the provider does.
func (o *op) sign(claims map[string]any) string {
	return signed(jose.RS256, o.store.key, o.store.id, claims)
}

func signed(alg jose.SignatureAlgorithm, key any, id string, claims map[string]any) string {
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

// unsigned makes a token whose header says that it has no signature (RFC 7519, 6).
func unsigned(claims map[string]any) string {
	body, err := json.Marshal(claims)
	if err != nil {
		panic(err)
	}
	enc := base64.RawURLEncoding
	return enc.EncodeToString([]byte(`{"alg":"none"}`)) + "." + enc.EncodeToString(body) + "."
}

// authorize is the person's browser: it goes to the address, signs in at the
// provider as one of its people, and returns the code and state that it is sent
// back with.
func (o *op) authorize(t *testing.T, address, subject string) (code, state string) {
	t.Helper()
	if u, err := url.Parse(address); err != nil || u.Query().Get("code_challenge_method") != "S256" || len(u.Query().Get("code_challenge")) != 43 || u.Query().Get("nonce") == "" || u.Query().Get("scope") != "openid" {
		t.Fatalf("%s %v", address, err)
	}
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	web := &http.Client{Jar: jar, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	to := func(resp *http.Response, err error) string {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusFound {
			text, _ := io.ReadAll(io.LimitReader(resp.Body, 4096))
			t.Fatalf("%s: %s", resp.Status, text)
		}
		u, err := resp.Location()
		if err != nil {
			t.Fatal(err)
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
	if u, err = url.Parse(page); err != nil || !strings.HasPrefix(page, redirect+"?") || u.Query().Get("code") == "" {
		t.Fatalf("%s %v", page, err)
	}
	return u.Query().Get("code"), u.Query().Get("state")
}
