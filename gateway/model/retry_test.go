package model_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"cofferdam"
	"cofferdam/gateway"
	"cofferdam/gateway/model"
	"cofferdam/policy"
)

const anthropicStream = "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"model\":\"m-1\",\"usage\":{\"input_tokens\":7,\"output_tokens\":1}}}\n\n" +
	"event: ping\ndata: {\"type\":\"ping\"}\n\n" +
	"event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"delta\":{\"type\":\"text_delta\",\"text\":\"hello\"}}\n\n" +
	"event: message_delta\ndata: {\"type\":\"message_delta\",\"usage\":{\"output_tokens\":5}}\n\nevent: message_stop\ndata: {\"type\":\"message_stop\"}\n\n"

// turns is a provider that does something else each time.
func turns(t testing.TB, list ...http.HandlerFunc) (*httptest.Server, *atomic.Int64) {
	t.Helper()
	var n atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		i := int(n.Add(1)) - 1
		list[min(i, len(list)-1)](w, r)
	}))
	t.Cleanup(s.Close)
	return s, &n
}

func status(code int, header ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		for i := 0; i+1 < len(header); i += 2 {
			w.Header().Set(header[i], header[i+1])
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		fmt.Fprintf(w, `{"type":"error","error":{"type":"of-%d"}}`, code)
	}
}

// stream sends text as a stream of events; cut: and then breaks off.
func stream(text string, cut bool) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		w.WriteHeader(200)
		io.WriteString(w, text)
		w.(http.Flusher).Flush()
		if cut {
			panic(http.ErrAbortHandler)
		}
	}
}

func broken(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }

const streamed = `{"model":"some-model","stream":true,"messages":[]}`

func TestWhatIsOverInAMomentIsTriedAgain(t *testing.T) {
	early := anthropicStream[:strings.Index(anthropicStream, "event: content")]
	overloaded := "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\"}}\n\n"
	for name, first := range map[string]http.HandlerFunc{
		"429": status(429), "500": status(500), "502": status(502), "503": status(503, "Retry-After", "0.01"), "504": status(504), "529": status(529),
		"no answer": broken, "cut before the first event": stream("", true), "cut before content": stream(early, true),
		"ended before content": stream(early, false), "error before content": stream(early+overloaded, false),
	} {
		t.Run(name, func(t *testing.T) {
			server, n := turns(t, first, stream(anthropicStream, false))
			b := start(t, server.URL, true)
			resp, body := b.post(t, "/v1/messages", streamed)
			if resp.StatusCode != 200 || body != anthropicStream || n.Load() != 2 {
				t.Fatalf("%d after %d tries: %s", resp.StatusCode, n.Load(), body)
			}
			events := b.record.Wait(t, 4)
			if len(events) != 4 || events[0].Fields["try"] != "1" || events[1].Outcome != gateway.Failed || events[1].Fields["next"] == "" ||
				events[2].Fields["try"] != "2" || events[2].Verdict != cofferdam.Allowed || events[3].Outcome != gateway.OK || events[3].Fields["output_tokens"] != "5" {
				t.Errorf("on record %+v", events)
			}
		})
	}
}

func TestWhatIsNotOverInAMomentIsNot(t *testing.T) {
	for name, c := range map[string]struct {
		first http.HandlerFunc
		want  string
		tries int64
	}{
		"400":                  {status(400), `"of-400"`, 1},
		"401":                  {status(401), `"of-401"`, 1},
		"404":                  {status(404), `"of-404"`, 1},
		"told not to":          {status(529, "X-Should-Retry", "false"), `"of-529"`, 1},
		"told to wait long":    {status(429, "Retry-After", "3600"), `"of-429"`, 1},
		"told to wait by date": {status(429, "Retry-After", time.Now().Add(time.Hour).UTC().Format(http.TimeFormat)), `"of-429"`, 1},
		"every time":           {status(503), `"of-503"`, model.MaxTries},
		"cut after content":    {stream(anthropicStream[:len(anthropicStream)-80], true), "hello", 1},
		"an error of the call": {stream("data: {\"type\":\"error\",\"error\":{\"type\":\"invalid_request_error\"}}\n\n", false), "invalid_request_error", 1},
		"always cut early":     {stream(": hi\n\n", true), ": hi", model.MaxTries},
	} {
		t.Run(name, func(t *testing.T) {
			server, n := turns(t, c.first)
			b := start(t, server.URL, true)
			resp, body := b.post(t, "/v1/messages", streamed)
			if !strings.Contains(body, c.want) || n.Load() != c.tries || strings.Contains(name, "cut") != strings.Contains(body, "[cut: ") {
				t.Errorf("%d after %d tries: %s", resp.StatusCode, n.Load(), body)
			}
			last := b.record.Wait(t, 2*int(c.tries))
			if e := last[len(last)-1]; name != "an error of the call" && e.Outcome != gateway.Failed {
				t.Errorf("outcome %q", e.Outcome)
			}
		})
	}
}

