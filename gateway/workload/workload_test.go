package workload_test

import (
	"bufio"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"cofferdam"
	"cofferdam/gateway"
	"cofferdam/gateway/gatewaytest"
	"cofferdam/gateway/wire"
	"cofferdam/gateway/workload"
	"cofferdam/identity"
	"cofferdam/policy"
)

const audience = "https://api.example.com"

// wired is a box's network whose gateways are ours.
type wired struct {
	box    *gatewaytest.Box
	caller *gateway.Caller
	record *gatewaytest.Recorder
}

func newWired(t *testing.T, i *identity.Issuer) wired {
	t.Helper()
	doc, err := policy.ParseDocument(policy.ProjectName, []byte("[secret]\nallow = [\"identity:"+audience+"\"]\n"), nil)
	if err != nil {
		t.Fatal(err)
	}
	c, rec, _ := gatewaytest.NewCaller(t, policy.Grant{Repo: "r-1", Project: &doc})
	b := gatewaytest.NewBox(t)
	none := workload.New(i)
	w, err := wire.Attach(b.Queue(), c, wire.Routes{Own: map[cofferdam.Host]gateway.Handler{gateway.IdentityHost: none}, Others: none, Refused: none}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	})
	return wired{b, c, rec}
}

// ask sends a request from inside the box and returns status and answer.
func (w wired) ask(t *testing.T, method, path, body string) (int, map[string]string) {
	t.Helper()
	conn, err := w.box.DialName(string(gateway.IdentityHost), 80)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(time.Minute))
	r, err := http.NewRequest(method, "http://"+string(gateway.IdentityHost)+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Write(conn); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	said := map[string]string{}
	_ = json.Unmarshal(text, &said) // a refusal may be text
	return resp.StatusCode, said
}

func (w wired) check(t *testing.T, token, audience string) (int, map[string]string) {
	t.Helper()
	return w.ask(t, "POST", "/check", url.Values{"token": {token}, "audience": {audience}}.Encode())
}

// A box gets a token on its own wire, where it counts, and whoever has the
// published keys can check it. Another box that has the very same token has
// nothing by it.
func TestTokenIsWorthNothingOnAnotherWire(t *testing.T) {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	issuer, err := identity.NewIssuer("urn:test", key, nil)
	if err != nil {
		t.Fatal(err)
	}
	one, two := newWired(t, issuer), newWired(t, issuer)
	code, got := one.ask(t, "GET", "/token?audience="+url.QueryEscape(audience), "")
	if code != 200 || got["token"] == "" || got["expires"] == "" {
		t.Fatalf("%d %v", code, got)
	}
	if code, who := one.check(t, got["token"], audience); code != 200 || who["session"] != string(one.caller.Session) {
		t.Errorf("on its own wire: %d %v", code, who)
	}
	if code, who := two.check(t, got["token"], audience); code != 401 || who["session"] != "" {
		t.Errorf("on another wire: %d %v", code, who)
	}
	for name, c := range map[string]struct{ token, audience string }{
		"another audience": {got["token"], "https://other.example.com"}, "cut": {got["token"][:len(got["token"])-2], audience}, "none": {"", audience}, "nonsense": {"a.b.c", audience},
	} {
		if code, _ := one.check(t, c.token, c.audience); code != 401 {
			t.Errorf("%s: %d", name, code)
		}
	}
	// Outside, by the published keys.
	var keys jose.JSONWebKeySet
	if err := json.Unmarshal(issuer.Keys(), &keys); err != nil || len(keys.Keys) != 1 || !keys.Keys[0].IsPublic() {
		t.Fatalf("%s %v", issuer.Keys(), err)
	}
	parsed, err := jwt.ParseSigned(got["token"], []jose.SignatureAlgorithm{jose.EdDSA})
	if err != nil {
		t.Fatal(err)
	}
	var c jwt.Claims
	if err := parsed.Claims(keys.Keys[0].Key, &c); err != nil || c.Subject != string(one.caller.Session) || c.Expiry.Time().Sub(c.IssuedAt.Time()) != identity.WorkloadLife {
		t.Errorf("%+v %v", c, err)
	}
	var decided bool
	for _, e := range one.record.Events() {
		decided = decided || e.Kind == cofferdam.EventWorkload && e.Verdict == cofferdam.Allowed && e.Fields["audience"] == audience
		if strings.Contains(e.Resource+e.Reason, got["token"]) {
			t.Error("the token is on record")
		}
	}
	if !decided {
		t.Error("the token is not on record")
	}
}

// Policy says for whom a session gets tokens, and what is badly asked is told.
func TestTokensThatAreNotGiven(t *testing.T) {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	issuer, err := identity.NewIssuer("urn:test", key, nil)
	if err != nil {
		t.Fatal(err)
	}
	w := newWired(t, issuer)
	for path, want := range map[string]int{
		"/token?audience=https://other.example.com": 403, "/token": 400, "/token?audience=": 400, "/token?audience=a&audience=b": 400, "/token?audience=%00": 400,
		"/token?audience=" + strings.Repeat("a", 300): 400, "/token?audience=%C3%A9": 400, "/?audience=a": 404, "/token?audience=%zz": 400,
	} {
		if code, got := w.ask(t, "GET", path, ""); code != want || got["token"] != "" {
			t.Errorf("%s: %d %v, not %d", path, code, got, want)
		}
	}
	if code, _ := w.ask(t, "POST", "/check", "audience=a&token="+strings.Repeat("a", 20<<10)); code != 400 {
		t.Errorf("a large body: %d", code)
	}
}
