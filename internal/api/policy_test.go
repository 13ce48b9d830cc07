package api_test

import (
	"encoding/json"
	"strings"
	"testing"

	"cofferdam"
	"cofferdam/internal/service"
)

// TestPolicyOverHTTP: a proposal, a look, a decision; and every kind of bad input.
func TestPolicyOverHTTP(t *testing.T) {
	h, _ := world(t)
	body := func(v any) string {
		text, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	var p cofferdam.PolicyProposal
	call := func(method, path, text string, want int) problem {
		t.Helper()
		w, bad := do(t, h, method, path, text)
		if w.Code != want {
			t.Errorf("%s %s %.80s: %d %s, want %d", method, path, text, w.Code, w.Body, want)
		}
		if want < 300 && w.Body.Len() > 0 {
			p = cofferdam.PolicyProposal{}
			if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil {
				t.Error(err)
			}
		}
		return bad
	}
	text := "[egress]\nallow = [\"a.example.com\"]\n"
	call("POST", "/v1/policies", body(cofferdam.PolicyRequest{Text: text, Why: "why"}), 201)
	if p.Version != 1 || p.Hash == "" || len(p.Opens) != 1 || p.Level != cofferdam.OfProject {
		t.Errorf("%+v", p)
	}
	right := cofferdam.PolicyDecision{Hash: p.Hash, Take: true, Proof: cofferdam.Proof{Kind: "password", Password: service.MemoryPassword}}
	for name, c := range map[string]struct {
		method, path, text string
		status             int
	}{
		"no version counts":   {"GET", "/v1/policies/now", "", 404},
		"version 0":           {"GET", "/v1/policies/0", "", 400},
		"version 01":          {"GET", "/v1/policies/01", "", 400},
		"a word":              {"GET", "/v1/policies/latest", "", 400},
		"decide about now":    {"POST", "/v1/policies/now/decide", body(right), 400},
		"another version":     {"POST", "/v1/policies/2/decide", body(right), 404},
		"no proof":            {"POST", "/v1/policies/1/decide", body(cofferdam.PolicyDecision{Hash: right.Hash, Take: true}), 403},
		"a wrong proof":       {"POST", "/v1/policies/1/decide", body(cofferdam.PolicyDecision{Hash: right.Hash, Take: true, Proof: cofferdam.Proof{Kind: "password", Password: "guess"}}), 403},
		"another hash":        {"POST", "/v1/policies/1/decide", body(cofferdam.PolicyDecision{Hash: "sha256:x", Take: true, Proof: right.Proof}), 409},
		"of the organisation": {"POST", "/v1/policies/1/decide", body(cofferdam.PolicyDecision{Level: cofferdam.OfOrganization, Hash: right.Hash, Take: true, Proof: right.Proof}), 404},
		"a level":             {"GET", "/v1/policies?level=team", "", 400},
		"an unknown key":      {"POST", "/v1/policies", `{"text":"","scope":{"project":"p-other"}}`, 400},
		"a bad policy":        {"POST", "/v1/policies", `{"text":"egres = 1"}`, 400},
		"a huge policy":       {"POST", "/v1/policies", body(cofferdam.PolicyRequest{Text: "# " + strings.Repeat("x", 1<<20)}), 400},
		"no question":         {"POST", "/v1/policy/explain", `{}`, 400},
		"a question of two":   {"POST", "/v1/policy/explain", `{"url":"https://a.example.com/","action":"invoke","on":"x"}`, 400},
		"replay of nothing":   {"POST", "/v1/policy/replay", `{"text":"","of":"t-9"}`, 404},
		"suggest of nothing":  {"GET", "/v1/policy/suggest/t-9", "", 404},
	} {
		if bad := call(c.method, c.path, c.text, c.status); bad.Hint == "" {
			t.Errorf("%s: no hint: %+v", name, bad)
		}
	}
	call("POST", "/v1/policies/1/decide", body(right), 200)
	call("GET", "/v1/policies/now", "", 200)
	if !p.Counts || p.Text != text || p.State != cofferdam.PolicyTaken || p.Signature == "" {
		t.Errorf("%+v", p)
	}
	w, _ := do(t, h, "GET", "/v1/policies", "")
	if got := w.Body.String(); w.Code != 200 || strings.Contains(got, "a.example.com") || !strings.Contains(got, `"decided_by":"person:`) {
		t.Errorf("%d %s", w.Code, got)
	}
	w, _ = do(t, h, "POST", "/v1/policy/explain", `{"url":"https://a.example.com/"}`)
	if got := w.Body.String(); w.Code != 200 || !strings.Contains(got, `"verdict":"allowed"`) {
		t.Errorf("%d %s", w.Code, got)
	}
}
