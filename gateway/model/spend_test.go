package model_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"cofferdam"
	"cofferdam/budget"
	"cofferdam/gateway"
)

// spoken is one way of asking each provider, and how it answers.
type spoken struct {
	provider, path, body string // body: %s is the model's id
	whole                string // an answer of 100 tokens in and 50 out
	start, more          string // of a stream without end: each more has 30 bytes of text
	kind                 string // content type of the stream
}

func dialects() map[string]spoken {
	text := strings.Repeat("x", 30)
	const events = "text/event-stream"
	return map[string]spoken{
		"messages": {
			"anthropic", "/v1/messages", `{"model":"%s","max_tokens":300,"messages":[{"role":"user","content":"hi"}]}`,
			`{"type":"message","model":"m","usage":{"input_tokens":100,"output_tokens":50}}`,
			"data: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":10,\"output_tokens\":1}}}\n\n",
			"data: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"" + text + "\"}}\n\n", events,
		},
		"responses": {
			"openai", "/v1/responses", `{"model":"%s","max_output_tokens":300,"input":"hi"}`,
			`{"object":"response","model":"m","usage":{"input_tokens":100,"input_tokens_details":{"cached_tokens":0},"output_tokens":50}}`,
			"data: {\"type\":\"response.created\",\"response\":{}}\n\n", "data: {\"type\":\"response.output_text.delta\",\"delta\":\"" + text + "\"}\n\n", events,
		},
		"chat": {
			"openai", "/v1/chat/completions", `{"model":"%s","max_tokens":300,"messages":[{"role":"user","content":"hi"}]}`,
			`{"model":"m","choices":[{"message":{"content":"x"},"finish_reason":"stop"}],"usage":{"prompt_tokens":100,"completion_tokens":50}}`,
			"", "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"" + text + "\"},\"finish_reason\":null}]}\n\n", events,
		},
		"gemini": {
			"gemini", "/v1beta/models/%s:generateContent", `{"contents":[{"parts":[{"text":"hi"}]}],"generationConfig":{"maxOutputTokens":300}}`,
			`{"candidates":[{"content":{"parts":[{"text":"x"}]},"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":100,"candidatesTokenCount":20,"thoughtsTokenCount":30}}`,
			"[", "{\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"" + text + "\"}]}}]},\r\n", "application/json",
		},
	}
}

// ask sends a call for a model.
func (d spoken) ask(t testing.TB, b *bench, id string, stream bool) (*http.Response, string) {
	t.Helper()
	path, body := d.path, d.body
	if strings.Contains(path, "%s") {
		path = fmt.Sprintf(path, id)
		if stream {
			path = strings.Replace(path, ":generate", ":streamGenerate", 1)
		}
		return b.post(t, path, body)
	}
	body = fmt.Sprintf(body, id)
	if stream {
		body = strings.Replace(body, "{", `{"stream":true,"stream_options":{"include_usage":true},`, 1)
	}
	return b.post(t, path, body)
}

// counting answers with text, and counts how often.
func counting(t testing.TB, text string) (string, *atomic.Int64) {
	t.Helper()
	n := new(atomic.Int64)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		n.Add(1)
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, text)
	}))
	t.Cleanup(server.Close)
	return server.URL, n
}

const priced = "gpt-4o" // 2.50 and 10 dollars: any model with a list price would do

// TestBudgetStopsBeforeTheCall: in every protocol, the call that would pass a
// limit never reaches the provider, and is refused in a way that agents do not
// try again.
func TestBudgetStopsBeforeTheCall(t *testing.T) {
	for name, d := range dialects() {
		for what, limits := range map[string]cofferdam.Budget{
			"tokens": {Tokens: 600}, "$0.004": {Cost: 4000}, "model calls": {Calls: 2},
		} {
			url, n := counting(t, d.whole)
			b := of(t, d.provider, url, nil)
			b.caller.Budget = budget.New(limits, budget.Amount{})
			for range 2 { // 100 in and 50 out each, of which 300 out are reserved: 450 to 500 tokens and 3,500 to 3,900 microdollars
				if resp, body := d.ask(t, b, priced, false); resp.StatusCode != 200 {
					t.Fatalf("%s, %s: %d %s", name, what, resp.StatusCode, body)
				}
			}
			resp, body := d.ask(t, b, priced, false)
			if resp.StatusCode != 400 || resp.Header.Get(gateway.RuleHeader) != cofferdam.RuleBudget || resp.Header.Get("X-Should-Retry") != "false" ||
				!strings.Contains(body, what) || !strings.Contains(body, "hint: ") {
				t.Errorf("%s, %s: %d %v %s", name, what, resp.StatusCode, resp.Header, body)
			}
			if n.Load() != 2 {
				t.Errorf("%s, %s: %d calls reached the provider", name, what, n.Load())
			}
			events := b.record.Wait(t, 5)
			if e := events[4]; e.Verdict != cofferdam.Refused || e.Rule != cofferdam.RuleBudget || !strings.Contains(e.Reason, what) {
				t.Errorf("%s, %s: on record: %+v", name, what, e)
			}
			c := &b.caller.Counts
			if c.ModelCalls.Load() != 2 || c.InputTokens.Load() != 200 || c.OutputTokens.Load() != 100 || c.Cost.Load() != 1500 || c.Unpriced.Load() != 0 {
				t.Errorf("%s, %s: %d calls, %d in, %d out, cost %d", name, what, c.ModelCalls.Load(), c.InputTokens.Load(), c.OutputTokens.Load(), c.Cost.Load())
			}
			if taken, want := b.caller.Budget.Taken(), (budget.Amount{Tokens: 300, Cost: 1500, Calls: 2}); taken != want {
				t.Errorf("%s, %s: taken %+v, want %+v", name, what, taken, want)
			}
			if f := events[1].Fields; f[cofferdam.FieldCost] != "750" || f[cofferdam.FieldInputTokens] != "100" || f[cofferdam.FieldEstimated] != "" || events[0].Fields[cofferdam.FieldReservedTokens] == "" {
				t.Errorf("%s, %s: fields %v and %v", name, what, events[0].Fields, f)
			}
		}
	}
}

