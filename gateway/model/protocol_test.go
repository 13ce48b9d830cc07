package model_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"cofferdam"
	"cofferdam/gateway"
	"cofferdam/gateway/gatewaytest"
	"cofferdam/gateway/model"
	"cofferdam/policy"
)

// of serves a registration of a provider's protocol.
func of(t testing.TB, provider, url string, change func(*cofferdam.Model)) *bench {
	t.Helper()
	m := cofferdam.Model{Name: "provider", Provider: provider, URL: url}
	if change != nil {
		change(&m)
	}
	return serve(t, m, policy.Grant{Model: m.Name})
}

// TestKeyOfEachProtocol: whatever credential a box sends, in whatever place, is
// dropped, and the real one stands where the protocol has it. What names an
// account does not leave either.
func TestKeyOfEachProtocol(t *testing.T) {
	for _, c := range []struct{ provider, path, header, want string }{
		{"anthropic", "/v1/messages", "X-Api-Key", realKey},
		{"openai", "/v1/responses", "Authorization", "Bearer " + realKey},
		{"openai", "/v1/chat/completions", "Authorization", "Bearer " + realKey},
		{"gemini", "/v1beta/models/g-1:generateContent", "X-Goog-Api-Key", realKey},
	} {
		server, seen := provider(t, func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "{}") })
		b := of(t, c.provider, server.URL, nil)
		r, err := http.NewRequest("POST", b.URL+c.path+"?key=sk-of-the-box&beta=true&%6Bey=sk-of-the-box", strings.NewReader(`{}`))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{
			"X-Api-Key", "Authorization", "X-Goog-Api-Key", "Cookie", "Proxy-Authorization", "Api-Key", "Openai-Organization", "Openai-Project",
			"X-Goog-User-Project", "X-Http-Method-Override", "X-Forwarded-For",
		} {
			r.Header.Set(name, "sk-of-the-box")
		}
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		got := (*seen)[0]
		if resp.StatusCode != 200 || got.Header.Get(c.header) != c.want || got.URL.RawQuery != "beta=true" || strings.Contains(fmt.Sprint(got.Header), "of-the-box") {
			t.Errorf("%s: %d, the provider saw %s %v", c.path, resp.StatusCode, got.URL, got.Header)
		}
		if text := fmt.Sprint(b.record.Wait(t, 2)); strings.Contains(text, "of-the-box") || strings.Contains(text, realKey) {
			t.Errorf("%s: a key is on record", c.path)
		}
	}
}

// TestValuesArriveUnchangedAndInOrder: the gateway keeps no list of beta values.
func TestValuesArriveUnchangedAndInOrder(t *testing.T) {
	server, seen := provider(t, func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(fmt.Sprint(r.Header.Values("Anthropic-Beta")), "refused-2031") {
			status(400)(w, r)
			return
		}
		io.WriteString(w, "{}")
	})
	b := of(t, "anthropic", server.URL, nil)
	ask := func(path string, beta ...string) (*http.Response, string) {
		r, err := http.NewRequest("POST", b.URL+path, strings.NewReader(`{"model":"m"}`))
		if err != nil {
			t.Fatal(err)
		}
		r.Header["Anthropic-Beta"] = beta
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		text, _ := io.ReadAll(resp.Body)
		return resp, string(text)
	}
	for i, beta := range [][]string{{"a-2026-01-01,zz-2031-01-01"}, {"zz-2031-01-01", "a-2026-01-01"}} {
		resp, _ := ask("/v1/messages?beta=true&z=%2f&a=1", beta...)
		if got := (*seen)[i]; resp.StatusCode != 200 || !slices.Equal(got.Header.Values("Anthropic-Beta"), beta) || got.URL.RawQuery != "beta=true&z=%2f&a=1" {
			t.Errorf("the provider saw %v %s", got.Header, got.URL)
		}
	}
	if resp, text := ask("/v1/messages", "refused-2031"); resp.StatusCode != 400 || !strings.Contains(text, "of-400") {
		t.Errorf("the provider's own refusal: %d %s", resp.StatusCode, text)
	}
	if resp, _ := ask("/v1/messages/count_tokens?beta=true", "a"); resp.StatusCode != 200 {
		t.Errorf("count_tokens: %d", resp.StatusCode)
	}
	if n := b.caller.Counts.ModelCalls.Load(); n != 3 {
		t.Errorf("%d calls were counted", n)
	}
}