// TestFallbacks: the next registration gets the same request with its own key,
// address, alias and list; what is no use for it is passed over.
func TestFallbacks(t *testing.T) {
	first, n1 := turns(t, status(529))
	second, n2 := turns(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if r.Header.Get("X-Api-Key") != realKey || r.URL.Path != "/deep/v1/messages" || string(body) != strings.Replace(streamed, "some-model", "other-1", 1) {
			t.Errorf("the fallback got %s %v %s", r.URL, r.Header, body)
		}
		stream(anthropicStream, false)(w, r)
	})
	m := cofferdam.Model{Name: "provider", Provider: "anthropic", URL: first.URL, Fallback: []string{"gone", "narrow", "gpt", "second"}}
	b := serve(t, m, policy.Grant{Model: m.Name},
		cofferdam.Model{Name: "narrow", Provider: "anthropic", URL: first.URL, Allow: []string{"else"}},
		cofferdam.Model{Name: "gpt", Provider: "openai", URL: first.URL},
		cofferdam.Model{Name: "second", Provider: "anthropic", URL: second.URL + "/deep", Alias: map[string]string{"some-model": "other-1"}})
	resp, body := b.post(t, "/v1/messages", streamed)
	if resp.StatusCode != 200 || body != anthropicStream || n1.Load() != model.MaxTries || n2.Load() != 1 {
		t.Fatalf("%d after %d and %d tries: %s", resp.StatusCode, n1.Load(), n2.Load(), body)
	}
	events := b.record.Wait(t, 2*model.MaxTries+2)
	d := events[2*model.MaxTries]
	if d.Resource != "second" || d.Fields["fallback_of"] != "provider" || d.Fields["model"] != "other-1" || d.Fields["asked"] != "some-model" || d.Fields["try"] != "4" {
		t.Errorf("decision %+v", d)
	}
	if f := events[2*model.MaxTries-1].Fields; f["next"] != "fallback" || f["status"] != "529" {
		t.Errorf("outcome %v", f)
	}
}

// The last registration's own error reaches the client.
func TestErrorOfTheLastFallbackReachesTheClient(t *testing.T) {
	first, _ := turns(t, broken)
	second, _ := turns(t, status(503, "Retry-After", "77"))
	m := cofferdam.Model{Name: "provider", Provider: "anthropic", URL: first.URL, Fallback: []string{"second"}}
	b := serve(t, m, policy.Grant{Model: m.Name}, cofferdam.Model{Name: "second", Provider: "anthropic", URL: second.URL})
	resp, body := b.post(t, "/v1/messages", streamed)
	if resp.StatusCode != 503 || !strings.Contains(body, "of-503") || resp.Header.Get("Retry-After") != "77" {
		t.Errorf("%d %v %s", resp.StatusCode, resp.Header, body)
	}
}

// A refused key is the operator's to mend, and the record says how.
func TestRefusedKeyIsSaidOnRecord(t *testing.T) {
	server, _ := turns(t, status(401))
	b := start(t, server.URL, true)
	b.post(t, "/v1/messages", streamed)
	if e := b.record.Wait(t, 2)[1]; !strings.Contains(e.Reason, "refused the key of model provider") || !strings.Contains(e.Reason, "cofferdam model add") {
		t.Errorf("%+v", e)
	}
}

// A client that goes away while it waits for another try ends the call.
func TestClientThatGoesAwayEndsTheTries(t *testing.T) {
	server, n := turns(t, status(503, "Retry-After", "15"))
	b := start(t, server.URL, true)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		for n.Load() == 0 && ctx.Err() == nil {
			time.Sleep(time.Millisecond)
		}
		time.Sleep(200 * time.Millisecond) // it has heard the answer by then, and waits
		cancel()
	}()
	r, err := http.NewRequestWithContext(ctx, "POST", b.URL+"/v1/messages", strings.NewReader(streamed))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	if _, err := http.DefaultClient.Do(r); err == nil {
		t.Fatal("an answer came")
	}
	b.end()
	if events := b.record.Wait(t, 2); n.Load() != 1 || len(events) != 2 {
		t.Errorf("%d tries, on record %+v", n.Load(), events)
	}
}
