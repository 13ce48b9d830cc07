package model_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"cofferdam"
	"cofferdam/gateway"
	"cofferdam/policy"
)

// people answer as a test says, and keep what they were asked.
type people struct {
	mu    sync.Mutex
	no    error
	asked []cofferdam.Question
}

func (p *people) Ask(_ context.Context, q cofferdam.Question) (cofferdam.Question, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked = append(p.asked, q)
	q.ID, q.State = "a-1", cofferdam.QuestionAllowed
	return q, p.no
}

func (p *people) Use(context.Context, cofferdam.QuestionID, cofferdam.Digest) error { return nil }

func (p *people) UseOpening(context.Context, cofferdam.QuestionID, int) error { return nil }

func (p *people) TakeBytes(context.Context, cofferdam.QuestionID, int64, int64) error {
	return &cofferdam.Error{Kind: cofferdam.Conflict, Reason: "nothing is open"}
}

func (p *people) EndOpening(context.Context, cofferdam.Scope, cofferdam.QuestionID, string) error {
	return nil
}

// TestAskedCall: who is asked about a call sees the bytes that the provider gets,
// and without their word it gets none.
func TestAskedCall(t *testing.T) {
	var got []string
	upstream, _ := provider(t, func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		got = append(got, string(body))
		io.WriteString(w, `{"type":"message","usage":{"input_tokens":1,"output_tokens":1}}`)
	})
	b := start(t, upstream.URL, true)
	d, err := policy.ParseDocument(policy.ProjectName, []byte("[model]\nask = [\"provider\"]\n"), nil)
	if err != nil {
		t.Fatal(err)
	}
	set, err := policy.New(policy.Grant{Model: "provider", Project: &d})
	if err != nil {
		t.Fatal(err)
	}
	p := &people{}
	b.caller.Policy, b.caller.Ask = gateway.NewRules(set), p
	const body = `{"model":"m-1","max_tokens":10,"messages":[{"role":"user","content":"pay 1000"}]}`
	resp, text := b.post(t, "/v1/messages", body)
	if resp.StatusCode != 200 || len(got) != 1 || len(p.asked) != 1 || !strings.HasSuffix(string(p.asked[0].Bytes), "\r\n\r\n"+got[0]) ||
		!strings.HasPrefix(string(p.asked[0].Bytes), "POST /v1/messages\r\n") || strings.Contains(string(p.asked[0].Bytes), "sk-") || !strings.Contains(got[0], "pay 1000") {
		t.Fatalf("%d %s\nasked %+v\nsent %q", resp.StatusCode, text, p.asked, got)
	}
	p.no = &cofferdam.Error{Kind: cofferdam.Denied, Reason: "ann said no", Hint: "do something else"}
	resp, text = b.post(t, "/v1/messages", body)
	if resp.StatusCode < 400 || !strings.Contains(text, "ann said no") || len(got) != 1 {
		t.Errorf("%d %s, %d calls sent", resp.StatusCode, text, len(got))
	}
}