// TestErrorShapes: what the gateway itself answers is what clients of the
// protocol read, in two lines, and names what is served.
func TestErrorShapes(t *testing.T) {
	for _, c := range []struct {
		provider, path string
		read           func(map[string]any) (kind string, message any)
	}{
		{"anthropic", "/v1/complete", func(o map[string]any) (string, any) {
			e := o["error"].(map[string]any)
			return fmt.Sprint(o["type"], " ", e["type"]), e["message"]
		}},
		{"openai", "/v1/files", func(o map[string]any) (string, any) {
			e := o["error"].(map[string]any)
			return fmt.Sprint(e["type"], " ", e["code"]), e["message"]
		}},
		{"gemini", "/v1beta/files", func(o map[string]any) (string, any) {
			e := o["error"].(map[string]any)
			return fmt.Sprint(e["status"], " ", e["code"]), e["message"]
		}},
	} {
		b := of(t, c.provider, "http://127.0.0.1:1", nil)
		resp, text := b.post(t, c.path, `{}`)
		var o map[string]any
		if err := json.Unmarshal([]byte(text), &o); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		kind, message := c.read(o)
		want := map[string]string{"anthropic": "error not_found_error", "openai": "invalid_request_error cofferdam", "gemini": "NOT_FOUND 404"}[c.provider]
		lines := strings.Split(fmt.Sprint(message), "\n")
		if resp.StatusCode != 404 || kind != want || len(lines) != 2 || !strings.HasPrefix(lines[0], "cofferdam: ") || !strings.HasPrefix(lines[1], "hint: for this model it serves ") {
			t.Errorf("%s: %d %q %q", c.provider, resp.StatusCode, kind, lines)
		}
	}
}

// TestWebSocketIsNegotiatedAway: any answer but 426 costs agents seconds of tries.
func TestWebSocketIsNegotiatedAway(t *testing.T) {
	b := of(t, "openai", "http://127.0.0.1:1", nil)
	for _, path := range []string{"/v1/responses", "/v1/whatever"} {
		r, err := http.NewRequest("GET", b.URL+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		for name, value := range map[string]string{"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ=="} {
			r.Header.Set(name, value)
		}
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.StatusCode != 426 || !json.Valid(text) || !resp.Close || !strings.Contains(string(text), "no WebSocket") {
			t.Errorf("%s: %d %v %s", path, resp.StatusCode, resp.Header, text)
		}
	}
	events := b.record.Wait(t, 4)
	if e := events[1]; events[0].Verdict != cofferdam.Allowed || e.Outcome != gateway.OK || e.Fields["negotiation"] != "websocket" || b.caller.Counts.Refused.Load() != 0 {
		t.Errorf("on record %+v", events)
	}
}

func TestModelsThatAreNotAllowed(t *testing.T) {
	server, seen := provider(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, `{"got":%q}`, body)
	})
	limit := func(m *cofferdam.Model) {
		m.Allow, m.Alias = []string{"big-*"}, map[string]string{"small": "big-1"}
	}
	for _, c := range []struct{ provider, path, body string }{
		{"anthropic", "/v1/messages", `{"model":%q}`},
		{"openai", "/v1/responses", `{"model":%q}`},
		{"openai", "/v1/chat/completions", `{"model":%q}`},
		{"gemini", "/v1beta/models/%s:generateContent", ``},
	} {
		b := of(t, c.provider, server.URL, limit)
		fill := func(s, id string) string {
			if !strings.Contains(s, "%") {
				return s
			}
			return fmt.Sprintf(s, id)
		}
		before := len(*seen)
		body := c.body
		if body == "" {
			body = "{}"
		}
		resp, text := b.post(t, fill(c.path, "tiny"), fill(body, "tiny"))
		if resp.StatusCode != 403 || resp.Header.Get(gateway.RuleHeader) != model.RuleModel || !strings.Contains(text, `allowed: big-*`) || len(*seen) != before {
			t.Errorf("%s: %d %s", c.path, resp.StatusCode, text)
		}
		if e := b.record.Wait(t, 1)[0]; e.Verdict != cofferdam.Refused || e.Rule != model.RuleModel || e.Fields["model"] != "tiny" {
			t.Errorf("on record %+v", e)
		}
		resp, text = b.post(t, fill(c.path, "small"), fill(body, "small"))
		if resp.StatusCode != 200 || !strings.Contains((*seen)[len(*seen)-1].URL.Path+text, "big-1") || strings.Contains((*seen)[len(*seen)-1].URL.Path+text, "small") {
			t.Errorf("%s: %d %s", c.path, resp.StatusCode, text)
		}
		if e := b.record.Wait(t, 2)[1]; e.Fields["model"] != "big-1" || e.Fields["asked"] != "small" {
			t.Errorf("on record %+v", e)
		}
	}
}

