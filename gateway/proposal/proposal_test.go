package proposal_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"cofferdam"
	"cofferdam/gateway"
	"cofferdam/gateway/gatewaytest"
	"cofferdam/gateway/proposal"
	"cofferdam/policy"
)

// people answer as a test says; asked has what they were asked.
type people struct {
	gateway.Asker
	asked  chan cofferdam.Question
	answer chan *cofferdam.Bounds // nil: no
}

func (p *people) Ask(ctx context.Context, q cofferdam.Question) (cofferdam.Question, error) {
	q.ID = cofferdam.QuestionID(cofferdam.NewID("a"))
	p.asked <- q
	select {
	case b := <-p.answer:
		if b == nil {
			return q, &cofferdam.Error{Kind: cofferdam.Denied, Reason: "a person said no"}
		}
		q.State, q.Answers = cofferdam.QuestionAllowed, []cofferdam.Answer{{By: cofferdam.Principal{Kind: cofferdam.Person, Name: "ann"}, Allow: true, Bounds: b, Time: time.Now()}}
		return q, nil
	case <-ctx.Done():
		return q, &cofferdam.Error{Kind: cofferdam.Denied, Reason: "whoever asked is gone"}
	}
}

func (p *people) Use(context.Context, cofferdam.QuestionID, cofferdam.Digest) error { return nil }

// lab is a proposal gateway as a box of some policy reaches it.
func lab(t *testing.T, text string) (url string, p *people, rec *gatewaytest.Recorder) {
	t.Helper()
	doc, err := policy.ParseDocument("project", []byte(text), nil)
	if err != nil {
		t.Fatal(err)
	}
	c, rec, _ := gatewaytest.NewCaller(t, policy.Grant{Repo: "r-1", Project: &doc})
	p = &people{asked: make(chan cofferdam.Question, 10), answer: make(chan *cofferdam.Bounds, 10)}
	c.Ask = p
	return "http://" + gatewaytest.Serve(t, proposal.New(), c, gateway.Target{Host: gateway.PolicyHost, Port: 80}), p, rec
}

func send(t *testing.T, url, method, body string) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url+"/", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Host = string(gateway.PolicyHost)
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

// TestProposal: a person sees host, bounds and the agent's words byte for byte; the
// agent is told what they opened.
func TestProposal(t *testing.T) {
	url, p, rec := lab(t, "")
	p.answer <- &cofferdam.Bounds{Entry: "api.example.com", Seconds: 60, Uses: 3, Bytes: 1000}
	code, text := send(t, url, "POST", `{"entry":"API.example.com","why":"docs\n\u001b[2Kresource: good.test","for":"90s","uses":5,"bytes":2000}`)
	q := <-p.asked
	if q.Proposed == nil || *q.Proposed != (cofferdam.Bounds{Entry: "api.example.com", Seconds: 90, Uses: 5, Bytes: 2000}) || string(q.Bytes) != "docs\n\x1b[2Kresource: good.test" || q.Resource != "api.example.com" {
		t.Errorf("%+v", q)
	}
	var o struct {
		Entry string
		Until time.Time
		Uses  int
		Bytes int64
	}
	if err := json.Unmarshal([]byte(text), &o); code != 200 || err != nil || o.Entry != "api.example.com" || o.Uses != 3 || o.Bytes != 1000 || o.Until.Before(time.Now()) {
		t.Errorf("%d %s %v", code, text, err)
	}
	if e := rec.Find(cofferdam.EventProposal); len(e) != 3 || e[0].Verdict != cofferdam.Asked || e[1].Fields["allowed_by"] != "person:ann" {
		t.Errorf("on record: %+v", e)
	}
	_, text = send(t, url, "GET", "")
	if !strings.Contains(text, `"opened":[{"entry":"api.example.com"`) {
		t.Errorf("what is open: %s", text)
	}
	p.answer <- nil
	if code, text = send(t, url, "POST", `{"entry":"other.example.com:8443","why":"more"}`); code != 403 || !strings.Contains(text, "said no") {
		t.Errorf("a no: %d %s", code, text)
	}
	if q := <-p.asked; *q.Proposed != (cofferdam.Bounds{Entry: "other.example.com:8443", Seconds: 1800, Uses: 100, Bytes: 10_000_000}) {
		t.Errorf("defaults: %+v", q.Proposed)
	}
}

