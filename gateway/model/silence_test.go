package model

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"cofferdam"
	"cofferdam/gateway"
	"cofferdam/gateway/gatewaytest"
	"cofferdam/policy"
)

// piped plays a call whose packets take no time: the client's request goes
// through the gateway to a provider, all over pipes, and what the client gets is
// returned with how it ended.
func piped(t *testing.T, provider http.HandlerFunc, request string) (string, []cofferdam.Event, error) {
	t.Helper()
	caller, record, end := gatewaytest.NewCaller(t, policy.Grant{Model: "provider"})
	defer end()
	far, _, farEnd := gatewaytest.NewCaller(t, policy.Grant{})
	defer farEnd()
	caller.Model = cofferdam.Model{ID: "m-1", Name: "provider", Provider: anthropic, URL: "http://127.0.0.1:1", NoKey: true}
	g := New(Options{Attach: func(context.Context, cofferdam.Model, http.Header) error { return nil }})
	k := &calls{gateway: g, caller: caller, transports: map[cofferdam.ModelID]*http.Transport{"m-1": {
		DisableCompression: true,
		DialContext: func(context.Context, string, string) (net.Conn, error) {
			ours, theirs := net.Pipe()
			go gateway.ServeHTTP(far, theirs, provider)
			return ours, nil
		},
	}}}
	defer k.transports["m-1"].CloseIdleConnections()
	client := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
		ours, theirs := net.Pipe()
		go gateway.ServeHTTP(caller, theirs, k)
		return ours, nil
	}}
	defer client.CloseIdleConnections()
	resp, err := (&http.Client{Transport: client}).Post("http://box/v1/messages", "application/json", strings.NewReader(request))
	if err != nil {
		return "", nil, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	synctest.Wait()
	return string(text), record.Events(), err
}

// TestStreamPassesByteForByte: pauses where a stream may have them, and where
// it hurts, change no byte and add none, and five minutes of silence end nothing.
func TestStreamPassesByteForByte(t *testing.T) {
	pieces := []string{
		"event: content_block_delta\n", "data: {\"type\":\"content_block_delta\",\"delta\":{\"text\":\"caf\xc3", "\xa9\"}}\r", "\n\r\n", ": a comment\n\n",
		"da", "ta: {\"type\":\"message_delta\",\"usage\":{\"output_tokens\":3}}", "\n", "\n",
	}
	for name, pause := range map[string]time.Duration{"20 s": 20 * time.Second, "5 min": 5 * time.Minute, "14 min": 14 * time.Minute} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				got, events, err := piped(t, func(w http.ResponseWriter, _ *http.Request) {
					w.Header().Set("Content-Type", "text/event-stream")
					for _, p := range pieces {
						io.WriteString(w, p)
						w.(http.Flusher).Flush()
						time.Sleep(pause)
					}
				}, `{"stream":true}`)
				if want := strings.Join(pieces, ""); got != want || err != nil {
					t.Errorf("%q, %v", got, err)
				}
				if n := len(events); n != 2 || events[1].Outcome != gateway.OK || events[1].Fields["output_tokens"] != "3" {
					t.Errorf("on record %+v", events)
				}
			})
		})
	}
}

// A provider that has gone silent for good is given up, and the client sees an
// answer that broke off, not one that ended.
func TestSilentProviderIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		got, events, err := piped(t, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			io.WriteString(w, "data: {\"type\":\"content_block_start\"}\n\n")
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		}, `{"stream":true}`)
		if err == nil || !strings.HasPrefix(got, "data: ") {
			t.Errorf("%q %v", got, err)
		}
		if d := time.Since(begun); d < maxSilence || d > maxSilence+time.Minute {
			t.Errorf("given up after %v", d)
		}
		if e := events[len(events)-1]; e.Outcome != gateway.Failed || !strings.Contains(e.Reason, "has sent nothing for") {
			t.Errorf("outcome %+v", e)
		}
	})
}

// What comes before a stream's first content is held for moments only.
func TestBeginningOfAStreamIsHeldForMoments(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first := "data: {\"type\":\"message_start\"}\n\ndata: {\"type\":\"ping\"}\n\n"
		came := make(chan time.Duration, 1)
		begun := time.Now()
		got, _, err := piped(t, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			io.WriteString(w, first)
			w.(http.Flusher).Flush()
			time.Sleep(time.Minute)
			came <- time.Since(begun)
			io.WriteString(w, "data: {\"type\":\"content_block_start\"}\n\n")
		}, `{"stream":true}`)
		if err != nil || got != first+"data: {\"type\":\"content_block_start\"}\n\n" || <-came != time.Minute {
			t.Errorf("%q %v", got, err)
		}
	})
}

// FuzzBeginning: whatever a stream begins with, reading it ends, and what was
// held comes out as it came in.
func FuzzBeginning(f *testing.F) {
	f.Add([]byte("event: message_start\ndata: {\"type\":\"message_start\"}\n\n"), 3, true)
	f.Add([]byte("data: {\"error\":{\"code\":503,\"status\":\"UNAVAILABLE\"}}\r\n\r\n"), 1, true)
	f.Add([]byte("[{\"candidates\":[]}\n,"), 7, false)
	f.Fuzz(func(t *testing.T, text []byte, size int, events bool) {
		resp := &http.Response{Header: http.Header{}, Body: io.NopCloser(&drops{text, max(1, size%64)})}
		if events {
			resp.Header.Set("Content-Type", "text/event-stream; charset=utf-8")
		}
		err := hold(protocols[anthropic], resp)
		got, rerr := io.ReadAll(resp.Body)
		if rerr != nil || string(got) != string(text) {
			t.Errorf("%v, %v: %q became %q", err, rerr, text, got)
		}
	})
}

// drops reads a text in pieces of n bytes.
type drops struct {
	p []byte
	n int
}

// Read implements io.Reader.
func (s *drops) Read(p []byte) (int, error) {
	if len(s.p) == 0 {
		return 0, io.EOF
	}
	n := copy(p, s.p[:min(len(s.p), s.n)])
	s.p = s.p[n:]
	return n, nil
}