// TestGemini is the gateway's part of what ordinary use of Gemini breaks: base
// URLs joined loosely, signatures, lists that stream, no mark at the end.
func TestGemini(t *testing.T) {
	const signature = `a+b/c==`
	events := "data: {\"candidates\":[{\"content\":{\"parts\":[{\"functionCall\":{\"name\":\"f\",\"args\":{}},\"thoughtSignature\":\"" + signature + "\"}]}}]}\r\n\r\n" +
		"data: {\"candidates\":[],\"usageMetadata\":{\"promptTokenCount\":4,\"candidatesTokenCount\":2}}\r\n\r\n"
	list := "[{\"candidates\":[{\"content\":{}}]}\n,\r\n{\"usageMetadata\":{\"promptTokenCount\":4,\"candidatesTokenCount\":2}}\n]"
	release := make(chan struct{})
	server, seen := provider(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("alt") == "sse" {
			stream(events, false)(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, list[:30])
		w.(http.Flusher).Flush()
		<-release
		io.WriteString(w, list[30:])
	})
	b := of(t, "gemini", server.URL+"/v1beta/", nil)
	for i, path := range []string{"/v1beta/models/g-1:", "//v1beta/models/g-1:", "/v1beta/v1beta/models/g-1:", "/models/g-1:"} {
		resp, text := b.post(t, path+"streamGenerateContent?alt=sse&key=sk-of-the-box",
			`{"contents":[{"parts":[{"functionCall":{"name":"f","args":{}},"thoughtSignature":"`+signature+`"}]}]}`)
		if resp.StatusCode != 200 || text != events {
			t.Errorf("%s: %d %q", path, resp.StatusCode, text)
		}
		if u := (*seen)[i].URL.String(); u != "/v1beta/models/g-1:streamGenerateContent?alt=sse" {
			t.Errorf("the provider was asked for %s", u)
		}
	}
	resp, err := http.Post(b.URL+"/v1beta/models/g-1:streamGenerateContent", "application/json", strings.NewReader(`{}`))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	first := make([]byte, 30)
	if _, err := io.ReadFull(resp.Body, first); err != nil { // would wait for ever if it were buffered
		t.Fatal(err)
	}
	close(release)
	rest, err := io.ReadAll(resp.Body)
	if string(first)+string(rest) != list || err != nil {
		t.Errorf("%q %v", rest, err)
	}
	last := b.record.Wait(t, 10)[9]
	if last.Fields["input_tokens"] != "4" || last.Fields["output_tokens"] != "2" {
		t.Errorf("on record %v", last.Fields)
	}
}

// TestKeptText: where the registration says so, prompt and answer go on record
// in full, without secrets, in parts that fit, and up to a bound.
func TestKeptText(t *testing.T) {
	long := strings.Repeat("ü", model.MaxKept/2+10)
	server, _ := turns(t, stream(anthropicStream, false))
	prompt := `{"stream":true,"messages":[{"role":"user","content":"a canary and ` + long + `"}]}`
	for _, keep := range []bool{true, false} {
		b := of(t, "anthropic", server.URL, func(m *cofferdam.Model) { m.KeepText = keep })
		if resp, text := b.post(t, "/v1/messages", prompt); resp.StatusCode != 200 || text != anthropicStream {
			t.Fatalf("%d %s", resp.StatusCode, text)
		}
		b.record.Wait(t, 2)
		texts := b.record.Find(cofferdam.EventModelText)
		if !keep {
			if len(texts) != 0 {
				t.Errorf("%d texts were kept", len(texts))
			}
			continue
		}
		events := b.record.Wait(t, 2+len(texts))
		kept := map[string]string{}
		for _, e := range texts {
			kept[e.Fields["what"]] += e.Fields["text"]
			if len(e.Fields["text"]) > 128<<10 {
				t.Errorf("a part has %d bytes", len(e.Fields["text"]))
			}
			if e.Fields["what"] == "prompt" && (e.Fields["cut"] != "true" || e.Fields["bytes"] != fmt.Sprint(len(prompt)) || e.Fields["digest"] != events[0].Fields["prompt"]) {
				t.Errorf("prompt %v", e.Fields["bytes"])
			}
			if e.Fields["what"] == "answer" && (e.Fields["cut"] != "false" || e.Fields["digest"] != events[len(events)-1].Fields["answer"]) {
				t.Errorf("answer %v, outcome %v", e.Fields, events[len(events)-1].Fields)
			}
		}
		want := strings.ReplaceAll(prompt[:model.MaxKept], "canary", "[redacted]")
		if kept["answer"] != anthropicStream || kept["prompt"] != want || events[1].Kind != cofferdam.EventModelText {
			t.Errorf("kept %d bytes of the prompt, answer %q", len(kept["prompt"]), kept["answer"])
		}
	}
}

