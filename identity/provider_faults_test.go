package identity

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"cofferdam"
)

func asError(err error, to **cofferdam.Error) bool { return errors.As(err, to) }

// described is a provider that describes itself so, and whose other answers are
// those of answer.
func described(t *testing.T, change func(said map[string]any), answer http.HandlerFunc) *OIDC {
	t.Helper()
	mux := http.NewServeMux()
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	said := map[string]any{
		"issuer": s.URL, "authorization_endpoint": s.URL + "/authorize", "token_endpoint": s.URL + "/token", "jwks_uri": s.URL + "/keys",
		"device_authorization_endpoint": s.URL + "/device", "id_token_signing_alg_values_supported": []string{"RS256", "HS256", "none"},
	}
	change(said)
	mux.HandleFunc("/", answer)
	mux.HandleFunc("GET /.well-known/openid-configuration", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(said)
	})
	d, _, _, _ := bare()
	o, err := NewOIDC(Provider{Issuer: s.URL, Client: client}, d)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// A provider that hangs, answers without end, names another, or sends people
// elsewhere than to the web, costs a bounded time and memory and signs nobody in.
func TestProvidersThatMisbehave(t *testing.T) {
	o, _, _ := bound(t)
	if o.web.Timeout != provider {
		t.Errorf("a call to the provider may take %s", o.web.Timeout)
	}
	hang := func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // only then is it known that the caller has gone
		<-r.Context().Done()
	}
	var sent atomic.Int64
	endless := func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json")
		for piece := []byte(strings.Repeat(" ", 64<<10)); r.Context().Err() == nil; {
			n, err := w.Write(piece)
			if sent.Add(int64(n)); err != nil {
				return
			}
		}
	}
	device := func(text string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write([]byte(text))
		}
	}
	same := func(map[string]any) {}
	for name, c := range map[string]struct {
		change func(map[string]any)
		answer http.HandlerFunc
		kind   cofferdam.Kind
	}{
		"names another issuer": {func(s map[string]any) { s["issuer"] = "https://other.example.com" }, hang, cofferdam.Unavailable},
		"has no device codes":  {func(s map[string]any) { delete(s, "device_authorization_endpoint") }, hang, cofferdam.NotFound},
		"hangs":                {same, hang, cofferdam.Unavailable},
		"without end":          {same, endless, cofferdam.Unavailable},
		"no code":              {same, device(`{}`), cofferdam.Unavailable},
		"a script":             {same, device(`{"device_code":"d","user_code":"u","verification_uri":"javascript:alert(1)","expires_in":60}`), cofferdam.Unavailable},
		"plain http":           {same, device(`{"device_code":"d","user_code":"u","verification_uri":"http://id.example.com/","expires_in":60}`), cofferdam.Unavailable},
		"a code that is shown": {same, device(`{"device_code":"d","user_code":"\u001b[2J","verification_uri":"https://id.example.com/","expires_in":60}`), cofferdam.Unavailable},
	} {
		t.Run(name, func(t *testing.T) {
			o := described(t, c.change, c.answer)
			o.web.Timeout = 3 * time.Second // the rest of 30 seconds is waited for nowhere else
			if name == "hangs" {
				o.web.Timeout = 200 * time.Millisecond
			}
			_, err := o.BeginDevice(t.Context())
			if cofferdam.KindOf(err) != c.kind || len(o.flows) != 0 {
				t.Errorf("%v, %d flows", err, len(o.flows))
			}
			if name == "has no device codes" && !strings.Contains(err.Error(), "offers none") {
				t.Error(err)
			}
		})
	}
	if n := sent.Load(); n > 64<<20 {
		t.Errorf("%d bytes of an answer without end were taken", n)
	}
	// The code of a browser's flow, at a token address that hangs or has no end.
	for name, answer := range map[string]http.HandlerFunc{"hangs": hang, "without end": endless} {
		o := described(t, same, answer)
		_, ticket, err := o.Begin(t.Context(), redirect)
		if err != nil {
			t.Fatal(err)
		}
		o.web.Timeout = 200 * time.Millisecond
		for _, f := range o.flows {
			if _, text, err := o.Finish(t.Context(), ticket, f.state, "code"); text != "" || cofferdam.KindOf(err) != cofferdam.Unauthenticated {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	// One that describes itself without end is not asked for more than its bound.
	s := httptest.NewServer(http.HandlerFunc(endless))
	defer s.Close()
	d, _, _, _ := bare()
	long, err := NewOIDC(Provider{Issuer: s.URL, Client: client}, d)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := long.Begin(t.Context(), redirect); cofferdam.KindOf(err) != cofferdam.Unavailable {
		t.Error(err)
	}
}
