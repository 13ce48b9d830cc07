package identity_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"cofferdam"
	"cofferdam/client"
	"cofferdam/identity"
	"cofferdam/identity/identitytest"
	"cofferdam/internal/api"
	"cofferdam/internal/service"
)

const origin = "http://localhost:7420"

// browser is a person's: it opens the page of an errand and has a device sign.
type browser struct {
	t      *testing.T
	server string
	device *identitytest.Authenticator
	shown  []string
	spoil  func(answer []byte) []byte
}

// send asks the server as a page does: change makes it another page.
func (b *browser) send(method, path string, body any, change func(*http.Request)) (int, http.Header, []byte) {
	b.t.Helper()
	var text []byte
	if body != nil {
		var err error
		if text, err = json.Marshal(body); err != nil {
			b.t.Fatal(err)
		}
	}
	r, err := http.NewRequestWithContext(b.t.Context(), method, b.server+path, bytes.NewReader(text))
	if err != nil {
		b.t.Fatal(err)
	}
	r.Host = "localhost:7420"
	if method == http.MethodPost {
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Origin", origin)
		r.Header.Set("Sec-Fetch-Site", "same-origin")
	}
	if change != nil {
		change(r)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		b.t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	return resp.StatusCode, resp.Header, data
}

func (b *browser) open(e cofferdam.Errand) {
	b.t.Helper()
	ticket, ok := strings.CutPrefix(e.Address, origin+identity.PagePath+"#")
	if !ok || len(ticket) != 43 {
		b.t.Fatal(e.Address)
	}
	code, _, data := b.send("POST", identity.PagePath, cofferdam.PasskeyTicket{Ticket: ticket}, nil)
	var page cofferdam.PasskeyPage
	if code != 200 || json.Unmarshal(data, &page) != nil {
		b.t.Fatalf("%d %s", code, data)
	}
	b.shown = append(b.shown, page.What)
	answer := b.device.Sign
	if page.Kind == "create" {
		answer = b.device.Register
	}
	made := answer(b.t, page.Options)
	if b.spoil != nil {
		made = b.spoil(made)
	}
	if code, _, data := b.send("POST", identity.PagePath+"/answer", cofferdam.PasskeyAnswer{Ticket: ticket, Answer: made}, nil); code != 204 {
		b.t.Fatalf("%d %s", code, data)
	}
	if code, _, data := b.send("POST", identity.PagePath+"/answer", cofferdam.PasskeyAnswer{Ticket: ticket, Answer: made}, nil); code != 404 {
		b.t.Errorf("an errand is answered twice: %d %s", code, data)
	}
}

// served is a server with passkeys, a caller of it, and their browser.
func served(t *testing.T) (*client.Client, *browser) {
	t.Helper()
	o := service.NewMemory().Options(cofferdam.Scope{})
	people := o.People.(*identity.Directory)
	keys, err := people.UsePasskeys("localhost", origin)
	if err != nil {
		t.Fatal(err)
	}
	o.Prover, o.Passkeys = people, keys
	token := strings.Repeat("b", 64)
	s := httptest.NewServer(api.New(service.New(o), api.Options{Log: slog.New(slog.DiscardHandler), PageOrigin: origin, Auth: api.Auth{UID: os.Getuid(), Name: "ada", Token: token}}))
	t.Cleanup(s.Close)
	b := &browser{t: t, server: s.URL, device: identitytest.NewAuthenticator(t, "localhost", origin)}
	c, err := client.New(client.Options{Server: s.URL, Token: token, Browse: b.open})
	if err != nil {
		t.Fatal(err)
	}
	return c, b
}

// TestPasskeyThroughTheAPI: a caller without a browser has one make a passkey and
// sign with it for exactly what they ask of the server, which shows it in its own
// words; what one signed for opens nothing else.
func TestPasskeyThroughTheAPI(t *testing.T) {
	c, b := served(t)
	ctx := t.Context()
	if err := c.RegisterPasskey(ctx); err != nil {
		t.Fatal(err)
	}
	if f, err := c.Enroll(ctx, cofferdam.EnrollRequest{Kind: "passkey", Name: "browser"}); err != nil || f.Kind != "passkey" {
		t.Fatalf("%+v %v", f, err)
	}
	bob := cofferdam.MemberRequest{Name: "bob", Role: "author", Proof: cofferdam.Proof{Kind: "passkey"}}
	if m, err := c.AddMember(ctx, bob); err != nil || m.Member.Name != "bob" {
		t.Fatalf("%+v %v", m, err)
	}
	if len(b.shown) != 2 || !strings.Contains(b.shown[1], "POST /v1/members") || !strings.Contains(b.shown[1], `"name": "bob"`) || !strings.Contains(b.shown[1], `"role": "author"`) || strings.Contains(b.shown[1], "proof\"") {
		t.Errorf("the person was shown %q", b.shown)
	}
	// The same again is another act: a browser is asked again. One that answers
	// nonsense, or for another site, proves nothing.
	for name, spoil := range map[string]func([]byte) []byte{
		"nonsense": func([]byte) []byte { return []byte(`{}`) },
		"a signature that is none": func(answer []byte) []byte {
			return bytes.ReplaceAll(answer, []byte(`"signature":"`), []byte(`"signature":"AAAA`))
		},
	} {
		b.spoil = spoil
		if _, err := c.AddMember(ctx, bob); cofferdam.KindOf(err) != cofferdam.Forbidden {
			t.Errorf("%s: %v", name, err)
		}
	}
	b.spoil = nil
	if len(b.shown) != 4 {
		t.Errorf("a browser was asked %d times", len(b.shown))
	}
	// Without a browser the caller is told where to go; the errand of one act is
	// none of another, and asking again is the same errand.
	plain, err := client.New(client.Options{Server: b.server, Token: strings.Repeat("b", 64)})
	if err != nil {
		t.Fatal(err)
	}
	errand := func(r cofferdam.MemberRequest) *cofferdam.Errand {
		t.Helper()
		_, err := plain.AddMember(ctx, r)
		var e *cofferdam.Errand
		if !errors.As(err, &e) || cofferdam.KindOf(err) != cofferdam.AwaitsPerson {
			t.Fatalf("%v", err)
		}
		return e
	}
	eve := bob
	eve.Name, eve.Role = "eve", "owner"
	one, again, other := errand(bob), errand(bob), errand(eve)
	if one.Address != again.Address || one.Address == other.Address || strings.Contains(fmt.Sprintf("%v %+v", one, one), "#") {
		t.Errorf("%s, %s and %s", one.Address, again.Address, other.Address)
	}
	b.open(*one)
	if _, err := plain.AddMember(ctx, eve); cofferdam.KindOf(err) != cofferdam.AwaitsPerson {
		t.Errorf("what was signed for bob lets eve in: %v", err)
	}
	if _, err := plain.AddMember(ctx, bob); err != nil {
		t.Errorf("what was signed for: %v", err)
	}
	if _, err := plain.AddMember(ctx, bob); cofferdam.KindOf(err) != cofferdam.AwaitsPerson {
		t.Errorf("an assertion counts twice: %v", err)
	}
}

// The page is our own script and nothing else, and only it may answer.
func TestPasskeyPage(t *testing.T) {
	_, b := served(t)
	code, head, page := b.send("GET", identity.PagePath, nil, func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "none") })
	policy := head.Get("Content-Security-Policy")
	if code != 200 || !strings.HasPrefix(head.Get("Content-Type"), "text/html") || !strings.Contains(policy, "default-src 'none'") || !strings.Contains(policy, "frame-ancestors 'none'") || strings.Contains(policy, "unsafe") || head.Get("X-Content-Type-Options") != "nosniff" {
		t.Errorf("%d %v", code, head)
	}
	if text := string(page); strings.Count(text, "<script") != 1 || !strings.Contains(text, `<script src="page.js"></script>`) || strings.Contains(text, "://") || strings.Contains(text, " on") {
		t.Errorf("the page has other code than its own:\n%s", page)
	}
	code, head, script := b.send("GET", identity.PagePath+".js", nil, func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "same-origin") })
	if code != 200 || !strings.HasPrefix(head.Get("Content-Type"), "text/javascript") || strings.Contains(string(script), "://") || strings.Contains(string(script), "innerHTML") {
		t.Errorf("%d %v\n%s", code, head, script)
	}
	header := func(name, value string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set(name, value) }
	}
	none := cofferdam.PasskeyTicket{Ticket: strings.Repeat("A", 43)}
	for name, x := range map[string]struct {
		path   string
		body   any
		change func(*http.Request)
		code   int
	}{
		"no ticket":           {identity.PagePath, cofferdam.PasskeyTicket{}, nil, 404},
		"another ticket":      {identity.PagePath, none, nil, 404},
		"a foreign page":      {identity.PagePath, none, header("Origin", "https://evil.example.com"), 403},
		"another port":        {identity.PagePath, none, header("Origin", "http://localhost:7421"), 403},
		"null":                {identity.PagePath, none, header("Origin", "null"), 403},
		"across sites":        {identity.PagePath, none, header("Sec-Fetch-Site", "cross-site"), 403},
		"a rebound name":      {identity.PagePath, none, func(r *http.Request) { r.Host = "evil.example.com" }, 403},
		"no JSON":             {identity.PagePath + "/answer", cofferdam.PasskeyAnswer{Ticket: none.Ticket, Answer: []byte("x")}, nil, 400},
		"too long":            {identity.PagePath + "/answer", cofferdam.PasskeyAnswer{Ticket: none.Ticket, Answer: bytes.Repeat([]byte("1"), 64<<10+1)}, nil, 400},
		"nothing":             {identity.PagePath + "/answer", cofferdam.PasskeyAnswer{Ticket: none.Ticket}, nil, 400},
		"another route":       {"/v1/passkeys/register", nil, nil, 403},
		"signing in by pages": {"/v1/login", cofferdam.LoginRequest{Name: "ann", Password: "x"}, nil, 403},
	} {
		if code, _, data := b.send("POST", x.path, x.body, x.change); code != x.code {
			t.Errorf("%s: %d %s", name, code, data)
		}
	}
}

// A server without passkeys has neither page nor errand.
func TestServerWithoutPasskeys(t *testing.T) {
	o := service.NewMemory().Options(cofferdam.Scope{})
	token := strings.Repeat("b", 64)
	s := httptest.NewServer(api.New(service.New(o), api.Options{Log: slog.New(slog.DiscardHandler), Auth: api.Auth{UID: os.Getuid(), Name: "ada", Token: token}}))
	t.Cleanup(s.Close)
	c, err := client.New(client.Options{Server: s.URL, Token: token})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.RegisterPasskey(t.Context()); cofferdam.KindOf(err) != cofferdam.NotFound || !strings.Contains(cofferdam.HintOf(err), "passkey_origin") {
		t.Error(err)
	}
	b := &browser{t: t, server: s.URL}
	if code, _, data := b.send("GET", identity.PagePath, nil, nil); code != 404 {
		t.Errorf("%d %s", code, data)
	}
}
