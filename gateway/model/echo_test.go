package model_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"cofferdam"
	"cofferdam/budget"
	"cofferdam/gateway"
	"cofferdam/gateway/model"
)

// TestKeyIsNotEchoed: a server that says what it was sent does not tell a box the
// key: not in a header, an error, an answer or a stream, however it is cut, nor in
// text that is kept.
func TestKeyIsNotEchoed(t *testing.T) {
	half := len(realKey) / 2
	for name, c := range map[string]struct {
		answer func(w http.ResponseWriter, r *http.Request)
		passes bool // the answer goes on without it
	}{
		"error": {func(w http.ResponseWriter, r *http.Request) {
			http.Error(w, fmt.Sprint(r.Header), http.StatusUnauthorized)
		}, false},
		"answer": {func(w http.ResponseWriter, r *http.Request) { fmt.Fprintf(w, `{"headers":%q}`, fmt.Sprint(r.Header)) }, false},
		"header": {func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("X-Request-Id", "for "+realKey)
			io.WriteString(w, "{}")
		}, true},
		"stream": {func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			for _, part := range []string{"data: {\"type\":\"content_block_delta\"}\n\n", "data: " + realKey[:half], realKey[half:] + "\n\n"} {
				io.WriteString(w, part)
				w.(http.Flusher).Flush()
				time.Sleep(20 * time.Millisecond)
			}
		}, false},
		"one letter at a time": {func(w http.ResponseWriter, r *http.Request) {
			for _, b := range []byte(`{"a":"sk-sk-` + realKey + `"}`) {
				w.Write([]byte{b})
				w.(http.Flusher).Flush()
			}
		}, false},
		"its beginning alone": {func(w http.ResponseWriter, r *http.Request) {
			io.WriteString(w, `{"a":"sk-`+realKey[:half]+`"}`+realKey[:half])
		}, true},
	} {
		for _, stream := range []bool{true, false} {
			server, seen := provider(t, c.answer)
			b := of(t, "anthropic", server.URL, func(m *cofferdam.Model) { m.KeepText = true })
			resp, body := b.post(t, "/v1/messages", fmt.Sprintf(question, stream))
			all := fmt.Sprint(resp.Header) + body + fmt.Sprint(b.record.Events())
			if strings.Contains(all, realKey) || len(*seen) == 0 || (*seen)[0].Header.Get("X-Api-Key") != realKey {
				t.Errorf("%s: %d calls, the box has %s", name, len(*seen), all)
			}
			if whole := resp.StatusCode == 200 && !strings.Contains(body, "[cut"); whole != c.passes {
				t.Errorf("%s, stream %v: %d %s", name, stream, resp.StatusCode, body)
			}
			if name == "its beginning alone" && body != `{"a":"sk-`+realKey[:half]+`"}`+realKey[:half] {
				t.Errorf("%s became %s", name, body)
			}
		}
	}
}

// TestOneReadingLeaves: what was judged as JSON is sent as JSON, whatever the box
// calls it, and asked for in a form that can be counted.
func TestOneReadingLeaves(t *testing.T) {
	server, seen := provider(t, func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "{}") })
	b := of(t, "gemini", server.URL, nil)
	for _, h := range []http.Header{
		{"Content-Type": {"application/json; charset=utf-7"}, "Accept": {"application/x-protobuf"}},
		{"Content-Type": {"application/json+protobuf", "text/plain"}, "Accept": {"text/event-stream", "application/x-protobuf"}},
		{"Content-Type": {"multipart/form-data; boundary=x"}},
	} {
		r, err := http.NewRequest("POST", b.URL+"/v1beta/models/g:generateContent", strings.NewReader(`{}`))
		if err != nil {
			t.Fatal(err)
		}
		r.Header = h
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		got := (*seen)[len(*seen)-1].Header
		if len(got["Content-Type"]) != 1 || got.Get("Content-Type") != "application/json" || len(got["Accept"]) != 1 || strings.Contains(got.Get("Accept"), "proto") {
			t.Errorf("the provider saw %v", got)
		}
	}
}

// TestCallsThatCouldPassALimitUnseen: under a limit, what has another price than
// its model, and a stream that would not say what it used, are refused before
// they are sent; without a limit they pass and are counted as what they are.
func TestCallsThatCouldPassALimitUnseen(t *testing.T) {
	for name, c := range map[string]struct{ provider, path, body, rule string }{
		"fast":   {"anthropic", "/v1/messages", `{"model":"claude-opus-4-6","max_tokens":9,"speed":"fast"}`, cofferdam.RuleUnpriced},
		"tier":   {"openai", "/v1/responses", `{"model":"gpt-5","max_output_tokens":9,"service_tier":"priority"}`, cofferdam.RuleUnpriced},
		"stream": {"openai", "/v1/chat/completions", `{"model":"o3","stream":true}`, cofferdam.RuleUncounted},
	} {
		url, n := counting(t, `{"usage":{"input_tokens":5,"output_tokens":5}}`)
		b := of(t, c.provider, url, nil)
		if resp, body := b.post(t, c.path, c.body); resp.StatusCode != 200 {
			t.Errorf("%s without a limit: %d %s", name, resp.StatusCode, body)
		}
		if f := b.record.Wait(t, 2)[1].Fields; c.rule == cofferdam.RuleUnpriced && (f[cofferdam.FieldUnpriced] != "true" || f[cofferdam.FieldCost] != "") {
			t.Errorf("%s counts as %v", name, f)
		}
		b.caller.Budget = budget.New(cofferdam.Budget{Cost: 1_000_000}, budget.Amount{})
		resp, body := b.post(t, c.path, c.body)
		if resp.StatusCode != 400 || resp.Header.Get(gateway.RuleHeader) != c.rule || n.Load() != 1 {
			t.Errorf("%s with a limit: %d %s, %d calls reached the provider", name, resp.StatusCode, body, n.Load())
		}
	}
}

// TestLargeRequestsOfOneSessionAreBounded: they stay in memory until their answers
// come, so a box has a few of them at a time; small ones pass beside them.
func TestLargeRequestsOfOneSessionAreBounded(t *testing.T) {
	var at atomic.Int64
	release := make(chan struct{})
	server, _ := turns(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		at.Add(1)
		<-release
		io.WriteString(w, "{}")
	})
	b := of(t, "anthropic", server.URL, nil)
	done := make(chan int)
	send := func(body string) {
		resp, err := (&http.Client{Transport: &http.Transport{}}).Post(b.URL+"/v1/messages", "application/json", strings.NewReader(body))
		if err != nil {
			done <- 0
			return
		}
		resp.Body.Close()
		done <- resp.StatusCode
	}
	const more = 3
	large := `{"x":"` + strings.Repeat("x", model.LargeRequest) + `"}`
	for range model.MaxLarge + more {
		go send(large)
	}
	reach := func(n int64) {
		t.Helper()
		for deadline := time.Now().Add(20 * time.Second); at.Load() < n && time.Now().Before(deadline); {
			time.Sleep(5 * time.Millisecond)
		}
		time.Sleep(100 * time.Millisecond) // time for one too many
		if at.Load() != n {
			t.Errorf("%d calls at a time, want %d", at.Load(), n)
		}
	}
	reach(model.MaxLarge)
	go send(`{}`)
	reach(model.MaxLarge + 1)
	close(release)
	for range model.MaxLarge + more + 1 {
		if code := <-done; code != 200 {
			t.Errorf("status %d", code)
		}
	}
}