// TestStreamIsCutBeforeTheLimit: of an answer without end the box gets what the
// budget has room for and not a byte of the event that would pass it; the
// provider's connection ends, and so does the box's, without a proper end.
func TestStreamIsCutBeforeTheLimit(t *testing.T) {
	for name, d := range dialects() {
		for what, limits := range map[string]cofferdam.Budget{"tokens": {Tokens: 1000}, "$0.01": {Cost: 10_000}} {
			gone := make(chan struct{})
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				defer close(gone)
				w.Header().Set("Content-Type", d.kind)
				io.WriteString(w, d.start)
				for r.Context().Err() == nil {
					if _, err := io.WriteString(w, d.more); err != nil {
						return
					}
					w.(http.Flusher).Flush()
				}
			}))
			b := of(t, d.provider, server.URL, nil)
			b.caller.Budget = budget.New(limits, budget.Amount{})
			_, body := d.ask(t, b, priced, true)
			select {
			case <-gone:
			case <-time.After(time.Minute):
				t.Errorf("%s, %s: the provider still writes", name, what)
			}
			server.Close()
			written := int64(strings.Count(body, strings.Repeat("x", 30))) * 10
			e := b.record.Wait(t, 2)[1]
			in, _ := strconv.ParseInt(e.Fields[cofferdam.FieldInputTokens], 10, 64)
			out, _ := strconv.ParseInt(e.Fields[cofferdam.FieldOutputTokens], 10, 64)
			taken := b.caller.Budget.Taken()
			if !strings.Contains(body, "[cut:") || e.Outcome != gateway.Cut || e.Fields[cofferdam.FieldCutBy] != cofferdam.RuleBudget || !strings.Contains(e.Reason, what) {
				t.Errorf("%s, %s: %s %q %v; %.80s", name, what, e.Outcome, e.Reason, e.Fields, body[max(0, len(body)-80):])
			}
			if limits.Tokens > 0 && (taken.Tokens > limits.Tokens || in+written > limits.Tokens || in+written < limits.Tokens*8/10) ||
				limits.Cost > 0 && (taken.Cost > limits.Cost || taken.Cost < limits.Cost*8/10) {
				t.Errorf("%s, %s: %d in, %d out, of which the box got %d; taken %+v of %+v", name, what, in, out, written, taken, limits)
			}
			if resp, _ := d.ask(t, b, priced, true); resp.StatusCode != 400 {
				t.Errorf("%s, %s: a call after it was answered %d", name, what, resp.StatusCode)
			}
		}
	}
}

// TestCallsAtTheSameTimeShareWhatIsLeft: of twenty calls that each would fit
// alone, as many get through as fit together.
func TestCallsAtTheSameTimeShareWhatIsLeft(t *testing.T) {
	d := dialects()["chat"]
	var n atomic.Int64
	hold := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		n.Add(1)
		<-hold
		io.WriteString(w, d.whole)
	}))
	defer server.Close()
	b := of(t, d.provider, server.URL, nil)
	b.caller.Budget = budget.New(cofferdam.Budget{Tokens: 1300}, budget.Amount{}) // three of about 330
	var refused atomic.Int64
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			resp, _ := d.ask(t, b, priced, false)
			if resp.StatusCode == 400 && refused.Add(1) == 17 {
				close(hold)
			}
		})
	}
	all.Wait()
	if n.Load() != 3 || refused.Load() != 17 {
		t.Errorf("%d calls reached the provider, %d were refused", n.Load(), refused.Load())
	}
}