// TestBadProposals: nobody is asked what cannot be read, names more than one host,
// or has no bounds.
func TestBadProposals(t *testing.T) {
	url, p, _ := lab(t, "[egress]\ndeny = [\"never.example.com\"]\n")
	for _, body := range []string{
		``, `{}`, `[]`, `null`, `{"entry":"a.example.com"}`, `{"entry":"a.example.com","why":""}`, `{"entry":"a.example.com","why":"  \n"}`,
		`{"entry":"","why":"x"}`, `{"entry":"*","why":"x"}`, `{"entry":"*.example.com","why":"x"}`, `{"entry":"https://a.example.com","why":"x"}`, `{"entry":"a.example.com/x","why":"x"}`,
		`{"entry":"splice:a.example.com","why":"x"}`, `{"entry":"preset:npm","why":"x"}`, `{"entry":"10.0.0.1","why":"x"}`, `{"entry":"a.example.com:0","why":"x"}`, `{"entry":"git.cofferdam.internal","why":"x"}`,
		`{"entry":"a.example.com\u0000","why":"x"}`, `{"entry":"а.example.com","why":"x"}`, `{"entry":"never.example.com","why":"x"}`,
		`{"entry":"a.example.com","why":"x","for":"-1s"}`, `{"entry":"a.example.com","why":"x","for":"24h"}`, `{"entry":"a.example.com","why":"x","for":"0"}`, `{"entry":"a.example.com","why":"x","for":30}`,
		`{"entry":"a.example.com","why":"x","uses":0}`, `{"entry":"a.example.com","why":"x","uses":-1}`, `{"entry":"a.example.com","why":"x","uses":1001}`, `{"entry":"a.example.com","why":"x","uses":1e99}`,
		`{"entry":"a.example.com","why":"x","bytes":0}`, `{"entry":"a.example.com","why":"x","bytes":-5}`, `{"entry":"a.example.com","why":"x","bytes":1000000000000}`,
		`{"entry":"a.example.com","why":"x","task":"t-1"}`, `{"entry":"a.example.com","why":"x"} {}`, `{"entry":"a.example.com","why":"` + strings.Repeat("x", 1001) + `"}`,
		`{"entry":"a.example.com","why":"` + strings.Repeat(" ", 10_000) + `x"}`,
	} {
		if code, text := send(t, url, "POST", body); code < 400 || code >= 500 || !strings.Contains(text, "hint: ") {
			t.Errorf("%.80q: %d %s", body, code, text)
		}
	}
	for _, method := range []string{"PUT", "DELETE", "PATCH"} {
		if code, _ := send(t, url, method, `{"entry":"a.example.com","why":"x"}`); code != 404 {
			t.Errorf("%s: %d", method, code)
		}
	}
	if len(p.asked) != 0 {
		t.Errorf("%d were asked: %+v", len(p.asked), <-p.asked)
	}
}

// TestOneProposalWaits: of one task one is asked at a time.
func TestOneProposalWaits(t *testing.T) {
	url, p, _ := lab(t, "")
	first := make(chan int, 1)
	go func() {
		code, _ := send(t, url, "POST", `{"entry":"a.example.com","why":"one"}`)
		first <- code
	}()
	<-p.asked
	if code, text := send(t, url, "POST", `{"entry":"b.example.com","why":"two"}`); code != 409 || len(p.asked) != 0 {
		t.Errorf("a second one: %d %s", code, text)
	}
	p.answer <- &cofferdam.Bounds{Entry: "a.example.com", Seconds: 60, Uses: 1, Bytes: 1}
	if code := <-first; code != 200 {
		t.Errorf("the first: %d", code)
	}
	p.answer <- &cofferdam.Bounds{Entry: "b.example.com", Seconds: 60, Uses: 1, Bytes: 1}
	if code, _ := send(t, url, "POST", `{"entry":"b.example.com","why":"two"}`); code != 200 {
		t.Errorf("after it: %d", code)
	}
}
