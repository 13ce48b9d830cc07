package model

import (
	"encoding/json"
	"strings"
	"testing"
)

const events = "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"model\":\"m-1\",\"usage\":{\"input_tokens\":7," +
	"\"cache_creation_input_tokens\":20,\"cache_read_input_tokens\":300,\"output_tokens\":1}}}\n\n" +
	"data: {\"type\":\"content_block_delta\",\"delta\":{\"text\":\"usage\"}}\r\n\n" +
	"data: not json\n\ndata: {\"type\":\"message_delta\",\"usage\":{\"output_tokens\":5}}\n\n" +
	"data: {\"type\":\"message_delta\",\"usage\":{\"output_tokens\":42}}\n\ndata: {\"type\":\"message_stop\"}\n\n"

func TestUsageIsFoundHoweverItIsCut(t *testing.T) {
	long := "data: {\"x\":\"" + strings.Repeat("y", maxLine) + "\"}\n"
	for _, n := range []int{1, 3, 100, 1 << 22} {
		for name, text := range map[string]string{"plain": events, "after a long line": long + events} {
			u := usage{stream: true}
			for i := 0; i < len(text); i += n {
				u.write([]byte(text[i:min(i+n, len(text))]))
			}
			if got := u.total(); got != (tokens{Input: 327, Output: 42}) || u.model() != "m-1" {
				t.Errorf("%s, pieces of %d: %+v of %q", name, n, got, u.model())
			}
		}
	}
	whole := usage{}
	whole.write([]byte("{\n \"model\": \"m-2\",\n \"usage\": {\"input_tokens\": 3, \"output_tokens\": 4}\n}"))
	if got := whole.total(); got != (tokens{3, 4}) || whole.model() != "m-2" {
		t.Errorf("not streamed: %+v of %q", got, whole.model())
	}
	bad := usage{stream: true}
	bad.write([]byte("data: {\"usage\":{\"input_tokens\":-5,\"output_tokens\":-1}}\n"))
	if got := bad.total(); got != (tokens{}) {
		t.Errorf("below zero: %+v", got)
	}
}

// FuzzRequest: what is accepted means the same to the usual JSON reader, and a
// request that names no way out is never taken for one that does.
func FuzzRequest(f *testing.F) {
	for _, seed := range []string{
		`{"model":"m","stream":true,"tools":[{"type":"web_fetch_1"}]}`, `{"mcp_servers":[{}]}`, `{"a":1,"a":2}`,
		`{"messages":[{"content":[{"type":"image","source":{"type":"url"}}]}]}`, "{\"model\":\"\xff\"}", `{"model":"\ud800"}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		q, err := readRequest("messages", body)
		if err != nil {
			return
		}
		var plain map[string]any
		if err := json.Unmarshal(body, &plain); err != nil {
			t.Fatalf("accepted, and not JSON: %v", err)
		}
		if name, _ := plain["model"].(string); clip(name) != q.Model {
			t.Errorf("model %q, read as %q", name, q.Model)
		}
		if servers, ok := plain["mcp_servers"].([]any); ok && len(servers) > 0 && q.exit == "" {
			t.Error("remote tools were let through")
		}
	})
}