// TestUnpricedCallUnderALimitOfCost: what nobody knows the price of is refused
// under a limit of cost, and else counted as such.
func TestUnpricedCallUnderALimitOfCost(t *testing.T) {
	for name, d := range dialects() {
		url, n := counting(t, d.whole)
		b := of(t, d.provider, url, nil)
		if resp, body := d.ask(t, b, "own-model", false); resp.StatusCode != 200 {
			t.Errorf("%s without a limit: %d %s", name, resp.StatusCode, body)
		}
		e := b.record.Wait(t, 2)[1]
		if c := &b.caller.Counts; c.Unpriced.Load() != 1 || c.Cost.Load() != 0 || e.Fields[cofferdam.FieldUnpriced] != "true" || e.Fields[cofferdam.FieldCost] != "" {
			t.Errorf("%s: %d unpriced, %v", name, c.Unpriced.Load(), e.Fields)
		}
		b.caller.Budget = budget.New(cofferdam.Budget{Cost: 1_000_000}, budget.Amount{})
		resp, body := d.ask(t, b, "own-model", false)
		if resp.StatusCode != 400 || resp.Header.Get(gateway.RuleHeader) != cofferdam.RuleUnpriced || !strings.Contains(body, "[[price]]") || n.Load() != 1 {
			t.Errorf("%s with a limit: %d %s, %d calls reached the provider", name, resp.StatusCode, body, n.Load())
		}
	}
}

// TestCompressedAnswerIsNotPassed: the gateway asks for plain text, and what
// comes otherwise cannot be counted, so it is not let through.
func TestCompressedAnswerIsNotPassed(t *testing.T) {
	asked := ""
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = r.Header.Get("Accept-Encoding")
		w.Header().Set("Content-Encoding", "gzip")
		io.WriteString(w, "\x1f\x8b not looked at")
	}))
	defer server.Close()
	d := dialects()["messages"]
	b := of(t, d.provider, server.URL, nil)
	resp, body := d.ask(t, b, priced, false)
	if resp.StatusCode != 403 || !strings.Contains(body, "compressed") || strings.Contains(body, "not looked at") || asked != "identity" {
		t.Errorf("asked for %q, answered %d %s", asked, resp.StatusCode, body)
	}
	e := b.record.Wait(t, 2)[1]
	if e.Outcome != gateway.Failed || e.Fields[cofferdam.FieldOutputTokens] != "300" || e.Fields[cofferdam.FieldEstimated] != "true" {
		t.Errorf("on record: %s %v", e.Outcome, e.Fields)
	}
}

// TestCallNobodyWaitsForIsPaidAll: a box that hangs up before a whole answer
// comes has still had the provider work on it.
func TestCallNobodyWaitsForIsPaidAll(t *testing.T) {
	asked := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.ReadAll(r.Body)
		close(asked)
		<-r.Context().Done()
	}))
	defer server.Close()
	d := dialects()["messages"]
	b := of(t, d.provider, server.URL, nil)
	b.caller.Budget = budget.New(cofferdam.Budget{Tokens: 5000}, budget.Amount{})
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-asked; cancel() }()
	r, err := http.NewRequestWithContext(ctx, "POST", b.URL+d.path, strings.NewReader(fmt.Sprintf(d.body, priced)))
	if err != nil {
		t.Fatal(err)
	}
	if resp, err := http.DefaultClient.Do(r); err == nil {
		resp.Body.Close()
		t.Fatal("it was answered")
	}
	e := b.record.Wait(t, 2)[1]
	if e.Fields[cofferdam.FieldOutputTokens] != "300" || e.Fields[cofferdam.FieldEstimated] != "true" || b.caller.Budget.Taken().Tokens < 300 {
		t.Errorf("on record: %s %v; taken %+v", e.Outcome, e.Fields, b.caller.Budget.Taken())
	}
}

// TestCallThatWasNeverSentCostsNothing: no provider, no policy, no cost.
func TestCallThatWasNeverSentCostsNothing(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	server.Close()
	d := dialects()["messages"]
	for name, b := range map[string]*bench{"no provider": of(t, d.provider, server.URL, nil), "no grant": start(t, server.URL, false)} {
		b.caller.Budget = budget.New(cofferdam.Budget{Tokens: 5000}, budget.Amount{})
		d.ask(t, b, priced, false)
		if b.caller.Budget.Taken() != (budget.Amount{}) || b.caller.Counts.ModelCalls.Load() != 0 {
			t.Errorf("%s: taken %+v, %d calls", name, b.caller.Budget.Taken(), b.caller.Counts.ModelCalls.Load())
		}
	}
}
