package model

import (
	"encoding/json"
	"testing"
)

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