// A prompt that cannot be put on record does not leave.
func TestTextThatCannotBeKeptIsNotSent(t *testing.T) {
	server, n := turns(t, stream(anthropicStream, false))
	b := of(t, "anthropic", server.URL, func(m *cofferdam.Model) { m.KeepText = true })
	b.record.FailWhen(func(e cofferdam.Event) error {
		if e.Kind == cofferdam.EventModelText {
			return io.ErrShortWrite
		}
		return nil
	})
	if resp, _ := b.post(t, "/v1/messages", streamed); resp.StatusCode != 503 || n.Load() != 0 {
		t.Errorf("%d, %d requests left", resp.StatusCode, n.Load())
	}
}

// TestCallsOfOneSessionAreBounded: more of them wait, and hold up no other session.
func TestCallsOfOneSessionAreBounded(t *testing.T) {
	var at, most atomic.Int64
	release := make(chan struct{})
	server, _ := turns(t, func(w http.ResponseWriter, r *http.Request) {
		n := at.Add(1)
		defer at.Add(-1)
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
		<-release
		io.WriteString(w, "{}")
	})
	b := of(t, "anthropic", server.URL, nil)
	const calls = model.MaxCalls + 8
	done := make(chan int, calls)
	for range calls {
		go func() {
			resp, err := (&http.Client{Transport: &http.Transport{}}).Post(b.URL+"/v1/messages", "application/json", strings.NewReader(`{}`))
			if err != nil {
				done <- 0
				return
			}
			resp.Body.Close()
			done <- resp.StatusCode
		}()
	}
	for deadline := time.Now().Add(20 * time.Second); at.Load() < model.MaxCalls && time.Now().Before(deadline); {
		time.Sleep(5 * time.Millisecond)
	}
	time.Sleep(100 * time.Millisecond) // time for one too many
	close(release)
	for range calls {
		if code := <-done; code != 200 {
			t.Errorf("status %d", code)
		}
	}
	if most.Load() != model.MaxCalls {
		t.Errorf("%d calls at a time", most.Load())
	}
}

// The same requests are served whichever way they come, and a server that asks
// for no key gets none.
func TestRequestsThatComeWithoutPackets(t *testing.T) {
	server, seen := provider(t, func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, `{"ok":true}`) })
	caller, _, _ := gatewaytest.NewCaller(t, policy.Grant{Model: "provider"})
	caller.Model = cofferdam.Model{Name: "provider", Provider: "openai", URL: server.URL, NoKey: true}
	g := model.New(model.Options{Dialer: &gateway.Dialer{}, Attach: func(context.Context, cofferdam.Model, http.Header) error { return nil }})
	for _, host := range []string{"http://model.cofferdam.internal", "http://api.openai.com"} {
		tr := gateway.Local(caller, func(*gateway.Caller, gateway.Target) gateway.Handler { return g })
		resp, err := (&http.Client{Transport: tr}).Post(host+"/v1/chat/completions", "application/json", strings.NewReader(`{"model":"m"}`))
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		tr.CloseIdleConnections()
		if resp.StatusCode != 200 || string(text) != `{"ok":true}` {
			t.Errorf("%d %s", resp.StatusCode, text)
		}
	}
	if h := (*seen)[0].Header; h.Get("Authorization") != "" {
		t.Errorf("a server that asks for no key got %v", h)
	}
}
